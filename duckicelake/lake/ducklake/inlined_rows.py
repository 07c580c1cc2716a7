"""Read the rows and deletes that DuckDB keeps in Postgres (`ducklake-facts.md` §6)."""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Final, NamedTuple

from psycopg import Cursor, sql
from psycopg.errors import AmbiguousColumn, InvalidColumnReference, UndefinedColumn, UndefinedTable

from duckicelake.errors import DamagedTableError, UnsupportedError
from duckicelake.lake.formats import INLINED_ALIAS, NEW_LAKE_FORMAT, has_system_columns
from duckicelake.lake.model import Column, InlinedDelete, InlinedKey, InlinedRow, fold_case
from duckicelake.lake.types import select_types
from duckicelake.postgres.pipeline import BatchedQuery
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "inlined")
_VALUE_FORMS: Final = {
    (False, False): "i.{}",
    (False, True): "i.{}",
    (True, False): "encode(convert_to(i.{}::text, 'UTF8'), 'hex')",
    (True, True): "encode(i.{}, 'hex')",
}
"""Formats for reading a value, by whether it is wanted in hex and whether it is bytes."""
_ROWS_QUERY: Final = sql.SQL(
    f"SELECT _dl_begin, _dl_row_id, _dl_end FROM {{}} {INLINED_ALIAS}"
    " WHERE _dl_begin <= %(upto)s AND (_dl_end IS NULL OR _dl_end > %(after)s)"
)
_NEW_ROWS_QUERY: Final = sql.SQL(
    "SELECT count(*) FILTER (WHERE _dl_begin <= %(after)s AND (_dl_end IS NULL OR _dl_end > %(after)s)),"
    " array_agg(ARRAY[_dl_begin, _dl_row_id, _dl_end]) FILTER (WHERE _dl_begin > %(after)s)"
    f" FROM {{}} {INLINED_ALIAS} WHERE _dl_begin <= %(upto)s"
)
_CHANGED_QUERY: Final = sql.SQL(
    f"SELECT EXISTS (SELECT FROM {{}} {INLINED_ALIAS}"
    " WHERE (_dl_begin = %(at)s OR _dl_end = %(at)s) AND _dl_begin IS DISTINCT FROM _dl_end)"
)
_HAS_ROWS: Final = sql.SQL(
    f"SELECT EXISTS (SELECT FROM {{}} {INLINED_ALIAS}"
    " WHERE _dl_begin <= %(at)s AND (_dl_end IS NULL OR _dl_end > %(at)s))"
)
_HEX_TYPES: Final = select_types(lambda row: row.inlined == "bytea")


class CopySize(NamedTuple):
    """The number of copied rows, and the bytes of the longest."""

    rows: int
    longest: int


def read_inlined_tables(cursor: Cursor[Row], table_id: int) -> dict[str, int | None]:
    """Read the tables of inlined rows, each with the snapshot whose columns it has; None if unknown."""
    return dict(cursor.execute(_SQL.tables, {"table_id": table_id}).fetchall())


def has_inlined_rows(cursor: Cursor[Row], table_id: int, at: int) -> bool:
    """Return whether a table has inlined rows as of a snapshot."""
    for name in read_inlined_tables(cursor, table_id):
        with translate_damage(name):
            (found,) = cursor.execute(_HAS_ROWS.format(sql.Identifier(name)), {"at": at}).fetchone() or (False,)
        if found:
            return True
    return False


def find_columns_snapshot(cursor: Cursor[Row], table_id: int, name: str) -> int:
    """Find the snapshot whose columns a table of inlined rows has; DamagedTableError: there is none."""
    at = read_inlined_tables(cursor, table_id).get(name)
    if at is None:
        raise DamagedTableError(f"ducklake_schema_versions has no row for the columns of {name}")
    return at


def build_rows_query(names: Sequence[str], after: int, upto: int) -> list[BatchedQuery]:
    """Build the queries for all rows of these tables that are visible somewhere in (after, upto]."""
    return [BatchedQuery(_ROWS_QUERY.format(sql.Identifier(name)), {"after": after, "upto": upto}) for name in names]


