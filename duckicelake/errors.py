"""Every error that duckicelake raises on purpose. It knows no HTTP: `server/http/errors.py` maps classes to statuses.

CatalogError
├── InvalidRequest            the request is malformed or breaks a rule of the specification
│   ├── Unprocessable         well formed, but contradicts itself (a key both removed and updated) or an earlier one
│   │   └── TxnAlreadyCommittedError  a snapshot is a producer's batch that is there, or one before that: nothing to do
│   └── InvalidView           a view would break a rule of the view specification
├── Unsupported               legal Iceberg that this server refuses; every case stands in MISSING.md
├── Forgotten                 what is asked for was there once, and isn't kept any more
├── NotFound
│   ├── NoSuchWarehouse
│   ├── NoSuchNamespace
│   ├── NoSuchTable
│   ├── NoSuchView
│   ├── NoSuchJob
│   ├── FileMissing           an object that the request names does not exist
│   └── NotDelta              there is no Delta log where one is said to be
├── Conflict
│   ├── AlreadyExists
│   ├── NamespaceNotEmpty
│   ├── JobHeld               another job of the pipeline has the lease
│   ├── JobOver               the job has ended, or another has taken over its lease
│   ├── TxnAlreadyAppliedError a producer's batch of rows, or a later one, is there
│   └── CommitFailed          a requirement no longer holds: nothing was written, retry on fresh metadata
├── NotAuthenticated          no token came with the request
│   └── InvalidToken          one came, but it has expired, or nobody whom the server trusts has signed it
├── Forbidden                 the caller's scopes don't cover what the request asks for, whether or not it exists
├── TooManyRequests           refused before any work was done: wait and try again
├── ReadOnlyTable             the table follows a Delta table, and only that one's writers write it
├── DamagedTable              somebody damaged what DuckLake keeps of a table: no request can be served, others' can
├── DamagedLog                a Delta log is torn or corrupt: the message names file, line and what would be right
├── CommitStateUnknown        COMMIT was sent and its outcome, or what follows it, is not known
├── Unavailable               Postgres or the object store does not answer; nothing was written, try again
│   ├── FailedOver            another Postgres took over, which may lack commits that this process remembers
│   ├── UnknownFormatError    the lake was migrated to a format, or by a duckicelake, that this server doesn't know
│   ├── FeatureUnavailableError  a table uses a feature that this server runs without
│   └── StoreDenied           the object store refuses the server's own key: whoever runs the server must act
└── StartupError              the server can't start; the message says what to do
    ├── InvalidSettings
    ├── LakeInUse             another server holds this embedded lake
    └── UnsupportedCatalog    of another DuckLake format, encrypted, or written by a newer duckicelake

And every one of the pipeline and of `client`, which are clients: `cli/pipeline/exit_codes.py` maps these to exit codes.

PipelineError                 a job failed, for none of the reasons below
├── RowsNotWritten            a writer has stopped: `reason` is one of the others, and the rows are with it
├── MissingRequirement        something isn't installed: the message says what, and how to get it
│   ├── NoJava
│   ├── NoSpark
│   └── NoPackages            Spark's packages can't be had
├── CatalogUnreachable        nobody answers, or somebody who is no catalog, or one that can't serve now
│   └── NoCatalogUri          the URI is none that a catalog can have
├── BadCredentials            the catalog doesn't know who asks
├── NotAllowed                it does, and they may not
├── BadInput                  what the job was asked for can't be
│   ├── BadSource             what is to be read isn't there or isn't what it is said to be
│   ├── BadColumn             a column isn't there, or doesn't take these values
│   └── NoTable               the table isn't there
├── JobConflict               somebody else is at it: nothing was committed, try again later
│   └── LeaseLost             this job was too slow to renew its lease
└── OutOfMemory               Spark's driver or an executor
"""

from collections.abc import Sequence
from typing import Any, Final

_MAX_TEXT_CHARS: Final = 16_000


def shorten(text: str) -> str:
    """The text without its middle, if it is long: what a client sent is in it, and comes back and is kept."""
    return (
        text if len(text) <= _MAX_TEXT_CHARS else f"{text[: _MAX_TEXT_CHARS // 2]} […] {text[-_MAX_TEXT_CHARS // 2 :]}"
    )


class CatalogError(Exception):
    """Root of the tree; the message is written for the person who made the request. Its args make an equal one."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(shorten(each) if isinstance(each, str) else each for each in args))


class InvalidRequest(CatalogError):
    """The request is malformed or breaks a rule of the specification."""


class Unprocessable(InvalidRequest):
    """The request is well formed but contradicts itself, or an earlier one with its key."""


class TxnAlreadyCommittedError(Unprocessable):
    """A snapshot is a producer's batch that is there already, or one before it; nothing was written.

    Unlike TxnAlreadyAppliedError of the rows endpoint, it goes to Iceberg clients: they take 409 for a lost race and
    would commit the batch again on top of fresh metadata, and 5xx for an outcome to be looked up.
    """


class InvalidView(InvalidRequest):
    """A view would break a rule of the view specification."""


class Unsupported(CatalogError):
    """Legal Iceberg that this server refuses; `feature` names its heading in MISSING.md."""

    def __init__(self, feature: str, message: str) -> None:
        super().__init__(feature, message)
        self.feature = feature

    def __str__(self) -> str:
        return f"{self.args[1]} (MISSING.md, {self.feature})"


class Forgotten(CatalogError):
    """What is asked for was there once, and isn't kept any more."""


class NotFound(CatalogError):
    """Something that the request names does not exist."""


class NoSuchWarehouse(NotFound):
    """The warehouse in the request is not the one this server serves."""


