"""The rows of `duckicelake_materialized_view`: definitions, what the last refresh read and wrote, when one is due."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from duckicelake.catalog.upkeep_tasks import WatchedTable
from duckicelake.errors import CommitFailedError
from duckicelake.iceberg.identifiers import Namespace, parse_schema_name, to_schema_name
from duckicelake.lake.ducklake.snapshots import try_session_lock
from duckicelake.postgres.queries import Transaction, load_queries, replace_unstorable

_SQL = load_queries("materialized_views", "views")
KIND: Final = "refresh"
"""Of the tasks that refresh views."""
FAILURE_SECONDS: Final = 300.0
"""After which a refresh that failed is tried again."""
_LEASE_KEY: Final = 0x6D766965  # "mvie"; a key of two parts, the other is the table
_MAX_ERROR_CHARACTERS: Final = 2000
RefreshMode = Literal["whole", "incremental", "unchanged"]
SourceKind = Literal["table", "view"]
NameKey = tuple[str, str]
"""Schema and name of a table or view, as a query means it."""


@dataclass(frozen=True, slots=True)
class NamedSource:
    """What a name in a query stands for, by DuckLake's id."""

    kind: SourceKind
    object_id: int


@dataclass(frozen=True, slots=True)
class SourceState:
    """A table or view that a refresh read.

    Attributes:
        uuid: Iceberg's and DuckLake's of a table; DuckLake's of a view.
        snapshot_id: Iceberg's that was main; None of a table without snapshots, or of one that only DuckDB reads.
        version_id: Iceberg's version of a view; None of one that no Iceberg client has loaded.

    """

    kind: SourceKind
    object_id: int
    schema_name: str
    name: str
    uuid: str
    snapshot_id: int | None = None
    version_id: int | None = None