def build_new_rows_query(names: Sequence[str], after: int, upto: int) -> list[BatchedQuery]:
    """Build the queries for rows that begin in (after, upto], and for the number visible at `after`."""
    return [
        BatchedQuery(_NEW_ROWS_QUERY.format(sql.Identifier(name)), {"after": after, "upto": upto}) for name in names
    ]


def has_changed_rows(cursor: Cursor[Row], names: Sequence[str], at: int) -> bool:
    """Return whether rows of these tables begin or end at a snapshot, without those that do both there."""
    with translate_damage(*names):
        return any(
            cursor.execute(_CHANGED_QUERY.format(sql.Identifier(name)), {"at": at}).fetchone() == (True,)
            for name in names
        )


def parse_inlined_rows(
    answers: Mapping[str, Sequence[Row]], *, counted: bool
) -> tuple[tuple[InlinedRow, ...], int | None]:
    """Parse the answers of tables, by name; return the rows, and the earlier number if new rows were asked for."""
    before = sum(count for [(count, _)] in answers.values()) if counted else None
    found = {name: new or () for name, [(_, new)] in answers.items()} if counted else answers
    rows = (InlinedRow(InlinedKey(name, begin, row), end) for name, keys in found.items() for begin, row, end in keys)
    return tuple(rows), before


def copy_table(cursor: Cursor[Row], name: str, columns: Sequence[Column], upto: int, to: IO[bytes]) -> CopySize:
    """Write row id, begin, end and values of a table's rows that begin up to a snapshot, as CSV; DamagedTableError.

    columns: top-level ones. Values are DuckDB's texts. Texts and blobs are hex, since Postgres holds them as bytes.
    """
    rows = sql.SQL(f"FROM {{}} {INLINED_ALIAS} WHERE _dl_begin <= {{}}").format(sql.Identifier(name), sql.Literal(upto))
    return _copy_query(cursor, name, columns, rows, to)


def copy_keyed_rows(
    cursor: Cursor[Row], keys: Sequence[InlinedKey], columns: Sequence[Column], to: IO[bytes]
) -> CopySize:
    """Write rows of one table in the order of their keys, as `copy_table` does; DamagedTableError: one is missing.

    Postgres sends all rows of these snapshots: a join with the keys took minutes where it thought that there were none.
    """
    (name,) = {key.inlined_table for key in keys}
    begins = [key.begin_snapshot for key in keys]
    wanted = {b"%d,%d" % (key.row_id, key.begin_snapshot) for key in keys}
    rows = sql.SQL(
        f"FROM {{}} {INLINED_ALIAS} WHERE _dl_begin BETWEEN {{}} AND {{}} ORDER BY _dl_begin, _dl_row_id"
    ).format(sql.Identifier(name), sql.Literal(min(begins)), sql.Literal(max(begins)))
    copied = _copy_query(cursor, name, columns, rows, to, wanted)
    if copied.rows != len(keys):
        raise DamagedTableError(f"{name} has {copied.rows} of the {len(keys)} inlined rows that it had, or some twice")
    return copied


def _copy_query(
    cursor: Cursor[Row],
    name: str,
    columns: Sequence[Column],
    rows: sql.Composable,
    to: IO[bytes],
    wanted: Container[bytes] | None = None,
) -> CopySize:
    """Copy rows. wanted: those alone that begin with one of these row ids and snapshots; None: all."""
    with translate_damage(name):
        query = sql.SQL("COPY (SELECT _dl_row_id, _dl_begin, _dl_end, {} {}) TO STDOUT (FORMAT csv)")
        values = sql.SQL(", ").join(_build_value_list(cursor, name, columns))
        count, longest = 0, 0
        with cursor.copy(query.format(values, rows)) as copied:
            for row in map(bytes, copied):
                if wanted is None or b",".join(row.split(b",", 2)[:2]) in wanted:
                    to.write(row)
                    count, longest = count + 1, max(longest, len(row))
    return CopySize(count, longest)


