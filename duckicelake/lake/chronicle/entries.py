"""The chronicle: one ordered log of what changed in the lake, whoever did it, by REST or in DuckDB.

A row is added once and after all that there are, so whoever has read up to a position misses nothing. Who follows the
lake and adds them is `catalog.chronicle.folding`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from duckicelake.errors import InvalidRequest
from duckicelake.lake.names import full_name
from duckicelake.lake.postgres.database import Database, Transaction
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.pruning import prune_all
from duckicelake.lake.snapshots import LOCK_KEY

_SQL = queries("chronicle")
BATCH: Final = 10_000
LAST_ORDINAL: Final = 2**31 - 1
CHANNEL: Final = "duckicelake_change"
"""Who listens to it is notified of new changes."""
SNAPSHOTS: Final = "duckicelake_snapshot"
"""Who listens to this one, of what they will be told of: DuckLake snapshots, and changes without any."""
AWAITED_KEY: Final = LOCK_KEY + 5
"""Of an advisory lock that all share who await the chronicle."""


class Kind(StrEnum):
    """What happened. Replace is a compaction, a flush or a rewrite: other files, the same rows.

    Update-table is what makes no snapshot that readers of main see: properties, refs, branches, statistics.
    """

    CREATE_NAMESPACE = "create-namespace"
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


class Position(NamedTuple):
    """A place in the chronicle, spelled `17.0`; `17` comes after all that happened in and after that snapshot so far.

    The ordinal counts what happened in one DuckLake snapshot, and after it without a snapshot.
    """

    snapshot_id: int
    ordinal: int

    def __str__(self) -> str:
        return str(self.snapshot_id) if self.ordinal == LAST_ORDINAL else f"{self.snapshot_id}.{self.ordinal}"

    @staticmethod
    def parse(text: str) -> "Position":
        """Read the spelling; InvalidRequest for what isn't one."""
        snapshot, dot, ordinal = text.partition(".")
        digits = [snapshot, ordinal] if dot else [snapshot]
        if not all(each.isascii() and each.isdigit() and len(each) <= 18 for each in digits):
            raise InvalidRequest(f"{text!r} is no position: write a snapshot's id, as 17, or 17.0")
        return Position(int(snapshot), min(int(ordinal), LAST_ORDINAL) if dot else LAST_ORDINAL)


START: Final = Position(-1, 0)
"""Before everything."""
END: Final = Position(2**63 - 1, 0)
"""After everything."""


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one namespace, table or view in one DuckLake snapshot, or after it without one.

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
    kind: Kind
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
    def position(self) -> Position:
        return Position(self.snapshot_id, self.ordinal)

    @property
    def resource(self) -> str:
        """The full name, as the audit trail spells it: dots in a table's own name are %2E."""
        return full_name(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class WantedChanges:
    """Which changes somebody asks for; None: any. namespace: with all in and below it, unless `name` is given.

    object_id: by this identity, or by the name, if that is given, too. visible: namespaces which, with those below
    them, may be seen. engine: text in the user agent or the engine's name.
    """

    namespace: str | None = None
    name: str | None = None
    object_id: int | None = None
    kinds: Sequence[Kind] | None = None
    since: datetime | None = None
    until: datetime | None = None
    principal: str | None = None
    engine: str | None = None
    source: str | None = None
    visible: Sequence[str] | None = None


ANY: Final = WantedChanges()


def changes(cursor: Transaction, after: Position, limit: int, wanted: WantedChanges = ANY) -> list[Change]:
    """What comes after a position, in order."""
    return _read(cursor, _SQL.changes, after, limit, wanted)


def latest(cursor: Transaction, before: Position, limit: int, wanted: WantedChanges = ANY) -> list[Change]:
    """What comes before a position, the newest first."""
    return _read(cursor, _SQL.latest, before, limit, wanted)


def be_awaited(cursor: Transaction) -> None:
    """Have the lake be followed without delay, for as long as the session lasts."""
    cursor.execute(_SQL.be_awaited, {"key": AWAITED_KEY})


def newest(cursor: Transaction) -> Position:
    """How far the lake has been followed: no change will come at or before this position any more."""
    row = cursor.execute(_SQL.newest).fetchone()
    assert row is not None
    return Position(*row)


def oldest(cursor: Transaction) -> Position | None:
    """The first change that is kept; those before it were pruned, or there never were any."""
    row = cursor.execute(_SQL.oldest).fetchone()
    return None if row is None else Position(*row)


def prune(database: Database, before: datetime, batch: int = BATCH) -> int:
    """Forget what is older, `batch` rows in a transaction so that nobody waits for long; how many there were."""
    with database.transaction() as cursor:
        cursor.execute(_SQL.forget_lost_files)
    return prune_all(database, _SQL.prune, before, batch)


def _read(cursor: Transaction, query: str, at: Position, limit: int, wanted: WantedChanges) -> list[Change]:
    conditions, parameters = _conditions(wanted)
    query = query.replace("{wanted}", " AND ".join(["true", *conditions]))
    parameters |= {"snapshot_id": at.snapshot_id, "ordinal": at.ordinal, "limit": limit}
    return [_change(*row) for row in cursor.execute(query, parameters).fetchall()]


def _change(snapshot_id: int, ordinal: int, at: datetime, kind: str, *rest: Any) -> Change:
    return Change(snapshot_id, ordinal, at, Kind(kind), *rest)


_NAMESPACE: Final = "(namespace = %(namespace)s OR starts_with(namespace, %(namespace)s || '.'))"
_OBJECT: Final = "object_id = %(object_id)s"
_TABLE: Final = """left(namespace, 200) = left(%(namespace)s, 200) AND namespace = %(namespace)s
    AND left(name, 200) = left(%(name)s, 200) AND name = %(name)s"""
_KINDS: Final = """(kind = ANY(%(kinds)s::text[]) OR EXISTS (
    SELECT FROM json_array_elements_text(facts -> 'kinds') AS k (kind) WHERE k.kind = ANY(%(kinds)s::text[])))"""
_ENGINE: Final = """strpos(lower(concat_ws(' ', agent, facts -> 'summary' ->> 'engine-name',
    facts -> 'client' ->> 'engine', CASE source WHEN 'duckdb' THEN source END)), lower(%(engine)s)) > 0"""
_VISIBLE: Final = """EXISTS (SELECT FROM unnest(%(visible)s::text[]) AS v (prefix)
    WHERE namespace = prefix OR starts_with(namespace, prefix || '.'))"""


def _place(wanted: WantedChanges) -> str:
    of_name = _NAMESPACE if wanted.name is None else _TABLE
    if wanted.object_id is None:
        return of_name
    return _OBJECT if wanted.namespace is None else f"({_OBJECT} OR {of_name})"


def _conditions(wanted: WantedChanges) -> tuple[list[str], dict[str, object]]:
    """What is asked for in SQL: only what is said is in it, so that each index serves who asks for its columns."""
    given = {
        _place(wanted): wanted.namespace if wanted.object_id is None else wanted.object_id,
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
    return [condition for condition, value in given.items() if value is not None], parameters
