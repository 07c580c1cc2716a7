"""Define every error that duckicelake raises on purpose. `server/http/errors.py` maps classes to HTTP statuses.

CatalogError
├── InvalidRequestError                 the request is malformed or breaks a rule of the specification
│   ├── UnprocessableError              well formed, but contradicts itself (a key removed and updated) or its key
│   │   └── TxnAlreadyCommittedError    the table has the snapshot's txn: nothing to do
│   ├── InvalidViewError                a view would break a rule of the view specification
│   └── RefusedAddressError             a URL leads, or may lead, to an address that callers may not name
├── UnsupportedError                    legal Iceberg that this server refuses; every case stands in MISSING.md
├── MissingExtraError                   a library isn't installed: the message names the extra that brings it
├── ExpiredError                        the version or the change existed, and was deleted
├── NotFoundError
│   ├── NoSuchWarehouseError
│   ├── NoSuchNamespaceError
│   ├── NoSuchTableError
│   ├── NoSuchViewError
│   ├── NoSuchJobError
│   ├── NoSuchPlanError                 no plan has this id: plans are complete at once
│   ├── NoSuchPlanTaskError             the plan task is forged, cut, another table's, or of an expired snapshot
│   ├── FileMissingError                an object that the request names does not exist
│   └── NoDeltaLogError                 the folder has no Delta log
├── ConflictError
│   ├── AlreadyExistsError
│   ├── NamespaceNotEmptyError
│   ├── ProtectedError                  it says `ducklake.protected=true`: it can't be dropped
│   ├── JobHeldError                    another job of the pipeline has the lease
│   ├── TaskHeldError                   a task in the queue of upkeep has the place of the one asked for
│   ├── JobEndedError                   the job has ended, or another has taken over its lease
│   ├── TxnAlreadyAppliedError          the table has the txn of the posted rows: nothing to do
│   └── CommitFailedError               a requirement no longer holds: nothing was written, retry on fresh metadata
├── NotAuthenticatedError               no token came with the request
│   └── InvalidTokenError               the token has expired, or no trusted issuer signed it
├── ForbiddenError                      the caller's scopes don't cover the request, whether or not its target exists
├── QuotaExceededError                  the warehouse may have no more tables or namespaces
├── TooManyRequestsError                refused before any work was done: wait and try again
├── ReadOnlyTableError                  the table follows a Delta table, and only writers of that write it
├── DamagedTableError                   DuckLake's rows of the table are damaged; other tables are served
├── TaskStoppedError                    a task of upkeep is to end before it is done; it goes back to the queue
├── DamagedLogError                     a Delta log is torn or corrupt: the message names file, line and expected text
├── CommitStateUnknownError             COMMIT was sent, and its outcome, or what follows it, is not known
├── UnavailableError                    Postgres or the object store does not answer; nothing was written, try again
│   ├── FailoverError                   another Postgres took over; it may lack commits that this process has seen
│   ├── UnknownFormatError              the lake's format, or the duckicelake that migrated it, is newer than this one
│   ├── FormatChangeError               `duckicelake migrate` is changing the lake's format: writes wait, reads go on
│   ├── FeatureUnavailableError         a table uses a feature that this server runs without
│   └── StoreDeniedError                the object store refuses the server's own key: its operator must act
└── StartupError                        the server can't start; the message says what to do
    ├── InvalidSettingsError
    ├── LakeInUseError                  another server holds this embedded lake
    └── UnsupportedCatalogError         of another DuckLake format, encrypted, or written by a newer duckicelake

The pipeline and `client` are clients, with a tree of their own. `cli/pipeline/app.py` maps it to exit codes.

PipelineError                           a job failed, for none of the reasons below
├── RowsNotWrittenError                 a writer has stopped: `reason` is one of the others, `rows` the batch
├── DeliveryError                       a receiver hasn't taken row changes: the next run goes on where this one was
├── MissingRequirementError             something isn't installed: the message says what, and how to get it
│   ├── MissingExtraError               the same as above
│   ├── MissingJavaError
│   ├── MissingSparkError
│   └── MissingPackagesError            Spark's packages can't be downloaded
├── CatalogUnreachableError             the URI doesn't answer, isn't a catalog's, or the catalog can't serve now
│   └── InvalidCatalogUriError          the URI has a form that no catalog has
├── BadCredentialsError                 the catalog refuses the token
├── NotAllowedError                     the token is valid, and its owner may not do this
├── BadInputError                       the job's arguments are wrong
│   ├── BadSourceError                  the source isn't there, or isn't of the format
│   ├── BadColumnError                  a column isn't there, or doesn't take these values
│   └── MissingTableError               the table isn't there
│       └── MissingNamespaceError
├── JobConflictError                    another writer was faster: nothing was committed, try again later
│   └── LeaseLostError                  this job was too slow to renew its lease
└── OutOfMemoryError                    Spark's driver or an executor ran out of memory
"""

import re
from collections.abc import Sequence
from typing import Any, Final

