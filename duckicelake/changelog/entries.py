"""SQL of the changelog: read, prune and count its entries, and the changes that readers skipped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

import psycopg

from duckicelake.errors import CommitStateUnknownError, InvalidRequestError, UnavailableError
from duckicelake.iceberg.identifiers import format_full_name
from duckicelake.lake.ducklake.snapshots import LOCK_KEY
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("changelog", "entries")
PRUNE_BATCH_ROWS: Final = 10_000
LAST_ORDINAL: Final = 2**31 - 1
CHANNEL: Final = "duckicelake_change"
"""The channel of notifications about new changes."""
SNAPSHOTS: Final = "duckicelake_snapshot"
"""The channel of notifications about new DuckLake snapshots, and changes without any."""
AWAITED_KEY: Final = LOCK_KEY + 5
"""The advisory lock that readers share while they wait for the changelog."""
_NAMESPACE: Final = "duckicelake_is_within(namespace, %(namespace)s)"
_OBJECT: Final = "object_id = %(object_id)s"
_TABLE: Final = """left(namespace, 200) = left(%(namespace)s, 200) AND namespace = %(namespace)s
    AND left(name, 200) = left(%(name)s, 200) AND name = %(name)s"""
_KINDS: Final = """(kind = ANY(%(kinds)s::text[]) OR EXISTS (
    SELECT FROM json_array_elements_text(facts -> 'kinds') AS k (kind) WHERE k.kind = ANY(%(kinds)s::text[])))"""
_ENGINE: Final = """strpos(lower(concat_ws(' ', agent, facts -> 'summary' ->> 'engine-name',
    facts -> 'client' ->> 'engine', CASE source WHEN 'duckdb' THEN source END)), lower(%(engine)s)) > 0"""
_VISIBLE: Final = """(object_id = ANY(%(visible_ids)s) OR EXISTS (
    SELECT FROM unnest(%(visible)s::text[]) AS v (readable) WHERE duckicelake_is_within(namespace, readable)))"""
_SKIPPED_SQL = load_queries("changelog", "skipped")
SkipperName = Literal["changelog", "lineage"]
_STORED_NAMES: Final[Mapping[SkipperName, str]] = {"changelog": "chronicle", "lineage": "lineage"}
"""Names of skippers in `duckicelake_left_out`, which are those of older servers."""


class ChangeKind(StrEnum):
    """The kind of a change. Replace is a compaction, flush or rewrite: other files, the same rows.

    Update-table is a change without a snapshot on main: properties, refs, branches, statistics.
    """

    CREATE_NAMESPACE = "create-namespace"
    RENAME_NAMESPACE = "rename-namespace"
    DROP_NAMESPACE = "drop-namespace"
    UPDATE_NAMESPACE = "update-namespace"
    CREATE_TABLE = "create-table"
    ALTER_TABLE = "alter-table"
    RENAME_TABLE = "rename-table"
    DROP_TABLE = "drop-table"
    UPDATE_TABLE = "update-table"
    APPEND = "append"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    REPLACE = "replace"
    CREATE_VIEW = "create-view"
    ALTER_VIEW = "alter-view"
    RENAME_VIEW = "rename-view"
    DROP_VIEW = "drop-view"


class LogPosition(NamedTuple):
    """A position in the changelog, written `17.0`; `17` is after all changes of that snapshot so far.

    The ordinal counts changes in one DuckLake snapshot, and later changes without a snapshot.
    """

    snapshot_id: int
    ordinal: int

    def __str__(self) -> str:
        return str(self.snapshot_id) if self.ordinal == LAST_ORDINAL else f"{self.snapshot_id}.{self.ordinal}"

    @staticmethod
    def parse(text: str) -> "LogPosition":
        """Parse a position; InvalidRequestError: it is none."""
        snapshot, dot, ordinal = text.partition(".")
        digits = [snapshot, ordinal] if dot else [snapshot]
        if not all(number.isascii() and number.isdigit() and len(number) <= 18 for number in digits):
            raise InvalidRequestError(f"{text!r} is no position: write a snapshot's id, as 17, or 17.0")
        return LogPosition(int(snapshot), min(int(ordinal), LAST_ORDINAL) if dot else LAST_ORDINAL)


START_POSITION: Final = LogPosition(-1, 0)
"""Before everything."""

END_POSITION: Final = LogPosition(2**63 - 1, 0)
"""After everything."""


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A change of one namespace, table or view, in a DuckLake snapshot or after it without one.

    namespace: the DuckLake schema's name, levels joined by dots. previous: the former `resource` of what was renamed.
    source: rest, pipeline or duckdb. facts, each only where it is known: location, format-version, summary (Iceberg's),
    metrics (counts, by the names that Iceberg's summaries have), schema (Iceberg's JSON, of what was created or
    altered), kinds (all, where more than one is true of the change), updates (of the audit trail's detail),
    parameters (the rest of that), client (what the request said of itself), requests (all, where several made it),
    author and message (what DuckDB's `set_commit_message` said, or `ducklake.commit-message` in the summary).
    """

    snapshot_id: int
    ordinal: int
    at: datetime
    kind: ChangeKind
    namespace: str
    name: str | None
    previous: str | None = None
    object_id: int | None = None
    uuid: str | None = None
    source: str = "duckdb"
    principal: str | None = None
    agent: str | None = None
    request_id: str | None = None
    operation: str | None = None
    iceberg_snapshot_id: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def position(self) -> LogPosition:
        return LogPosition(self.snapshot_id, self.ordinal)

    @property
    def resource(self) -> str:
        """The full name, as the audit trail spells it: dots in a table's own name are %2E."""
        return format_full_name(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class WantedChanges:
    """The changes that a reader wants; None: any. namespace: with all in and below it, unless `name` is given.

    object_id: this object, or by name if that is given, too. visible: namespaces that, with those below, may be seen;
    visible_ids: and tables and views.
    engine: text in the user agent or the engine's name.
    """

    namespace: str | None = None
    name: str | None = None
    object_id: int | None = None
    kinds: Sequence[ChangeKind] | None = None
    since: datetime | None = None
    until: datetime | None = None
    principal: str | None = None
    engine: str | None = None
    source: str | None = None
    visible: Sequence[str] | None = None
    visible_ids: Sequence[int] = ()


ANY_CHANGE: Final = WantedChanges()


def read_changes(
    cursor: Transaction, after: LogPosition, limit: int, wanted: WantedChanges = ANY_CHANGE
) -> list[LoggedChange]:
    """Read the changes after a position, in order."""
    return _read(cursor, _SQL.changes, after, limit, wanted)


def read_latest(
    cursor: Transaction, before: LogPosition, limit: int, wanted: WantedChanges = ANY_CHANGE
) -> list[LoggedChange]:
    """Read the changes before a position, the newest first."""
    return _read(cursor, _SQL.latest, before, limit, wanted)


def await_changelog(cursor: Transaction) -> None:
    """Ask the writer of the changelog to write without delay, as long as the session lasts."""
    cursor.execute(_SQL.be_awaited, {"key": AWAITED_KEY})


def read_newest_position(cursor: Transaction) -> LogPosition:
    """Read the position of the changelog: no later change gets this position or an earlier one."""
    row = cursor.execute(_SQL.newest).fetchone()
    assert row is not None
    return LogPosition(*row)


def read_oldest(cursor: Transaction) -> LogPosition | None:
    """Read the position of the first change that is kept; None if there are none."""
    row = cursor.execute(_SQL.oldest).fetchone()
    return None if row is None else LogPosition(*row)


def prune_entries(database: Database, before: datetime, batch: int = PRUNE_BATCH_ROWS) -> int:
    """Delete older entries in transactions of `batch` rows, so that none waits for long; return their number."""
    with database.transaction() as cursor:
        cursor.execute(_SQL.forget_lost_files)
    return database.prune(_SQL.prune, before, batch)


def _read(cursor: Transaction, query: str, at: LogPosition, limit: int, wanted: WantedChanges) -> list[LoggedChange]:
    conditions, parameters = _build_conditions(wanted)
    query = query.replace("{wanted}", " AND ".join(["true", *conditions]))
    parameters |= {"snapshot_id": at.snapshot_id, "ordinal": at.ordinal, "limit": limit}
    return [_build_change(*row) for row in cursor.execute(query, parameters).fetchall()]


def _build_change(snapshot_id: int, ordinal: int, at: datetime, kind: str, *rest: Any) -> LoggedChange:
    return LoggedChange(snapshot_id, ordinal, at, ChangeKind(kind), *rest)


def _build_place(wanted: WantedChanges) -> str:
    of_name = _NAMESPACE if wanted.name is None else _TABLE
    if wanted.object_id is None:
        return of_name
    return _OBJECT if wanted.namespace is None else f"({_OBJECT} OR {of_name})"


def _build_conditions(wanted: WantedChanges) -> tuple[list[str], dict[str, object]]:
    """Build SQL conditions and parameters.

    Only the wanted columns get a condition, so that their indexes are used.
    """
    given = {
        _build_place(wanted): wanted.namespace if wanted.object_id is None else wanted.object_id,
        _KINDS: wanted.kinds,
        "at >= %(since)s": wanted.since,
        "at < %(until)s": wanted.until,
        "principal = %(principal)s": wanted.principal,
        _ENGINE: wanted.engine,
        "source = %(source)s": wanted.source,
        _VISIBLE: wanted.visible,
    }
    parameters: dict[str, object] = {name: getattr(wanted, name) for name in WantedChanges.__dataclass_fields__}
    parameters |= {"kinds": list(wanted.kinds or ()), "visible": list(wanted.visible or ())}
    parameters["visible_ids"] = list(wanted.visible_ids)
    return [condition for condition, value in given.items() if value is not None], parameters


class SkippedError(Exception):
    """A change can't be recorded, also not on later attempts."""


def is_caused_by_change(error: Exception) -> bool:
    """Return whether the changes themselves cause a failure, so that it will repeat, rather than Postgres."""
    if isinstance(error, psycopg.Error):
        return isinstance(error, psycopg.DataError)
    return not isinstance(error, (UnavailableError, CommitStateUnknownError))


def record_skipped(cursor: Transaction, follower: SkipperName, what: str, error: Exception) -> SkippedError:
    """Record a skipped change in the transaction that skips it; return the error for the log."""
    reason = f"{type(error).__name__}: {error}"
    cursor.execute(
        _SKIPPED_SQL.note, {"follower": _STORED_NAMES[follower], "what": what, "reason": reason.replace("\0", "")}
    )
    skipped = SkippedError(f"the {follower} has skipped {what}: {reason}")
    skipped.__cause__ = error
    return skipped


def forget_skipped(cursor: Transaction) -> list[str]:
    """Forget the skipped changes, so that they aren't reported any more; return their texts."""
    rows = cursor.execute(_SKIPPED_SQL.forget).fetchall()
    names = {stored: name for name, stored in _STORED_NAMES.items()}
    return [f"{names.get(stored, stored)}: {what} ({reason})" for stored, what, reason in rows]


def read_newest_skipped(cursor: Transaction, follower: SkipperName) -> tuple[str, str, int] | None:
    """Read the last skipped change, its reason, and the number of skipped ones; None if there are none."""
    row = cursor.execute(_SKIPPED_SQL.newest, {"follower": _STORED_NAMES[follower]}).fetchone()
    return None if row is None else (row[0], row[1], row[2])