@dataclass(frozen=True, slots=True)
class Definer:
    """With whose rights a view reads.

    principal_id: of its row among the principals, which then has its scopes; None: scopes and groups are as they were.
    """

    name: str
    principal_id: int | None
    scopes: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a view is refreshed by itself. every_seconds: None: not by the clock."""

    every_seconds: int | None = None
    on_change: bool = False


@dataclass(frozen=True, slots=True)
class MaterializedQuery:
    """What a materialized view shows.

    Attributes:
        sql: the SELECT, as it was written.
        namespace: where tables are looked up that it names without one.
        names: what names in it stand for.

    """

    sql: str
    namespace: Namespace
    names: Mapping[NameKey, NamedSource]


@dataclass(frozen=True, slots=True)
class RefreshRecord:
    """What a refresh read and wrote.

    Attributes:
        snapshot_id: DuckLake's, at which all sources were read.
        fresh_as_of: when that was the newest.
        digest: of all SQL that was read, by ids of tables.
        reason: why in this mode.
        rows_written: to the table; those of an incremental refresh of groups are all of them.

    """

    snapshot_id: int
    fresh_as_of: datetime
    sources: tuple[SourceState, ...]
    digest: bytes
    mode: RefreshMode
    reason: str
    rows_written: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MaterializedView:
    """A live materialized view.

    Attributes:
        own_snapshot_id: DuckLake's, which wrote the contents.
        refreshes: how many there were; counts the versions of this row.
        error: why the last refresh failed; None once one succeeds.

    """

    table_id: int
    namespace: Namespace
    name: str
    query: MaterializedQuery
    definer: Definer
    created: datetime
    schedule: Schedule
    last: RefreshRecord
    own_snapshot_id: int
    refreshes: int
    refreshed: datetime
    error: str | None
    failed_at: datetime | None


@dataclass(frozen=True, slots=True)
class ScheduledView:
    """A live view that is refreshed by itself.

    Attributes:
        sources: names of tables and views that the last refresh read.
        clock_at: when it is due by the clock.
        changed_at: of the first change of a source since the last refresh, of a view that is refreshed on change.
        waits_until: when its task is tried again, if that waits.
        now: Postgres's time.

    """

    schema_name: str
    table_name: str
    sources: tuple[str, ...]
    every_seconds: int | None
    clock_at: datetime | None
    changed_at: datetime | None
    error: str | None
    failed_at: datetime | None
    waits_until: datetime | None
    now: datetime


def insert_view(
    cursor: Transaction,
    table_id: int,
    query: MaterializedQuery,
    definer: Definer,
    schedule: Schedule,
    own_snapshot_id: int,
    record: RefreshRecord,
) -> None:
    """Insert the view of a table that the transaction makes."""
    names = [[*key, source.kind, source.object_id] for key, source in query.names.items()]
    row = {
        "table_id": table_id,
        "query": query.sql,
        "schema_name": to_schema_name(query.namespace),
        "names": json.dumps(names),
        "definer": definer.name,
        "definer_id": definer.principal_id,
        "definer_scopes": list(definer.scopes),
        "definer_groups": list(definer.groups),
        "own_snapshot_id": own_snapshot_id,
        **asdict(schedule),
        **_build_columns(record),
    }
    cursor.execute(_SQL.insert, row)


def read_views(
    cursor: Transaction,
    schema_name: str | None = None,
    table_name: str | None = None,
    *,
    after: NameKey = ("", ""),
    limit: int | None = None,
) -> list[MaterializedView]:
    """Read the live views of a schema or all, or the one of a name, by name."""
    asked = {
        "schema_name": schema_name,
        "table_name": table_name,
        "after_schema": after[0],
        "after_name": after[1],
        "limit": limit,
    }
    return [_parse_view(row) for row in cursor.execute(_SQL.read, asked).fetchall()]


def note_refresh(
    cursor: Transaction, view: MaterializedView, record: RefreshRecord, own_snapshot_id: int | None
) -> None:
    """Record a refresh in its transaction. own_snapshot_id: DuckLake's, None of one that wrote nothing.

    Raises CommitFailedError if another refresh was faster.
    """
    row = {"table_id": view.table_id, "refreshes": view.refreshes, "own_snapshot_id": own_snapshot_id}
    if not cursor.execute(_SQL.note_refresh, {**row, **_build_columns(record)}).rowcount:
        raise CommitFailedError(f"Another refresh of {view.name} was faster; its contents stay", "refreshed")


def note_failure(cursor: Transaction, table_id: int, error: str) -> None:
    """Record why a refresh failed."""
    kept = replace_unstorable(error[:_MAX_ERROR_CHARACTERS])
    cursor.execute(_SQL.note_failure, {"table_id": table_id, "error": kept})


def change_schedule(cursor: Transaction, table_id: int, schedule: Schedule) -> None:
    """Set when a view is refreshed by itself."""
    cursor.execute(_SQL.change_schedule, {"table_id": table_id, **asdict(schedule)})


def read_due(cursor: Transaction, change_seconds: float, failure_seconds: float) -> list[tuple[Namespace, str, str]]:
    """Read namespace and name of the views that are to be refreshed by themselves now, each with the reason.

    change_seconds: how old a change of a source is at least. failure_seconds: how long one that failed is left alone.
    """
    parameters = {"change_seconds": change_seconds, "failure_seconds": failure_seconds}
    rows = cursor.execute(_SQL.due, parameters).fetchall()
    return [(parse_schema_name(schema), name, why) for schema, name, why in rows]


def is_any_scheduled(cursor: Transaction) -> bool:
    """Return whether the lake has a view that is refreshed by itself."""
    return cursor.execute(_SQL.is_any_scheduled).fetchone() == (True,)


def read_scheduled(cursor: Transaction, names: Sequence[NameKey], kind: str) -> list[ScheduledView]:
    """Read the views of these names that are refreshed by themselves. kind: of their tasks."""
    parameters = {"schemas": [schema for schema, _ in names], "tables": [name for _, name in names], "kind": kind}
    rows = cursor.execute(_SQL.scheduled, parameters).fetchall()
    return [ScheduledView(schema, name, tuple(sources), *rest) for schema, name, sources, *rest in rows]


def skip_unchanged(cursor: Transaction, snapshots: int) -> None:
    """Record that views more snapshots behind than this are fresh, where nothing since concerns them."""
    cursor.execute(_SQL.skip_unchanged, {"snapshots": snapshots})


@contextmanager
def hold_lease(cursor: Transaction, table_id: int) -> Iterator[bool]:
    """Try to take the right to refresh a view for this session, without a transaction; yield whether it is taken."""
    parameters = {"key": _LEASE_KEY, "table_id": table_id % 2**31}
    with try_session_lock(cursor, _SQL.take_lease, _SQL.leave_lease, parameters) as is_held:
        yield is_held


def read_newest_snapshot(cursor: Transaction) -> tuple[int, datetime]:
    """Read the id of DuckLake's newest snapshot, and the time at which it is that."""
    ((snapshot_id, time),) = cursor.execute(_SQL.newest).fetchall()
    return int(snapshot_id), time


