"""The values that columns have in those rows of data files for which a condition holds, each combination once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from duckicelake.storage.equality import DataRows, connected, readable, values_of
from duckicelake.storage.key_columns import KeyColumn
from duckicelake.storage.parquet import ParquetRows, in_room
from duckicelake.storage.parquet_fields import read_fields


@dataclass(frozen=True, slots=True)
class Matching:
    """What rows are looked for by: columns, and a condition in SQL on their values, called `v0`, `v1` and so on."""

    keys: tuple[KeyColumn, ...]
    condition: str
    parameters: Mapping[str, str | list[str]]


def find_values(matching: Matching, files: Sequence[DataRows]) -> ParquetRows:
    """The values as Parquet, by field ids; those of deleted rows are among them.

    Raises InvalidRequest, naming the file, for one that isn't Parquet or has a column of another type.
    """
    with TemporaryDirectory() as scratch:
        found = Path(scratch, "values.parquet")
        with connected([found, *(file.path for file in files)]) as connection:
            _make_table(connection, matching.keys)
            for file in files:
                with readable(file.location, file.path):
                    _collect(connection, matching, file)
            with in_room():
                ((count,),) = connection.execute(_written(matching.keys, found)).fetchall()
                return ParquetRows(found.read_bytes(), int(count), _stats(connection, matching.keys))


def _written(keys: Sequence[KeyColumn], to: Path) -> str:
    """Without dictionaries, in which DuckDB takes -0.0 for 0.0."""
    names = ", ".join(f"v{number}" for number in range(len(keys)))
    ids = ", ".join(f"v{number}: {key.field_id}" for number, key in enumerate(keys))
    options = f"FORMAT parquet, DICTIONARY_SIZE_LIMIT 0, FIELD_IDS {{{ids}}}"
    return f"COPY (SELECT {names} FROM (SELECT DISTINCT * FROM found)) TO '{to}' ({options})"


def _make_table(connection: duckdb.DuckDBPyConnection, keys: Sequence[KeyColumn]) -> None:
    columns = (
        f"{name} {type_}"
        for number, key in enumerate(keys)
        for name, type_ in zip(_names(number), key.types, strict=False)
    )
    connection.execute(f"CREATE TABLE found ({', '.join(columns)})")


def _collect(connection: duckdb.DuckDBPyConnection, matching: Matching, file: DataRows) -> None:
    fields = read_fields(connection, file.path)
    values, texts = values_of(matching.keys, file, fields)
    parts = (
        f"{part} AS {name}"
        for number, (key, value) in enumerate(zip(matching.keys, values, strict=True))
        for name, part in zip(_names(number), key.compared(value), strict=False)
    )
    query = f"SELECT DISTINCT * FROM (SELECT {', '.join(parts)} FROM {fields.source}) WHERE {matching.condition}"
    connection.execute(f"INSERT INTO found {query}", {"file": str(file.path), **texts, **matching.parameters})


def _stats(
    connection: duckdb.DuckDBPyConnection, keys: Sequence[KeyColumn]
) -> dict[int, tuple[int, int, str | None, str | None]]:
    parts = [part for number, key in enumerate(keys) for part in _aggregates(f"v{number}", key.type)]
    ((*row,),) = connection.execute(f"SELECT {', '.join(parts)} FROM (SELECT DISTINCT * FROM found)").fetchall()
    return {number: tuple(row[4 * number : 4 * number + 4]) for number in range(len(keys))}


def _aggregates(name: str, type_: str) -> list[str]:
    as_text = "hex({})" if type_ == "BLOB" else "{}::VARCHAR"
    counts = [f"count({name})", f"count(*) - count({name})"]
    return counts + [as_text.format(f"{bound}({name})") for bound in ("min", "max")]


def _names(number: int) -> tuple[str, str]:
    """Of a column's value and, where that has two zeros, of what tells them apart."""
    return f"v{number}", f"s{number}"
