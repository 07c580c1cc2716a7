"""Tables that receive rows: their state under the lock, and their counts and statistics after it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import UUID

from psycopg import Cursor

from duckicelake.errors import NoSuchTableError
from duckicelake.iceberg.identifiers import format_full_name
from duckicelake.lake.changes import TableStats
from duckicelake.lake.ducklake import data_files, native
from duckicelake.lake.ducklake.definition import build_inlined_columns, build_inlined_table_name
from duckicelake.lake.ducklake.snapshots import SnapshotCounters
from duckicelake.lake.formats import LakeFormat, get_format, has_system_columns
from duckicelake.lake.inlined.batches import InlinedTable, InliningOptions, InsertTarget, RowBatch
from duckicelake.lake.model import ColumnStats, Extent, TableDefinition, fold_case
from duckicelake.lake.side_tables import idempotency
from duckicelake.lake.txn import TxnApp
from duckicelake.postgres.pipeline import execute_writes, json_param
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "rows")
TableSizes = tuple[int, int, int]
"""Rows that a table ever had, its next row id, and the bytes of its files."""


def read_insert_target(cursor: Cursor[Row], schema_name: str, table_name: str) -> InsertTarget:
    """Read the live table of a name in the caller's transaction. Raises NoSuchTableError, DamagedTableError."""
    row = cursor.execute(_SQL.live_table, {"schema_name": schema_name, "table_name": table_name}).fetchone()
    if row is None:
        raise NoSuchTableError(f"Table does not exist: {format_full_name(schema_name, table_name)}")
    table_id, schema_id = row
    lake_version, newest, options, version = cursor.execute(_SQL.lake_version).fetchall()[0]
    definition = native.read_definition(cursor, table_id, newest)
    if definition is None:
        raise NoSuchTableError(f"Table does not exist: {format_full_name(schema_name, table_name)}")
    native.read_table_stats(cursor, table_id)
    inlined = _read_inlined_table(cursor, definition, get_format(version))
    return InsertTarget(definition, schema_id, lake_version, options, inlined)


def _read_inlined_table(cursor: Cursor[Row], definition: TableDefinition, lake: LakeFormat) -> InlinedTable | None:
    """Return the table for new inlined rows; None if there can be none.

    DuckDB inlines into the newest registered table, and fails if that one lacks columns: then a new one is made.
    """
    columns, table_id = build_inlined_columns(definition.columns, lake), definition.table_id
    if columns is None:
        return None
    names, types = zip(*columns, strict=True)
    row = cursor.execute(_SQL.registered, {"table_id": table_id}).fetchone()
    registered = None if row is None else str(row[0])
    (version,) = cursor.execute(_SQL.newest_version, {"table_id": table_id}).fetchall()[0]
    new = build_inlined_table_name(table_id, version)
    if registered is not None and _has_columns(cursor, registered, names):
        return InlinedTable(registered, version, types, registered)
    return None if registered == new else InlinedTable(new, version, types, registered)


def _has_columns(cursor: Cursor[Row], name: str, columns: Sequence[str]) -> bool:
    """Return whether a table of inlined rows has these columns behind DuckLake's three, in either spelling."""
    has = [fold_case(row[0]) for row in cursor.execute(_SQL.columns_of, {"name": name}).fetchall()]
    return has_system_columns(has) and has[3:] == list(map(fold_case, columns))


@dataclass(frozen=True, slots=True)
class LockedTable:
    """A table as it is once the snapshot id is taken; `stats` are None before its first rows.

    registered: the table that takes its inlined rows. options: those that say how many rows are inlined.
    """

    table_id: int
    sizes: TableSizes
    stats: Mapping[int, ColumnStats] | None
    registered: str | None
    options: InliningOptions

    @property
    def has_rows(self) -> bool:
        """Whether it ever had any."""
        return self.stats is not None

    def find_problem(self, batch: RowBatch, before: SnapshotCounters) -> str | None:
        """Return why the table isn't what the batch was prepared for, if so. before: the last snapshot."""
        target = batch.target
        if before.schema_version != target.lake_version:
            return f"schema version {before.schema_version} is newer than {target.lake_version}"
        if self.options != target.options:
            return "the options say otherwise how many rows are inlined"
        if target.inlined is not None and self.registered != target.inlined.registered:
            return f"{self.registered} takes the inlined rows of table {self.table_id}"
        return None

    def add_rows(self, rows: int, size: int, stats: Mapping[int, ColumnStats | None]) -> "LockedTable":
        """Return the table with so many more rows and bytes of files, and these statistics."""
        records, next_row_id, before = self.sizes
        known = {column: row for column, row in stats.items() if row is not None}
        return replace(self, sizes=(records + rows, next_row_id + rows, before + size), stats=known)