def find_filled_columns(cursor: Cursor[Row], name: str, columns: Sequence[Column]) -> list[Column]:
    """Find the top-level columns of which a table of inlined rows has a value. Raises DamagedTableError."""
    if not columns:
        return []
    has_value = sql.SQL(f"EXISTS (SELECT FROM {{}} {INLINED_ALIAS} WHERE {{}} IS NOT NULL)")
    with translate_damage(name):
        values = _build_value_list(cursor, name, columns)
        query = sql.SQL(", ").join(has_value.format(sql.Identifier(name), value) for value in values)
        (found,) = cursor.execute(sql.SQL("SELECT {}").format(query)).fetchall()
    return [column for column, is_filled in zip(columns, found, strict=True) if is_filled]


def read_inlined_deletes(
    cursor: Cursor[Row], table_id: int, upto: int, after: int = -1, new_files: tuple[int, int] = (0, -1)
) -> tuple[InlinedDelete, ...]:
    """Read the inlined deletes of data files, of the snapshots in (after, upto]. Raises DamagedTableError.

    new_files: the first and last id of files whose older deletes are read too. A flush also takes the rows that ended
    while it wrote its files.
    """
    name = f"ducklake_inlined_delete_{table_id}"
    exists = cursor.execute(_SQL.delete_table, {"name": name}).fetchone()
    if not exists or not exists[0]:
        return ()
    wanted = sql.SQL(
        "SELECT file_id, row_id, begin_snapshot FROM {} WHERE begin_snapshot <= %(upto)s"
        " AND (begin_snapshot > %(after)s OR file_id BETWEEN %(first)s AND %(last)s) ORDER BY 1, 2"
    )
    first, last = new_files
    parameters = {"after": after, "upto": upto, "first": first, "last": last}
    with translate_damage(name):
        found = cursor.execute(wanted.format(sql.Identifier(name)), parameters).fetchall()
    return tuple(InlinedDelete(*row) for row in found)


def _build_value_list(cursor: Cursor[Row], name: str, columns: Sequence[Column]) -> list[sql.Composable]:
    """List the value columns for SQL. DuckDB leaves names in capitals unquoted, and Postgres lowers these."""
    types = cursor.execute(_SQL.column_types, {"name": name}).fetchall()
    check_intact([] if has_system_columns([column for column, _ in types]) else [name])
    own = {fold_case(column): (column, type_) for column, type_ in types}
    for column in columns:
        if fold_case(column.column_name) not in own:
            raise DamagedTableError(f"{name}, a table of its inlined rows, has no column {column.column_name}")
    found = [(own[fold_case(column.column_name)], column.column_type in _HEX_TYPES) for column in columns]
    return [sql.SQL(_VALUE_FORMS[in_hex, type_ == "bytea"]).format(sql.Identifier(of)) for (of, type_), in_hex in found]


def check_decodable(name: str, columns: Sequence[Column]) -> None:
    """Raise UnsupportedError if a table's inlined rows may hold values of an unknown encoding.

    columns: all, nested ones too. DuckDB 2.0 inlines variants as bytes; DuckDB 1.5 inlines none.
    """
    variants = [column.column_name for column in columns if column.column_type == "variant"]
    if variants:
        raise UnsupportedError(
            "ducklake-types",
            f"{name}, a table of inlined rows, holds values of {', '.join(variants)}, of type VARIANT, which this "
            "server reads in files alone: run CALL ducklake_flush_inlined_data('<lake>') in DuckDB",
        )


def check_intact(damaged: Sequence[str]) -> None:
    """Raise DamagedTableError if tables of inlined rows lack the first three columns, which are read by place."""
    if damaged:
        raise DamagedTableError(
            f"{' and '.join(damaged)}, of its inlined rows, doesn't begin with the columns "
            f"{', '.join(NEW_LAKE_FORMAT.system_columns)}, or these with _ducklake_ before them"
        )


@contextmanager
def translate_damage(*names: str) -> Iterator[None]:
    """Raise DamagedTableError with the names of the tables that Postgres complains about."""
    name = " or ".join(names)
    try:
        yield
    except UndefinedTable as error:
        raise DamagedTableError(f"{name}, a table of its inlined rows, isn't in Postgres") from error
    except (AmbiguousColumn, InvalidColumnReference, UndefinedColumn) as error:
        raise DamagedTableError(f"{name}, a table of its inlined rows: {error.diag.message_primary}") from error