_MAX_TEXT_CHARS: Final = 16_000
_RULE: Final = re.compile(r"\b(?:Value error, |(?:Input|[A-Z]\w+) should (be|have) )")
_PARSER_DETAIL: Final = re.compile(r", (?:unable to|invalid|input is|found|expected) .*$")
"""What pydantic's parsers of texts add to the rule."""


def shorten(text: str) -> str:
    """Cut the middle out of a long text: it may hold what a client sent, and is stored and sent back."""
    return (
        text if len(text) <= _MAX_TEXT_CHARS else f"{text[: _MAX_TEXT_CHARS // 2]} […] {text[-_MAX_TEXT_CHARS // 2 :]}"
    )


def restate_rule(message: str) -> str:
    """Put what pydantic says of a value into a rule: `must be a valid UUID`. Other messages stay as they are."""
    return _PARSER_DETAIL.sub("", _RULE.sub(lambda found: f"must {found[1]} " if found[1] else "", message))


def summarize(names: Sequence[str], most: int = 5) -> str:
    """Join the first names for a message, and count the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


class CatalogError(Exception):
    """Root of the tree; the message is written for the person who made the request. Its args make an equal one."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(shorten(arg) if isinstance(arg, str) else arg for arg in args))


class InvalidRequestError(CatalogError):
    """The request is malformed or breaks a rule of the specification."""


class UnprocessableError(InvalidRequestError):
    """The request is well formed but contradicts itself, or an earlier one with its key."""


class TxnAlreadyCommittedError(UnprocessableError):
    """The table has the snapshot's txn, a producer's batch or a run's epoch, or a later one; nothing was written.

    Iceberg clients get this error, clients of the rows endpoint TxnAlreadyAppliedError. Iceberg clients take 409 for a
    lost race and would commit the batch again on fresh metadata. They take 5xx for an unknown outcome.
    """


class InvalidViewError(InvalidRequestError):
    """A view would break a rule of the view specification."""


class QueryMemoryError(InvalidRequestError):
    """A statement of DuckDB takes more memory than it may."""


class RefusedAddressError(InvalidRequestError):
    """A URL that a caller gave isn't one of a public HTTP server, nor of one that the settings list."""


class UnsupportedError(CatalogError):
    """Legal Iceberg that this server refuses; `feature` names its heading in MISSING.md."""

    def __init__(self, feature: str, message: str) -> None:
        super().__init__(feature, message)
        self.feature = feature

    def __str__(self) -> str:
        return f"{self.args[1]} (MISSING.md, {self.feature})"


class ExpiredError(CatalogError):
    """The version or the change existed, and was deleted."""


class NotFoundError(CatalogError):
    """Something that the request names does not exist."""


class NoSuchWarehouseError(NotFoundError):
    """The warehouse in the request is not the one this server serves."""


class NoSuchNamespaceError(NotFoundError):
    """The namespace does not exist."""


class NoSuchTableError(NotFoundError):
    """The table does not exist."""


class NoSuchViewError(NotFoundError):
    """The view does not exist."""


class FileMissingError(NotFoundError):
    """An object that the request names does not exist."""


class NoDeltaLogError(NotFoundError):
    """The folder has no Delta log."""


class NoSuchPlanError(NotFoundError):
    """No plan has this id."""


class NoSuchPlanTaskError(NotFoundError):
    """The plan task isn't one that this catalog gave for the table, or its snapshot has expired."""


class NoSuchJobError(NotFoundError):
    """The job doesn't exist, or belongs to another principal."""


class ConflictError(CatalogError):
    """The request can't be applied to the catalog as it is now; `kind` is the reason in metrics."""

    kind: str = "other"


class AlreadyExistsError(ConflictError):
    """The name is taken."""

    kind = "already-exists"


class NamespaceNotEmptyError(ConflictError):
    """The namespace still holds tables, views or namespaces."""

    kind = "namespace-not-empty"


class ProtectedError(ConflictError):
    """The table, view or namespace says that it can't be dropped or replaced."""


class JobHeldError(ConflictError):
    """Another job of the pipeline has the lease."""

    kind = "job-held"


class TaskHeldError(ConflictError):
    """The queue of upkeep has a task in the place of the one that is asked for; nothing was queued."""

    kind = "task-held"


class JobEndedError(ConflictError):
    """The job has ended, or another has taken over its lease."""

    kind = "job-over"


class TxnAlreadyAppliedError(ConflictError):
    """The table has the txn of the posted rows, or a later one of its producer; nothing was written."""

    kind = "already-applied"


class CommitFailedError(ConflictError):
    """A requirement no longer holds: nothing was written, retry on fresh metadata. `kind` is the requirement's type."""

    def __init__(self, message: str, kind: str = "other") -> None:
        super().__init__(message, kind)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


class NotAuthenticatedError(CatalogError):
    """No token came with the request."""


class InvalidTokenError(NotAuthenticatedError):
    """The token has expired, or no trusted issuer signed it."""


class ForbiddenError(CatalogError):
    """The caller's scopes don't cover what the request asks for, whether or not it exists."""


class QuotaExceededError(CatalogError):
    """The warehouse may have no more tables or namespaces; the message names the limit and how many there are.

    Its answer must be one that clients don't try again: neither a lost race (409) nor a busy server (429).
    """


