"""SQL of imported Delta tables: their positions, which only Delta's writers may write, how followed ones stand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from duckicelake.catalog.upkeep_tasks import ABSENT_SECONDS, WatchedTable
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.postgres.queries import Transaction, load_queries, replace_unstorable

_SQL = load_queries("delta.import_", "sources")
FOLLOW_KIND: Final = "follow-delta"
"""Of the tasks that import new versions."""
LOOK_SETTING: Final = "delta_sync_seconds"
"""With the seconds between two looks for new versions."""
LIST_SECONDS: Final = 60.0
"""After which a log is listed although its next version isn't there, as it may have been replaced. What failed is tried
again then, too."""


@dataclass(frozen=True, slots=True)
class DeltaPosition:
    """The imported version of a Delta table; its metadata has the id.

    digest: SHA-256 of that version's file in the log, in hex; None: unknown. state: for the translation of the next
    version.
    """

    delta_id: str
    version: int
    digest: str | None = None
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DeltaSource:
    """A live table and its Delta table. root: the Delta table's folder, without a final slash.

    error, failed_at: why its next version can't be imported, and since when.
    """

    table_id: int
    schema_name: str
    table_name: str
    root: str
    position: DeltaPosition
    following: bool
    error: str | None = None
    failed_at: datetime | None = None

    @property
    def name(self) -> str:
        """The table's name in DuckLake."""
        return f"{self.schema_name}.{self.table_name}"


@dataclass(frozen=True, slots=True)
class FollowedTableState:
    """A followed table as the catalog knows it.

    Attributes:
        error: why its next version can't be imported.
        listed: when its log was listed last.
        state, why, message, available: of its task, unless that is done.
        behind_seconds: since the task was made, or failed.
        next_look: when the next version is looked for, by any process; None: one looks now, or none does.
        is_watched: whether a process looks for versions, as it noted within some minutes.

    """

    schema_name: str
    table_name: str
    root: str
    version: int
    error: str | None
    listed: datetime | None
    state: str | None
    why: str | None
    message: str | None
    available: datetime | None
    behind_seconds: float | None
    next_look: datetime | None
    is_watched: bool


def record_source(cursor: Transaction, table_id: int, root: str, position: DeltaPosition, *, following: bool) -> None:
    """Record the Delta table of a new table, as the last step of its transaction.

    following: no other writer may write the table from then on.
    """
    parameters = {"table_id": table_id, "root": root.rstrip("/"), "following": following, **_build_columns(position)}
    cursor.execute(_SQL.record, parameters)


def read_sources(cursor: Transaction, name: str | None = None, *, followed: bool = False) -> list[DeltaSource]:
    """Read the Delta tables of live tables, by name.

    Read only followed tables, or the one of the name `namespace.table`, if asked for.

    Only the named one has its state: states are large, and the list is read often.
    """
    schema, _, table = (name or "").rpartition(".")
    parameters = {"schema_name": schema, "table_name": None if name is None else table, "followed": followed}
    return [_read_source(*row) for row in cursor.execute(_SQL.sources, parameters).fetchall()]


def _read_source(
    table_id: int, schema: str, table: str, root: str, delta_id: str, version: int, digest: str | None, *more: Any
) -> DeltaSource:
    following, state, *seen = more
    return DeltaSource(table_id, schema, table, root, DeltaPosition(delta_id, version, digest, state), following, *seen)


def move_position(cursor: Transaction, source: DeltaSource, position: DeltaPosition) -> None:
    """Record the version that the transaction imports, as its last step.

    StaleBaseError: another transaction has imported it, or the table was adopted, since the source was read.
    """
    before = {"table_id": source.table_id, "before": source.position.version, "following": source.following}
    if not cursor.execute(_SQL.move, {**_build_columns(position), **before}).rowcount:
        raise StaleBaseError(
            f"version {source.position.version + 1} of {source.root} is there, or {source.name} was adopted"
        )


