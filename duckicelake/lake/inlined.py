"""Reads of the rows and deletes that DuckDB keeps in Postgres itself, in tables of its own (`ducklake-facts.md` §6).

DuckDB makes and drops these tables at run time. One that is registered and isn't there is damage, unless it was there a
moment ago: the caller looks again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg import Cursor, sql
from psycopg.errors import UndefinedColumn, UndefinedTable

from duckicelake.errors import DamagedTable
from duckicelake.lake.database import Row
from duckicelake.lake.model import InlinedDelete, InlinedKey, InlinedRow, folded
from duckicelake.lake.queries import queries

_SQL = queries("inlined")


def tables(cursor: Cursor[Row], table_id: int) -> dict[str, int | None]:
    """The tables of inlined rows, each with the snapshot whose columns it has; None if none is known."""
    return dict(cursor.execute(_SQL.tables, {"table_id": table_id}).fetchall())


def columns_at(cursor: Cursor[Row], table_id: int, name: str) -> int:
    """The snapshot whose columns a table of inlined rows has; DamagedTable if nothing tells."""
    at = tables(cursor, table_id).get(name)
    if at is None:
        raise DamagedTable(f"no row of ducklake_schema_versions tells which columns {name} has")
    return at


def rows(cursor: Cursor[Row], table_id: int, after: int, upto: int) -> tuple[InlinedRow, ...]:
    """All inlined rows that are visible somewhere in (after, upto]; DamagedTable."""
    found: list[InlinedRow] = []
    for name in tables(cursor, table_id):
        query = sql.SQL(
            "SELECT begin_snapshot, row_id, end_snapshot FROM {} "
            "WHERE begin_snapshot <= %(upto)s AND (end_snapshot IS NULL OR end_snapshot > %(after)s)"
        ).format(sql.Identifier(name))
        with _reading(name):
            visible = cursor.execute(query, {"after": after, "upto": upto}).fetchall()
        found += [InlinedRow(InlinedKey(name, begin, row), end) for begin, row, end in visible]
    return tuple(found)


def values(
    cursor: Cursor[Row], keys: Sequence[InlinedKey], columns: Sequence[str]
) -> list[tuple[str | bytes | None, ...]]:
    """The values of inlined rows of one table in the order of `keys`, as texts (bytes where Postgres holds bytea).

    DamagedTable if a row or column isn't there.
    """
    (name,) = {key.inlined_table for key in keys}
    with _reading(name):
        query = sql.SQL(
            "SELECT {} FROM unnest(%(begins)s::bigint[], %(rows)s::bigint[]) WITH ORDINALITY AS k (begin, row, ordinal)"
            " JOIN {} AS i ON i.begin_snapshot = k.begin AND i.row_id = k.row ORDER BY k.ordinal"
        ).format(sql.SQL(", ").join(_as_text(cursor, name, columns)), sql.Identifier(name))
        parameters = {"begins": [key.begin_snapshot for key in keys], "rows": [key.row_id for key in keys]}
        found = [tuple(row) for row in cursor.execute(query, parameters).fetchall()]
    if len(found) != len(keys):
        raise DamagedTable(f"{name} has {len(found)} of the {len(keys)} inlined rows that it had, or some twice")
    return found


def deletes(cursor: Cursor[Row], table_id: int, upto: int) -> tuple[InlinedDelete, ...]:
    """All inlined deletes of data files, up to a snapshot; DamagedTable."""
    name = f"ducklake_inlined_delete_{table_id}"
    exists = cursor.execute(_SQL.delete_table, {"name": name}).fetchone()
    if not exists or not exists[0]:
        return ()
    query = sql.SQL("SELECT file_id, row_id, begin_snapshot FROM {} WHERE begin_snapshot <= %(upto)s ORDER BY 1, 2")
    with _reading(name):
        found = cursor.execute(query.format(sql.Identifier(name)), {"upto": upto}).fetchall()
    return tuple(InlinedDelete(*row) for row in found)


def _as_text(cursor: Cursor[Row], name: str, columns: Sequence[str]) -> list[sql.Composable]:
    """DuckDB leaves names in capitals unquoted, which Postgres lowers."""
    types = cursor.execute(_SQL.column_types, {"name": name}).fetchall()
    own = {folded(column): (column, type_) for column, type_ in types}
    for column in columns:
        if folded(column) not in own:
            raise DamagedTable(f"{name}, a table of its inlined rows, has no column {column}")
    return [
        sql.SQL("i.{}" if type_ == "bytea" else "i.{}::text").format(sql.Identifier(column))
        for column, type_ in (own[folded(name)] for name in columns)
    ]


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Say of which table Postgres complains."""
    try:
        yield
    except UndefinedTable as error:
        raise DamagedTable(f"{name}, a table of its inlined rows, isn't in Postgres") from error
    except UndefinedColumn as error:
        raise DamagedTable(f"{name}, a table of its inlined rows: {error.diag.message_primary}") from error
