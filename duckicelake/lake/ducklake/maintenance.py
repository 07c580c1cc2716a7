"""Count a table's files, rows, deletes and inlined rows, which decide its maintenance."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import orjson
from psycopg import Cursor, sql
from psycopg.errors import UndefinedTable

from duckicelake.lake.formats import INLINED_ALIAS
from duckicelake.postgres.queries import Row, Transaction, load_queries

_SQL = load_queries("lake", "maintenance")
_UNREADABLE_DAYS: Final = 1
"""For which a note of an unreadable file holds: a task that ended is planned again after as long."""


@dataclass(frozen=True, slots=True)
class InlinedRowStats:
    """Live rows of a table that DuckDB keeps in Postgres. oldest_ms: None if it isn't known any more."""

    rows: int = 0
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class UpkeepStatistics:
    """Statistics of one table; sizes are bytes. target_size: of its files; `small` files are under 3/4 of it.

    by_deleted_tenths: numbers of files that lost at least one tenth of their rows, two tenths, … nine.
    small_by_partition: numbers of partitions by their number of small files. oldest_ms: the oldest snapshot without a
    branch or tag. refs_end_ms: when the first branch or tag is as old as it may be. branch_age_ms: the shortest time
    for which a branch keeps its snapshots. described_ms: the newest snapshot with statistics. cleaned_ms: when orphans
    were last looked for. sorted_by: the order in which the last job sorted all files, if it says.
    sortable_columns: in lower case, if the policies ask for an order. delete_files: Iceberg's. location,
    format_version: None if no Iceberg client knows the table. has_single_values: whether any column has.
    """

    table_id: int
    schema_name: str
    table_name: str
    format_version: int | None
    location: str | None
    target_size: int
    policies: Mapping[str, str]
    files: int
    bytes: int
    records: int
    deleted: int
    files_with_deletes: int
    delete_files: int
    unsorted_bytes: int
    unfiltered_bytes: int
    sorted_by: str | None
    sortable_columns: Sequence[str] | None
    by_deleted_tenths: Sequence[int]
    small_by_partition: Mapping[str, int]
    small_files: int
    small_bytes: int
    snapshots: int
    oldest_ms: int | None
    refs_end_ms: int | None
    branch_age_ms: int | None
    current_ms: int | None
    described_ms: int | None
    cleaned_ms: int | None
    manifests: int
    small_manifests: int
    plain_deletes: int
    has_single_values: bool


def read_table_ids(
    cursor: Cursor[Row],
    schema_name: str | None,
    table_name: str | None,
    after: int,
    limit: int | None,
    visible: Sequence[str] | None = None,
    visible_ids: Sequence[int] = (),
) -> list[tuple[int, str]]:
    """Read the ids of live tables after one, with their schemas: of all, of a namespace and those below it, or one.

    visible: schemas whose tables, and those below them, may be seen; None: all. visible_ids: and other tables.
    """
    parameters: dict[str, object] = {"schema_name": schema_name, "table_name": table_name, "after": after}
    parameters |= {"limit": limit, "visible": None if visible is None else list(visible)}
    parameters["visible_ids"] = list(visible_ids)
    return cursor.execute(_SQL.tables, parameters).fetchall()


def read_statistics(
    cursor: Cursor[Row], table_ids: Sequence[int], defaults: Mapping[str, str], left_out: Sequence[int] = ()
) -> list[tuple[UpkeepStatistics, InlinedRowStats]]:
    """Read statistics of the live tables among these, by id. defaults: policies of tables that set none.

    left_out: ids of data files that aren't counted.

    Each statement sees the state at its begin: the numbers may be of different moments.
    """
    rows, deletes = _count_inlined(cursor, table_ids)
    parameters = {
        "table_ids": list(table_ids),
        "defaults": orjson.dumps(dict(defaults)).decode(),
        "left_out": list(left_out),
        "noted_files": list(deletes),
        "noted_deletes": list(deletes.values()),
    }
    with cursor.connection.transaction():
        cursor.execute(_SQL.by_hash)
        # A prepared plan is made for any tables and reads all files: with a million of them 8 s instead of 0.1 s.
        found = cursor.execute(_SQL.statistics, parameters, prepare=False).fetchall()
    return [(UpkeepStatistics(*row), rows.get(row[0], InlinedRowStats())) for row in found]


def note_unreadable(cursor: Transaction, data_file_ids: Sequence[int]) -> None:
    """Note that live data files can't be read, and forget notes that hold no more."""
    cursor.execute(_SQL.forget_unreadable, {"days": _UNREADABLE_DAYS})
    cursor.execute(_SQL.note_unreadable, {"data_file_ids": list(data_file_ids)})


def read_unreadable(cursor: Transaction, table_ids: Sequence[int]) -> dict[int, list[int]]:
    """Read the ids of live data files of some tables that are noted, by table."""
    parameters = {"table_ids": list(table_ids), "days": _UNREADABLE_DAYS}
    return dict(cursor.execute(_SQL.unreadable, parameters).fetchall())