def is_redefined(cursor: Transaction, source: DeltaSource) -> bool:
    """Return whether the table's definition was changed since its version, as far as that was caught up with."""
    return cursor.execute(_SQL.is_redefined, {"table_id": source.table_id}).fetchone() == (True,)


def record_failure(cursor: Transaction, source: DeltaSource, error: str) -> bool:
    """Record why the next version can't be imported, as a text for Postgres; False if that is known already."""
    parameters = {
        "table_id": source.table_id,
        "version": source.position.version,
        "error": replace_unstorable(error),
    }
    return bool(cursor.execute(_SQL.fail, parameters).rowcount)


def clear_failure(cursor: Transaction, source: DeltaSource) -> None:
    """Delete the recorded failure."""
    cursor.execute(_SQL.recover, {"table_id": source.table_id})


def end_following(cursor: Transaction, table_id: int) -> bool:
    """Let all clients write the table from now on; False if it isn't followed.

    Its task leaves the queue, unless it runs.
    """
    return bool(cursor.execute(_SQL.adopt, {"table_id": table_id, "kind": FOLLOW_KIND}).rowcount)


def is_any_followed(cursor: Transaction) -> bool:
    """Return whether the lake has a followed table."""
    return cursor.execute(_SQL.is_any_followed).fetchone() == (True,)


def read_open_tasks(cursor: Transaction) -> set[int]:
    """Read which tables have a task that isn't done: it waits, runs, or couldn't be done."""
    return {row[0] for row in cursor.execute(_SQL.open_tasks, {"kind": FOLLOW_KIND}).fetchall()}


def read_followed(cursor: Transaction, names: Sequence[tuple[str, str]]) -> list[FollowedTableState]:
    """Read how the followed tables of these names of schema and table stand."""
    parameters = {
        "schemas": [schema for schema, _ in names],
        "tables": [table for _, table in names],
        "kind": FOLLOW_KIND,
        "setting": LOOK_SETTING,
        "absent_seconds": ABSENT_SECONDS,
    }
    return [FollowedTableState(*row) for row in cursor.execute(_SQL.followed, parameters).fetchall()]


def take_listings(cursor: Transaction, seconds: float, table_ids: Sequence[int]) -> set[int]:
    """Take those of some followed tables whose logs no process has listed for so many seconds, as this one will."""
    parameters = {"seconds": seconds, "table_ids": list(table_ids)}
    return {row[0] for row in cursor.execute(_SQL.take_listings, parameters).fetchall()}


def list_watched(cursor: Transaction, names: Sequence[tuple[str, str]]) -> Sequence[WatchedTable]:
    """List the followed tables of these names of schema and table."""
    return [_describe(table) for table in read_followed(cursor, names)]


def _describe(table: FollowedTableState) -> WatchedTable:
    named = parse_schema_name(table.schema_name), table.table_name, FOLLOW_KIND, table.root
    fault = table.error or (table.message if table.state in {"blocked", "failed"} else None)
    if fault is not None:
        retry = None if table.listed is None else table.listed + timedelta(seconds=LIST_SECONDS)
        next_at = table.available if table.state == "waiting" else retry
        why = f"it stands still at version {table.version}: {fault}"
        return WatchedTable(*named, why, is_due=True, next_at=next_at, behind_seconds=table.behind_seconds)
    if table.why is not None:
        next_at = table.available if table.state == "waiting" else None
        return WatchedTable(*named, table.why, is_due=True, next_at=next_at, behind_seconds=table.behind_seconds)
    if not table.is_watched:
        why = f"it is at version {table.version}, and no process looks for the next one"
        return WatchedTable(*named, why, is_due=False)
    why = f"it is at version {table.version}; the next one is looked for"
    return WatchedTable(*named, why, is_due=False, next_at=table.next_look)


def _build_columns(position: DeltaPosition) -> dict[str, Any]:
    return {
        "delta_id": position.delta_id,
        "version": position.version,
        "digest": position.digest,
        "state": dict(position.state or {}),
    }