class NoSuchNamespace(NotFound):
    """The namespace does not exist."""


class NoSuchTable(NotFound):
    """The table does not exist."""


class NoSuchView(NotFound):
    """The view does not exist."""


class FileMissing(NotFound):
    """An object that the request names does not exist."""


class NotDelta(NotFound):
    """There is no Delta log where one is said to be."""


class NoSuchJob(NotFound):
    """There is no such job, or it is another's."""


class Conflict(CatalogError):
    """The request can't be applied to the catalog as it is now; `kind` says in a word why not, for metrics."""

    kind: str = "other"


class AlreadyExists(Conflict):
    """The name is taken."""

    kind = "already-exists"


class NamespaceNotEmpty(Conflict):
    """The namespace still holds tables, views or namespaces."""

    kind = "namespace-not-empty"


class JobHeld(Conflict):
    """Another job of the pipeline has the lease."""

    kind = "job-held"


class JobOver(Conflict):
    """The job has ended, or another has taken over its lease."""

    kind = "job-over"


class TxnAlreadyAppliedError(Conflict):
    """A producer's batch of rows, or a later one, is there."""

    kind = "already-applied"


class CommitFailed(Conflict):
    """A requirement no longer holds: nothing was written, retry on fresh metadata. `kind` is the requirement's type."""

    def __init__(self, message: str, kind: str = "other") -> None:
        super().__init__(message, kind)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


class NotAuthenticated(CatalogError):
    """No token came with the request."""


class InvalidToken(NotAuthenticated):
    """The token has expired, or nobody whom the server trusts has signed it."""


class Forbidden(CatalogError):
    """The caller's scopes don't cover what the request asks for; says nothing about whether it exists."""


class TooManyRequests(CatalogError):
    """Refused before any work was done: wait and try again."""


class ReadOnlyTable(CatalogError):
    """The table follows a Delta table; the message says where to write, and how to take the table over.

    Its answer must be one that clients don't try again: neither a lost race (409) nor an unknown outcome (500).
    """


class DamagedTable(CatalogError):
    """What DuckLake keeps of a table was damaged; nothing was written, and other tables are served.

    The message names the damage. Its answer must be one that clients take neither for an absent table (404), which they
    might create, nor for a lost race (409) or an outcome to be looked up (500), which they would try again. It is no
    refusal of the request either: once the damage is mended, the same request succeeds.
    """


class DamagedLog(CatalogError):
    """A Delta log is torn or corrupt; the message names the file, the line in it and what would be right."""


class CommitStateUnknown(CatalogError):
    """COMMIT was sent and its outcome, or what follows it, is not known."""


class Unavailable(CatalogError):
    """Postgres or the object store does not answer; nothing was written, try again."""


class FailedOver(Unavailable):
    """Another Postgres took over, which may lack commits that this process remembers: it can only be started anew."""


class UnknownFormatError(Unavailable):
    """The lake was migrated to a DuckLake format, or by a newer duckicelake, that this server doesn't know.

    Nothing was written. The server goes on by itself once it knows the lake again.
    """


class FeatureUnavailableError(Unavailable):
    """A table uses an optional feature that this server runs without; nothing was written, and the table is read."""


class StoreDenied(Unavailable):
    """The object store refuses the server's own key; trying again helps once whoever runs the server has acted."""


class StartupError(CatalogError):
    """The server can't start; the message says what to do."""


class InvalidSettings(StartupError):
    """Settings are unknown, malformed or contradict each other."""


class LakeInUse(StartupError):
    """Another server holds this embedded lake."""


class UnsupportedCatalog(StartupError):
    """The catalog has another DuckLake format, is encrypted, or was written by a newer duckicelake."""


class PipelineError(Exception):
    """A job failed; the message says what happened and what to do, for the person who started it."""


class RowsNotWritten(PipelineError):
    """A writer has stopped at a batch that the catalog doesn't take; nothing behind it was sent.

    reason: why. first: how many rows were appended before the batch. rows: the batch, a list of rows or an Arrow table.
    unsent: the same for all that waits behind it, in order; each may be appended to another writer.
    """

    def __init__(self, reason: PipelineError, first: int = 0, rows: Any = (), unsent: Sequence[Any] = ()) -> None:
        super().__init__(reason, first, rows, unsent)
        self.reason = reason
        self.first = first
        self.rows = rows
        self.unsent = unsent

    def __str__(self) -> str:
        return str(self.reason)


class MissingRequirement(PipelineError):
    """Something that the pipeline needs isn't installed."""


class NoJava(MissingRequirement):
    """There is no Java, or one that Spark can't run on."""


class NoSpark(MissingRequirement):
    """There is no pyspark."""


class NoPackages(MissingRequirement):
    """Packages that Spark needs can't be had."""


class CatalogUnreachable(PipelineError):
    """Nobody answers at the URI, or somebody who is no catalog, or one that can't serve now."""


class NoCatalogUri(CatalogUnreachable):
    """The URI is none that a catalog can have."""


class BadCredentials(PipelineError):
    """The catalog doesn't know who asks."""


class NotAllowed(PipelineError):
    """The catalog knows who asks, and they may not."""


class BadInput(PipelineError):
    """What the job was asked for can't be."""


class BadSource(BadInput):
    """What is to be read isn't there, or isn't what it is said to be."""


class BadColumn(BadInput):
    """A column isn't there, or doesn't take these values."""


class NoTable(BadInput):
    """The table isn't there."""


class JobConflict(PipelineError):
    """Somebody else is at it; nothing was committed."""


class LeaseLost(JobConflict):
    """The job was too slow to renew its lease, and must not commit any more."""


class OutOfMemory(PipelineError):
    """Spark's driver or an executor ran out of memory."""
