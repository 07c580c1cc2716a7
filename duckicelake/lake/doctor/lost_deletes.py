"""Inlined deletes without effect: DuckDB merged or rewrote their files beside them, and the rows are back.

Triggers of migration 0035 refuse that. A lake may have it from before, or from while the triggers were missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from psycopg import sql

from duckicelake.lake.doctor.findings import Finding
from duckicelake.lake.postgres.database import Row, Transaction
from duckicelake.lake.postgres.queries import queries

_SQL = queries("damage")
_MAX_ROW_IDS = 100


class _InlinedDeletes(NamedTuple):
    """The table of inlined deletes of a table."""

    table: str
    table_id: int
    name: str


def lost_deletes(cursor: Transaction, names: Mapping[int, str]) -> Iterator[Finding]:
    """Rows that DuckDB deleted and that are back. names: of the live tables by id."""
    for table_id, name in cursor.execute(_SQL.inlined_delete_tables).fetchall():
        if table_id in names:
            inlined = _InlinedDeletes(names[table_id], table_id, name)
            yield from _from_replaced_files(cursor, inlined)
            yield from _beside_rewrites(cursor, inlined)


def _from_replaced_files(cursor: Transaction, inlined: _InlinedDeletes) -> Iterator[Finding]:
    """Deletes from files that had been merged or rewritten already, or were merged later as if they had no deletes."""
    query = sql.SQL(_SQL.deletes_from_replaced_files).format(sql.Identifier(inlined.name))
    for file_id, at, start, positions in cursor.execute(query, {"table_id": inlined.table_id}).fetchall():
        yield Finding(
            "deletes",
            ok=False,
            detail=f"{inlined.table}: {len(positions)} rows that snapshot {at} deleted from data file {file_id} are "
            "back: DuckDB merged or rewrote the file beside it",
            advice=f"delete them again{_again(inlined.table, start, positions)}; then forget what has no effect: "
            f"DELETE FROM {inlined.name} WHERE file_id = {file_id} AND begin_snapshot = {at};",
        )


def _beside_rewrites(cursor: Transaction, inlined: _InlinedDeletes) -> Iterator[Finding]:
    """Deletes that a rewrite didn't see: its new files have more rows than were left."""
    for at, count in _returned(cursor, inlined):
        query = sql.SQL(_SQL.deletes_before_rewrite).format(sql.Identifier(inlined.name))
        for file_id, start, positions in cursor.execute(query, {"table_id": inlined.table_id, "at": at}).fetchall():
            yield Finding(
                "deletes",
                ok=False,
                detail=f"{inlined.table}: {count} rows that had been deleted are back since DuckDB rewrote data file "
                f"{file_id} in snapshot {at}: they are among the last {len(positions)} that were deleted from it",
                advice=f"delete them again{_again(inlined.table, start, positions)}; then expire the snapshots before "
                f"{at} in DuckDB: CALL ducklake_expire_snapshots('lake', older_than => …);",
            )


def _returned(cursor: Transaction, inlined: _InlinedDeletes) -> Sequence[Row]:
    """(Snapshot, rows that are back) of each rewrite whose files are still known."""
    if cursor.execute("SELECT to_regproc('duckicelake_returned_rows')").fetchall() == [(None,)]:
        return []
    return cursor.execute(_SQL.returned_rows, {"table_id": inlined.table_id}).fetchall()


def _again(table: str, start: int | None, positions: Sequence[int]) -> str:
    """How to; start: the row id of the file's first row if it is known."""
    if start is None or len(positions) > _MAX_ROW_IDS:
        return ""
    ids = ", ".join(str(start + position) for position in positions)
    return f" in DuckDB (DELETE FROM {table} WHERE rowid IN ({ids}) AND filename LIKE '%.parquet')"
