"""Find the positions of rows in data files for which a condition holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from duckicelake.parquet.equality import DataRows, KeyColumn, build_values, connect_confined, translate_read_errors
from duckicelake.parquet.local_copies import translate_disk_errors
from duckicelake.parquet.schema import read_fields


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A filter: columns, and an SQL condition on their values, which are called `v0`, `v1` and so on."""

    keys: tuple[KeyColumn, ...]
    condition: str
    parameters: Mapping[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class FilteredRows:
    """The positions by file, without files that have none, and the number of different values of the columns there.

    Both include deleted rows.
    """

    positions: Mapping[int, frozenset[int]]
    values: int


def find_rows(matching: RowFilter, files: Sequence[DataRows]) -> FilteredRows:
    """Find the positions at which the condition is true. Each file is read once.

    InvalidRequestError names the file: it isn't Parquet, or has a column of another type.
    """
    positions: dict[int, frozenset[int]] = {}
    with connect_confined([file.path for file in files]) as connection, translate_disk_errors():
        _make_tables(connection, matching.keys)
        for file in files:
            with translate_read_errors(file.location, file.path):
                found = _filter_file(connection, matching, file)
            if found:
                positions[file.file_id] = found
        ((values,),) = connection.execute("SELECT count(*) FROM (SELECT DISTINCT * FROM found)").fetchall()
    return FilteredRows(positions, int(values))


def _make_tables(connection: duckdb.DuckDBPyConnection, keys: Sequence[KeyColumn]) -> None:
    columns = ", ".join(
        f"{name} {type_}"
        for number, key in enumerate(keys)
        for name, type_ in zip(_name_value_columns(number), key.types, strict=False)
    )
    connection.execute(f"CREATE TABLE found ({columns}); CREATE TABLE matched (position BIGINT, {columns})")


def _filter_file(connection: duckdb.DuckDBPyConnection, matching: RowFilter, file: DataRows) -> frozenset[int]:
    fields = read_fields(connection, file.path)
    values, texts = build_values(matching.keys, file, fields)
    parts = ", ".join(
        f"{part} AS {name}"
        for number, (key, value) in enumerate(zip(matching.keys, values, strict=True))
        for name, part in zip(_name_value_columns(number), key.list_compared(value), strict=False)
    )
    query = (
        f"SELECT * FROM (SELECT file_row_number AS position, {parts} FROM {fields.source}) WHERE {matching.condition}"
    )
    parameters = {"file": str(file.path), **texts, **matching.parameters}
    connection.execute(f"INSERT INTO matched {query}", parameters)
    connection.execute("INSERT INTO found SELECT DISTINCT * EXCLUDE (position) FROM matched")
    ((positions,),) = connection.execute("SELECT list(position) FROM matched").fetchall()
    connection.execute("TRUNCATE matched")
    return frozenset(positions or ())


def _name_value_columns(number: int) -> tuple[str, str]:
    """Return the names of a column's value and, where that has two zeros, of its sign."""
    return f"v{number}", f"s{number}"