class TooManyRequestsError(CatalogError):
    """Refused before any work was done: wait and try again."""


class ReadOnlyTableError(CatalogError):
    """The table follows a Delta table; the message says where to write, and how to take the table over.

    Its answer must be one that clients don't try again: neither a lost race (409) nor an unknown outcome (500).
    """


class DamagedTableError(CatalogError):
    """What DuckLake keeps of a table was damaged; nothing was written, and other tables are served.

    The message names the damage. Clients might create an absent table (404), and would retry after a lost race
    (409) or an unknown outcome (500), so the answer is none of these. Once the damage is repaired, the same request
    succeeds.
    """


class DamagedLogError(CatalogError):
    """A Delta log is torn or corrupt; the message names the file, the line in it and what is expected."""


class TaskStoppedError(CatalogError):
    """A task of upkeep must end before it is done: its worker stops, its lease is lost, or quiet hours begin."""


class CommitStateUnknownError(CatalogError):
    """COMMIT was sent and its outcome, or what follows it, is not known."""


class UnavailableError(CatalogError):
    """Postgres or the object store does not answer; nothing was written, try again."""


class FailoverError(UnavailableError):
    """Another Postgres took over; it may lack commits that this process has seen. Start the process anew."""


class UnknownFormatError(UnavailableError):
    """The lake was migrated to a DuckLake format, or by a newer duckicelake, that this server doesn't know.

    Nothing was written. The server continues once it knows the format again.
    """


class FormatChangeError(UnavailableError):
    """`duckicelake migrate` is changing the lake's format. Nothing was written; reads go on."""


class FeatureUnavailableError(UnavailableError):
    """A table uses an optional feature that this server runs without; nothing was written, and the table is read."""


class StoreRestingError(UnavailableError):
    """The object store has not answered just now, for the first time. What needs it waits for so many seconds."""

    def __init__(self, message: str, seconds: float = 1.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class StoreDeniedError(UnavailableError):
    """The object store refuses the server's own key; whoever runs the server must act before a retry helps."""


class StartupError(CatalogError):
    """The server can't start; the message says what to do."""


class InvalidSettingsError(StartupError):
    """Settings are unknown, malformed or contradict each other."""


class LakeInUseError(StartupError):
    """Another server holds this embedded lake."""


class UnsupportedCatalogError(StartupError):
    """The catalog has another DuckLake format, is encrypted, or was written by a newer duckicelake."""


class PipelineError(Exception):
    """A job failed; the message says what happened and what to do, for the person who started it."""


class RowsNotWrittenError(PipelineError):
    """A writer has stopped at a batch that the catalog doesn't take; nothing behind it was sent.

    Attributes:
        reason: why the catalog doesn't take the batch.
        first: how many rows were appended before the batch.
        rows: the batch, a list of rows or an Arrow table.
        unsent: the batches behind it, in order; each may be appended to another writer.

    """

    def __init__(self, reason: PipelineError, first: int = 0, rows: Any = (), unsent: Sequence[Any] = ()) -> None:
        super().__init__(reason, first, rows, unsent)
        self.reason = reason
        self.first = first
        self.rows = rows
        self.unsent = unsent

    def __str__(self) -> str:
        return str(self.reason)


class DeliveryError(PipelineError):
    """A receiver hasn't taken row changes; the message says where the next run goes on."""


class MissingRequirementError(PipelineError):
    """Something that the pipeline needs isn't installed."""


class MissingExtraError(CatalogError, MissingRequirementError):
    """A library that an extra installs isn't there, here or in the server; the message names the install."""


class MissingJavaError(MissingRequirementError):
    """Java isn't installed, or is a version that Spark can't run on."""


class MissingSparkError(MissingRequirementError):
    """Pyspark isn't installed."""


class MissingPackagesError(MissingRequirementError):
    """Spark's packages can't be downloaded."""


class CatalogUnreachableError(PipelineError):
    """The URI doesn't answer, isn't a catalog's, or the catalog can't serve now."""


class InvalidCatalogUriError(CatalogUnreachableError):
    """The URI has a form that no catalog has."""


class BadCredentialsError(PipelineError):
    """The catalog refuses the token."""


class NotAllowedError(PipelineError):
    """The token is valid, and its owner may not do this."""


class BadInputError(PipelineError):
    """The job's arguments are wrong."""


class BadSourceError(BadInputError):
    """The source isn't there, or isn't of the format."""


class BadColumnError(BadInputError):
    """A column isn't there, or doesn't take these values."""


class MissingTableError(BadInputError):
    """The table isn't there."""


class MissingNamespaceError(MissingTableError):
    """The namespace isn't there."""


class JobConflictError(PipelineError):
    """Another writer was faster; nothing was committed."""


class LeaseLostError(JobConflictError):
    """The job was too slow to renew its lease, and must not commit any more."""


class OutOfMemoryError(PipelineError):
    """Spark's driver or an executor ran out of memory."""


def format_count(number: int, noun: str) -> str:
    """Format a count, as 1 file, 0 files, 1,200 entries."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s"
    return f"{number:,} {plural}"