def find_table_name(cursor: Transaction, table_id: int, snapshot_id: int) -> tuple[str, str, str] | None:
    """Find the schema, name and uuid of a table at a snapshot; None if it wasn't there."""
    found = cursor.execute(_SQL.name_at, {"table_id": table_id, "snapshot_id": snapshot_id}).fetchone()
    return None if found is None else (str(found[0]), str(found[1]), str(found[2]))


def find_view_name(cursor: Transaction, view_id: int) -> NameKey | None:
    """Find the schema and name of a live view."""
    found = cursor.execute(_SQL.view_name, {"view_id": view_id}).fetchone()
    return None if found is None else (str(found[0]), str(found[1]))


def _build_columns(record: RefreshRecord) -> dict[str, Any]:
    return {**asdict(record), "sources": json.dumps([asdict(source) for source in record.sources])}


def _parse_view(row: Sequence[Any]) -> MaterializedView:
    table_id, schema_name, name, sql, default, names, *rest = row
    definer, definer_id, scopes, groups, created, every_seconds, on_change, *last = rest
    snapshot_id, own_snapshot_id, fresh_as_of, sources, digest, refreshes, refreshed, mode, reason, *written = last
    rows_written, seconds, error, failed_at = written
    named = {(schema, of): NamedSource(kind, object_id) for schema, of, kind, object_id in names}
    states = tuple(SourceState(**source) for source in sources)
    record = RefreshRecord(snapshot_id, fresh_as_of, states, bytes(digest), mode, reason, rows_written, seconds)
    return MaterializedView(
        table_id=table_id,
        namespace=parse_schema_name(schema_name),
        name=name,
        query=MaterializedQuery(sql, parse_schema_name(default), named),
        definer=Definer(definer, definer_id, tuple(scopes), tuple(groups)),
        created=created,
        schedule=Schedule(every_seconds, on_change),
        last=record,
        own_snapshot_id=own_snapshot_id,
        refreshes=refreshes,
        refreshed=refreshed,
        error=error,
        failed_at=failed_at,
    )


def list_watched(cursor: Transaction, names: Sequence[tuple[str, str]]) -> Sequence[WatchedTable]:
    """List the views of these names of schema and table that are refreshed by themselves."""
    return [_describe(view) for view in read_scheduled(cursor, names, KIND)]


def _describe(view: ScheduledView) -> WatchedTable:
    due_at = [at for at in (view.clock_at, view.changed_at) if at is not None and at <= view.now]
    began = min(due_at, default=None)
    return WatchedTable(
        namespace=parse_schema_name(view.schema_name),
        table=view.table_name,
        kind=KIND,
        source=", ".join(view.sources),
        why=_explain(view),
        is_due=began is not None,
        next_at=_find_next(view, is_due=began is not None),
        behind_seconds=None if began is None else (view.now - began).total_seconds(),
    )


def _explain(view: ScheduledView) -> str:
    if view.error is not None:
        return f"its last refresh failed: {view.error}"
    if view.changed_at is not None:
        return "a source has changed"
    return "no source has changed" if view.every_seconds is None else f"it is refreshed every {view.every_seconds} s"


def _find_next(view: ScheduledView, *, is_due: bool) -> datetime | None:
    if view.waits_until is not None:
        return view.waits_until
    if is_due and view.failed_at is not None:
        return view.failed_at + timedelta(seconds=FAILURE_SECONDS)
    return None if is_due else view.clock_at