@dataclass(frozen=True, slots=True)
class LockedState:
    """State that batches depend on.

    Attributes:
        txn_versions: the last version of each app that has one.
        keys: of earlier requests.

    """

    tables: dict[int, LockedTable]
    txn_versions: dict[TxnApp, int]
    keys: set[UUID]


def query_locked_state(cursor: Cursor[Row], batches: Sequence[RowBatch]) -> Callable[[], LockedState]:
    """Ask for the tables' state, the apps' last versions, and the earlier requests."""
    table_ids = sorted({batch.table_id for batch in batches})
    asked = cursor.connection.cursor().execute(_SQL.states, {"table_ids": table_ids})
    applied = idempotency.query_applied_txns(cursor, {batch.app for batch in batches if batch.app is not None})
    known = idempotency.query_known_keys(cursor, [batch.key for batch in batches if batch.key is not None])

    def answer() -> LockedState:
        return LockedState(
            {row[0]: _parse_locked_table(cursor, *row[:5]) for row in asked.fetchall()}, applied(), known()
        )

    return answer


def _parse_locked_table(
    cursor: Cursor[Row],
    table_id: int,
    sizes: Sequence[Sequence[int | None]] | None,
    stats: Sequence[Sequence[Any]] | None,
    registered: str | None,
    options: InliningOptions,
) -> LockedTable:
    """Parse a row of `states`. Raises DamagedTableError if the table has no whole row of sizes."""
    is_whole = sizes is not None and len(sizes) == 1 and None not in sizes[0]
    found = sizes[0] if sizes is not None and is_whole else native.read_table_stats(cursor, table_id)
    if found is None:
        return LockedTable(table_id, (0, 0, 0), None, registered, options)
    columns = {column: ColumnStats(column, *rest) for column, *rest in stats or ()}
    return LockedTable(table_id, tuple(found), columns, registered, options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class TableGain:
    """The gain of a table. stats: exact ones of each part of the rows."""

    state: LockedTable
    batches: Sequence[RowBatch]
    stats: Sequence[Sequence[ColumnStats | Extent]]

    @property
    def rows(self) -> int:
        return sum(batch.count for batch in self.batches)

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.file_size_bytes for batch in self.batches for file in batch.files)

    @cached_property
    def widened(self) -> dict[int, ColumnStats | None]:
        """The table's statistics then."""
        return self.batches[0].widen(self.state.stats, self.stats)

    @property
    def after(self) -> LockedTable:
        """What the table is then."""
        return self.state.add_rows(self.rows, self.size, self.widened)


def write_gains(cursor: Cursor[Row], gains: Sequence[TableGain]) -> None:
    """Write the tables' counts and statistics after the gains."""
    for gain in gains:
        if not gain.state.has_rows:
            stats = TableStats(gain.rows, gain.rows, gain.size, gain.widened)
            execute_writes(cursor, [data_files.build_stats(gain.state.table_id, stats)])
    known = [gain for gain in gains if gain.state.has_rows]
    if not known:
        return
    wider, unknown = _find_changed_stats(known)
    tables = [{"table_id": table.state.table_id, "count": table.rows, "size": table.size} for table in known]
    parameters = {"tables": json_param(tables), "columns": json_param(wider)}
    cursor.execute(_SQL.count_rows, parameters)
    if unknown:
        table_ids, column_ids = zip(*unknown, strict=True)
        cursor.execute(_SQL.forget_columns, {"table_ids": list(table_ids), "column_ids": list(column_ids)})


def _find_changed_stats(gains: Sequence[TableGain]) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """Return (column statistics that are wider now, tables and columns whose statistics are unknown now)."""
    wider: list[dict[str, Any]] = []
    unknown: list[tuple[int, int]] = []
    for gain in gains:
        state = gain.state
        assert state.stats is not None
        for column, row in gain.widened.items():
            if row is None:
                unknown.append((state.table_id, column))
            elif row is not state.stats[column]:
                wider.append({"table_id": state.table_id, "column_id": column, **_build_stats_values(row)})
    return wider, unknown


def _build_stats_values(row: ColumnStats) -> dict[str, bool | str | None]:
    return {
        "contains_null": row.contains_null,
        "contains_nan": row.contains_nan,
        "min_value": row.min_value,
        "max_value": row.max_value,
    }
