"""Rows that DuckDB keeps in Postgres, counted by the snapshot that added or deleted them (`ducklake-facts.md` §6)."""

from collections.abc import Iterable, Sequence

from psycopg import sql

from duckicelake.lake.chronicle.followed import InlinedChange
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.queries import queries

_SQL = queries("chronicle")
_ADDED = "SELECT begin_snapshot, count(*) FROM {} WHERE begin_snapshot = ANY(%(at)s) GROUP BY 1"
_REMOVED = "SELECT end_snapshot, count(*) FROM {} WHERE end_snapshot = ANY(%(at)s) GROUP BY 1"
_DELETED = "SELECT begin_snapshot, file_id, count(*) FROM {} WHERE begin_snapshot <= %(upto)s GROUP BY 1, 2"


def inlined_changes(cursor: Transaction, asked: Iterable[tuple[int, int]]) -> list[InlinedChange]:
    """What became of rows in Postgres, for each (snapshot, table); also earlier deletes of rows of files.

    Rows that have been flushed since are no longer there.
    """
    by_table: dict[int, list[int]] = {}
    for at, table_id in asked:
        by_table.setdefault(table_id, []).append(at)
    if not by_table:
        return []
    found = cursor.execute(_SQL.inlined_tables, {"ids": sorted(by_table)}).fetchall()
    return [
        change
        for table_id, name, has_rows in found
        for change in (_rows if has_rows else _deletes)(cursor, table_id, name, by_table[table_id])
    ]


def _rows(cursor: Transaction, table_id: int, name: str, at: Sequence[int]) -> list[InlinedChange]:
    table, parameters = sql.Identifier(name), {"at": list(at)}
    added = cursor.execute(sql.SQL(_ADDED).format(table), parameters).fetchall()
    removed = cursor.execute(sql.SQL(_REMOVED).format(table), parameters).fetchall()
    return [
        *(InlinedChange(snapshot, table_id, count, 0) for snapshot, count in added),
        *(InlinedChange(snapshot, table_id, 0, count) for snapshot, count in removed),
    ]


def _deletes(cursor: Transaction, table_id: int, name: str, at: Sequence[int]) -> list[InlinedChange]:
    rows = cursor.execute(sql.SQL(_DELETED).format(sql.Identifier(name)), {"upto": max(at)}).fetchall()
    return [InlinedChange(snapshot, table_id, 0, count, file_id) for snapshot, file_id, count in rows]
