"""Explain errors that DuckDB had with the tables of a query."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Final

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError, UnavailableError, UnsupportedError
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.lake.ducklake import inlined_rows, native
from duckicelake.lake.model import find_children
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("query", "tables")
_FILE_NAME: Final = re.compile(r"[^\s'\"]*/[^'\"\n]*?\.(?:parquet|avro|puffin|json)")
_UNREADABLE: Final = re.compile("Attempted to access index 0 within vector of size 0|Current transaction is aborted")
"""Errors of DuckDB 1.5.5 at inlined rows that it can't read: its own, and the next one where that is lost."""
_UNREADABLE_IN_STRUCTS: Final = re.compile("date|time|uuid|float")
"""Beginnings of DuckLake's types whose values in structs are written so, floats only as NaN and infinities."""
_Place = tuple[Namespace, str]


@contextmanager
def explain_errors(services: Services, tables: Mapping[int, _Place], *, is_restricted: bool) -> Iterator[None]:
    """Name what DuckDB can't read of tables; take the names of files out of errors if policies hide a part of one.

    A file's name may have values of hidden rows in it, by which the table is divided. tables: by their ids; those that
    only a view shows to the caller aren't named. Raises UnsupportedError for what no second attempt reads.
    """
    try:
        yield
    except (InvalidRequestError, UnavailableError) as error:
        columns = _find_unreadable(services, tables) if _UNREADABLE.search(str(error)) else []
        if columns:
            raise _build_refusal(services, columns) from None
        if is_restricted:
            raise type(error)(_FILE_NAME.sub("…", str(error))) from None
        raise


def _build_refusal(services: Services, columns: list[tuple[_Place, str]]) -> UnsupportedError:
    may_query = services.caller.principal.may_query
    shown = [(format_full_name(*place), column) for place, column in columns if may_query(*place)]
    names = ", ".join(f"{column} of {table}" for table, column in shown) or "a table behind a view"
    flushes = " and ".join(f"`duckicelake flush {table}`" for table in dict.fromkeys(table for table, _ in shown))
    advice = f"put the rows into files by {flushes or 'a flush of it'}"
    return UnsupportedError("queries", f"DuckDB can't read what it inlined for {names}: {advice}")


def _find_unreadable(services: Services, tables: Mapping[int, _Place]) -> list[tuple[_Place, str]]:
    """Find the columns of which DuckDB may have inlined what it can't read, with their tables' names."""
    with services.database.reading() as cursor:
        rows = cursor.execute(_SQL.fields, {"table_ids": [*tables]}).fetchall()
        fields = {(row[0], row[1]): row[2:] for row in rows}
        found = (key for key in fields if _is_unreadable(fields, key))
        columns = defaultdict[int, set[int]](set)
        for table_id, column_id in (_find_column(fields, key) for key in found):
            columns[table_id].add(column_id)
        inlined = {table_id: _find_inlined(cursor, table_id, wanted) for table_id, wanted in columns.items()}
    return [(tables[table_id], fields[table_id, id_][1]) for table_id, ids in inlined.items() for id_ in sorted(ids)]


def _find_inlined(cursor: Transaction, table_id: int, column_ids: AbstractSet[int]) -> set[int]:
    """Find those of a table's columns of which inlined rows have values."""
    found = set[int]()
    for name, at in inlined_rows.read_inlined_tables(cursor, table_id).items():
        columns = () if at is None else find_children(native.read_columns(cursor, table_id, at), None)
        wanted = [column for column in columns if column.column_id in column_ids - found]
        found |= {column.column_id for column in inlined_rows.find_filled_columns(cursor, name, wanted)}
    return found


_Fields = Mapping[tuple[int, int], Any]


def _is_unreadable(fields: _Fields, key: tuple[int, int]) -> bool:
    parent, _, kind = fields[key]
    around = None if parent is None else fields[key[0], parent][2]
    is_in_struct = around == "struct" and _UNREADABLE_IN_STRUCTS.match(kind) is not None
    return is_in_struct or (around == "list" and kind == "json")


def _find_column(fields: _Fields, key: tuple[int, int]) -> tuple[int, int]:
    """Find the column that a field is in."""
    while (parent := fields[key][0]) is not None:
        key = (key[0], parent)
    return key
