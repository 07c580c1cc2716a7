"""Find damage in tables of inlined rows and deletes, deletes without effect included."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psycopg import sql

from duckicelake.errors import format_count
from duckicelake.lake.doctor.findings import Finding
from duckicelake.lake.formats import INLINED_ALIAS
from duckicelake.postgres.queries import Row, Transaction, load_queries

_SQL = load_queries("lake", "damage")
_MAX_ROW_IDS = 100


@dataclass(frozen=True, slots=True)
class _NeededStats:
    """Statistics that a table's rows need. recorded_*: those in its table-wide statistics.

    live: how many rows it has, at least.
    """

    table_id: int
    records: int
    next_row_id: int
    size: int
    recorded_next_row_id: int | None
    recorded_records: int | None
    live: int


def find_inlined_damage(cursor: Transaction, names: Mapping[int, str]) -> list[Finding]:
    """Find inlined deletes of other tables' data files, row ids that would be given again, and low counts."""
    return [*_find_dangling_deletes(cursor, names), *_find_low_statistics(cursor, names)]


def _find_dangling_deletes(cursor: Transaction, names: Mapping[int, str]) -> Iterator[Finding]:
    """Find inlined deletes of another table's files, or of none; DuckDB leaves those of files that have gone."""
    for table_id, name in cursor.execute(_SQL.inlined_delete_tables).fetchall():
        query = sql.SQL(
            "SELECT file_id, count(*) FROM {} i LEFT JOIN ducklake_data_file d ON d.data_file_id = i.file_id "
            "WHERE d.table_id <> {} "
            "OR i.file_id >= (SELECT next_file_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1) "
            "GROUP BY file_id ORDER BY file_id"
        ).format(sql.Identifier(name), sql.Literal(table_id))
        rows = cursor.execute(query).fetchall() if table_id in names else []
        for file_id, count in rows:
            yield Finding(
                "inlined rows",
                ok=False,
                detail=f"{names[table_id]}: {name} deletes "
                f"{format_count(count, 'row')} of data file {file_id}, which isn't its",
                advice=f"put its file_id right; if they delete nothing: DELETE FROM {name} WHERE file_id = {file_id};",
            )


def _find_low_statistics(cursor: Transaction, names: Mapping[int, str]) -> Iterator[Finding]:
    for needed in _read_needed_stats(cursor):
        name = names.get(needed.table_id)
        if name is not None:
            yield from _find_low_row_ids(name, needed)
            yield from _find_low_count(name, needed)


def _find_low_count(name: str, needed: _NeededStats) -> Iterator[Finding]:
    """Find a count below that of the live rows: DuckDB 2.0 then takes a table for empty, and filters lose rows."""
    recorded = needed.recorded_records
    if recorded is not None and recorded < needed.live:
        yield Finding(
            "statistics",
            ok=False,
            detail=f"{name}: ducklake_table_stats counts "
            f"{format_count(recorded, 'row')}, but it has at least {needed.live}",
            advice="DuckDB 2.0 would lose rows in filters after it deletes a whole file: UPDATE ducklake_table_stats "
            f"SET record_count = {needed.records} WHERE table_id = {needed.table_id};",
        )


def _find_low_row_ids(name: str, needed: _NeededStats) -> Iterator[Finding]:
    recorded = needed.recorded_next_row_id
    if needed.next_row_id and (recorded is None or recorded < needed.next_row_id):
        if recorded is None:
            yield Finding(
                "statistics",
                ok=False,
                detail=f"{name}: has rows up to row id {needed.next_row_id - 1}, but no row in ducklake_table_stats",
                advice="the next insert would give their row ids again: INSERT INTO ducklake_table_stats VALUES "
                f"({needed.table_id}, {needed.records}, {needed.next_row_id}, {needed.size});",
            )
        else:
            yield Finding(
                "statistics",
                ok=False,
                detail=f"{name}: its next row id is {recorded}, but {needed.next_row_id - 1} is in use",
                advice="the next insert would give row ids again: UPDATE ducklake_table_stats "
                f"SET next_row_id = {needed.next_row_id} WHERE table_id = {needed.table_id};",
            )


def _read_needed_stats(cursor: Transaction) -> Iterator[_NeededStats]:
    inlined, deleted = _read_inlined_counts(cursor), _read_deleted_counts(cursor)
    for table_id, records, next_row_id, size, recorded, recorded_records, live in cursor.execute(
        _SQL.row_ids
    ).fetchall():
        count, following, live_inlined = inlined.get(table_id, (0, 0, 0))
        yield _NeededStats(
            table_id,
            records + count,
            max(next_row_id, following),
            size,
            recorded,
            recorded_records,
            live + live_inlined - deleted.get(table_id, 0),
        )


