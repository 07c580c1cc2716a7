"""Reads of the rows and deletes that DuckDB keeps in Postgres itself, in tables of its own (`ducklake-facts.md` §6).

Flushes empty these tables and DuckDB makes and drops them, at any time. One that is registered and isn't there is
damage, and so is a row that has gone, unless it was there a moment ago: the caller looks again.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import IO, Final

from psycopg import Cursor, sql
from psycopg.errors import UndefinedColumn, UndefinedTable

from duckicelake.errors import DamagedTable
from duckicelake.lake.database import Row
from duckicelake.lake.model import InlinedDelete, InlinedKey, InlinedRow, folded
from duckicelake.lake.queries import queries

_SQL = queries("inlined")
_FORMS: Final = {
    (False, False): "i.{}::text",
    (False, True): "i.{}",
    (True, False): "encode(convert_to(i.{}::text, 'UTF8'), 'hex')",
    (True, True): "encode(i.{}, 'hex')",
}
"""How a value is read, by whether it is wanted in hex and whether it is bytes."""


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
            "SELECT {} FROM unnest({}::bigint[], {}::bigint[]) WITH ORDINALITY AS k (begin, row, ordinal)"
            " JOIN {} AS i ON i.begin_snapshot = k.begin AND i.row_id = k.row ORDER BY k.ordinal"
        ).format(
            sql.SQL(", ").join(_as_text(cursor, name, columns)),
            sql.Literal([key.begin_snapshot for key in keys]),  # no parameters: the columns' names may hold a `%`
            sql.Literal([key.row_id for key in keys]),
            sql.Identifier(name),
        )
        found = [tuple(row) for row in cursor.execute(query).fetchall()]
    if len(found) != len(keys):
        raise DamagedTable(f"{name} has {len(found)} of the {len(keys)} inlined rows that it had, or some twice")
    return found


def copy(
    cursor: Cursor[Row], name: str, columns: Sequence[str], in_bytes: AbstractSet[str], upto: int, to: IO[bytes]
) -> tuple[int, int]:
    """Write row id, begin, end and values of a table's rows that begin up to a snapshot, as CSV; DamagedTable.

    Values are texts as in `values`, of the columns `in_bytes` their bytes in hex. Returns how many rows there are, and
    the bytes of the longest.
    """
    with _reading(name):
        query = sql.SQL(
            "COPY (SELECT i.row_id, i.begin_snapshot, i.end_snapshot, {} FROM {} AS i WHERE i.begin_snapshot <= {}) "
            "TO STDOUT (FORMAT csv)"
        ).format(sql.SQL(", ").join(_as_text(cursor, name, columns, in_bytes)), sql.Identifier(name), sql.Literal(upto))
        count, longest = 0, 0
        with cursor.copy(query) as rows_of_text:
            for row in rows_of_text:
                to.write(row)
                count, longest = count + 1, max(longest, len(row))
    return count, longest


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


def _as_text(
    cursor: Cursor[Row], name: str, columns: Sequence[str], in_hex: AbstractSet[str] = frozenset()
) -> list[sql.Composable]:
    """DuckDB leaves names in capitals unquoted, which Postgres lowers."""
    types = cursor.execute(_SQL.column_types, {"name": name}).fetchall()
    own = {folded(column): (column, type_) for column, type_ in types}
    for column in columns:
        if folded(column) not in own:
            raise DamagedTable(f"{name}, a table of its inlined rows, has no column {column}")
    return [
        sql.SQL(_FORMS[column in in_hex, own[folded(column)][1] == "bytea"]).format(
            sql.Identifier(own[folded(column)][0])
        )
        for column in columns
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