def read_location(cursor: Cursor[Row], schema_name: str, table_name: str) -> str | None:
    """Read the location of a live table's Iceberg files; None: there is no table, or no Iceberg client has seen it."""
    row = cursor.execute(_SQL.location, {"schema_name": schema_name, "table_name": table_name}).fetchone()
    return None if row is None else str(row[0])


def _count_inlined(
    cursor: Cursor[Row], table_ids: Sequence[int]
) -> tuple[dict[int, InlinedRowStats], Mapping[int, int]]:
    """Count live inlined rows by table, and rows deleted in Postgres by data file."""
    named = cursor.execute(_SQL.inlined, {"table_ids": list(table_ids)}).fetchall()
    counts: Counter[int] = Counter()
    begins: dict[int, int] = {}
    for table_id, count, begin in _read_union(
        cursor, _LIVE_ROWS_QUERY, [(id_, name) for id_, name, has_rows in named if has_rows]
    ):
        if count:
            counts[table_id] += count
            begins[table_id] = min(begin, begins.get(table_id, begin))
    noted = _read_union(cursor, _DELETES_QUERY, [(id_, name) for id_, name, has_rows in named if not has_rows])
    times = {snapshot_id: at for snapshot_id, (at, _) in _read_snapshot_times(cursor, begins.values()).items()}
    rows = {table_id: InlinedRowStats(count, times.get(begins[table_id])) for table_id, count in counts.items()}
    return rows, {file_id: count for _, file_id, count in noted}


@dataclass(frozen=True, slots=True)
class FlushableRows:
    """Rows and deletes of a table in Postgres, past versions included.

    bytes: of the rows alone. oldest_ms: time of the oldest, None if it isn't known any more. age_ms: its age by
    Postgres's clock, which also gives the times of snapshots.
    """

    table_id: int
    schema_name: str
    table_name: str
    rows: int
    deletes: int
    bytes: int
    oldest_ms: int | None
    age_ms: int | None = field(compare=False)


def read_flushable(cursor: Cursor[Row], table_ids: Sequence[int]) -> list[FlushableRows]:
    """Read the rows that could be flushed, for the tables that have any."""
    named = cursor.execute(_SQL.inlined, {"table_ids": list(table_ids)}).fetchall()
    sums: dict[int, tuple[int, int, int, int]] = {}
    for are_rows in (True, False):
        tables_of_kind = [(id_, name) for id_, name, has_rows in named if has_rows is are_rows]
        for table_id, count, size, begin in _read_union(cursor, _ALL_ROWS_QUERY, tables_of_kind):
            if count:
                rows, deletes, bytes_, oldest = sums.get(table_id, (0, 0, 0, begin))
                own = (rows + count, deletes) if are_rows else (rows, deletes + count)
                sums[table_id] = (*own, bytes_ + size, min(oldest, begin))
    times = _read_snapshot_times(cursor, [sum_[3] for sum_ in sums.values()])
    names = cursor.execute(_SQL.names, {"table_ids": list(sums)}).fetchall()
    return [
        FlushableRows(id_, schema, name, *sums[id_][:3], *times.get(sums[id_][3], (None, None)))
        for id_, schema, name in names
    ]


def _read_snapshot_times(cursor: Cursor[Row], snapshot_ids: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Read time and age of the remaining snapshots, in milliseconds."""
    rows = cursor.execute(_SQL.times, {"snapshot_ids": list(snapshot_ids)}).fetchall()
    return {snapshot_id: (at, age) for snapshot_id, at, age in rows}


_ALL_ROWS_QUERY: Final = sql.SQL(
    "(SELECT {}::bigint, count(*), coalesce(sum(pg_column_size(i.*)), 0)::bigint, min(_dl_begin) "
    f"FROM {{}} {INLINED_ALIAS})"
)
_LIVE_ROWS_QUERY: Final = sql.SQL(
    f"(SELECT {{}}::bigint, count(*), min(_dl_begin) FROM {{}} {INLINED_ALIAS} WHERE _dl_end IS NULL)"
)
_DELETES_QUERY: Final = sql.SQL("(SELECT {}::bigint, file_id, count(*) FROM {} GROUP BY file_id)")
_MAX_TABLES_PER_READ: Final = 500


def _read_union(cursor: Cursor[Row], query: sql.SQL, tables: Sequence[tuple[int, str]]) -> Iterator[Row]:
    """Yield the query's rows for each table. DuckDB drops them at run time: a missing table has no rows."""
    for first in range(0, len(tables), _MAX_TABLES_PER_READ):
        some = tables[first : first + _MAX_TABLES_PER_READ]
        queries = [query.format(sql.Literal(table_id), sql.Identifier(name)) for table_id, name in some]
        try:
            yield from cursor.execute(sql.SQL(" UNION ALL ").join(queries)).fetchall()
        except UndefinedTable:
            half = len(some) // 2
            if half:
                yield from chain(_read_union(cursor, query, some[:half]), _read_union(cursor, query, some[half:]))