def _read_deleted_counts(cursor: Transaction) -> dict[int, int]:
    """Read the number of inlined deletes by table."""
    return {
        table_id: cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))).fetchall()[0][0]
        for table_id, name in cursor.execute(_SQL.inlined_delete_tables).fetchall()
    }


def _read_inlined_counts(cursor: Transaction) -> dict[int, tuple[int, int, int]]:
    """Read (number of inlined rows, row id after the highest, number of live ones) by table."""
    found: dict[int, tuple[int, int, int]] = {}
    for table_id, name in cursor.execute(_SQL.inlined_tables).fetchall():
        query = sql.SQL(
            "SELECT count(*), coalesce(max(_dl_row_id) + 1, 0), count(*) FILTER (WHERE _dl_end IS NULL) "
            f"FROM {{}} {INLINED_ALIAS}"
        ).format(sql.Identifier(name))
        ((count, following, live),) = cursor.execute(query).fetchall()
        before = found.get(table_id, (0, 0, 0))
        found[table_id] = (before[0] + count, max(before[1], following), before[2] + live)
    return found


class _InlinedDeletes(NamedTuple):
    """The table of inlined deletes of a table."""

    table: str
    table_id: int
    name: str


def find_lost_deletes(cursor: Transaction, names: Mapping[int, str]) -> Iterator[Finding]:
    """Find rows that DuckDB deleted and that are back. names: of the live tables by id."""
    for table_id, name in cursor.execute(_SQL.inlined_delete_tables).fetchall():
        if table_id in names:
            inlined = _InlinedDeletes(names[table_id], table_id, name)
            yield from _find_deletes_of_replaced_files(cursor, inlined)
            yield from _find_deletes_missed_by_rewrites(cursor, inlined)


def _find_deletes_of_replaced_files(cursor: Transaction, inlined: _InlinedDeletes) -> Iterator[Finding]:
    """Find deletes from files that were merged or rewritten before, or merged later without their deletes."""
    query = sql.SQL(_SQL.deletes_from_replaced_files).format(sql.Identifier(inlined.name))
    for file_id, at, start, positions in cursor.execute(query, {"table_id": inlined.table_id}).fetchall():
        yield Finding(
            "deletes",
            ok=False,
            detail=f"{inlined.table}: {format_count(len(positions), 'row')} "
            f"that snapshot {at} deleted from data file {file_id} are "
            "back: DuckDB merged or rewrote the file beside it",
            advice=f"delete them again{_advise_deleting_again(inlined.table, start, positions)}; "
            "then forget what has no effect: "
            f"DELETE FROM {inlined.name} WHERE file_id = {file_id} AND begin_snapshot = {at};",
        )


def _find_deletes_missed_by_rewrites(cursor: Transaction, inlined: _InlinedDeletes) -> Iterator[Finding]:
    """Find deletes that a rewrite missed: its new files have more rows than were left."""
    for at, count in _find_returned_rows(cursor, inlined):
        query = sql.SQL(_SQL.deletes_before_rewrite).format(sql.Identifier(inlined.name))
        for file_id, start, positions in cursor.execute(query, {"table_id": inlined.table_id, "at": at}).fetchall():
            yield Finding(
                "deletes",
                ok=False,
                detail=f"{inlined.table}: {format_count(count, 'row')} "
                f"that had been deleted are back since DuckDB rewrote data file "
                f"{file_id} in snapshot {at}: they are among the last {len(positions)} that were deleted from it",
                advice=f"delete them again{_advise_deleting_again(inlined.table, start, positions)}; "
                f"then expire the snapshots before {at} in DuckDB: "
                "CALL ducklake_expire_snapshots('lake', older_than => …);",
            )


def _find_returned_rows(cursor: Transaction, inlined: _InlinedDeletes) -> Sequence[Row]:
    """Yield (snapshot, rows that are back) of each rewrite whose files are still known."""
    if cursor.execute("SELECT to_regproc('duckicelake_returned_rows')").fetchall() == [(None,)]:
        return []
    return cursor.execute(_SQL.returned_rows, {"table_id": inlined.table_id}).fetchall()


def _advise_deleting_again(table: str, start: int | None, positions: Sequence[int]) -> str:
    """Return advice on deleting the rows again. start: the row id of the file's first row, if known."""
    if start is None or len(positions) > _MAX_ROW_IDS:
        return ""
    ids = ", ".join(str(start + position) for position in positions)
    return f" in DuckDB (DELETE FROM {table} WHERE rowid IN ({ids}) AND filename LIKE '%.parquet')"
