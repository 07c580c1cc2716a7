"""Parquet through DuckDB: position deletes to read, and rows that come as DuckDB's own texts to write."""

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from duckicelake.errors import InvalidRequest, Unavailable
from duckicelake.storage.parquet_copy import quoted
from duckicelake.storage.parquet_footer import check_footer, in_time

_MEMORY = "2GB"
_SNAPSHOT = "_ducklake_internal_snapshot_id"
_INLINED_CAST = re.compile(r"CAST\('([^']*)' AS VARCHAR\)")
_ROWS = """
SELECT coalesce(sum(rows), 0)
FROM (SELECT DISTINCT row_group_id, row_group_num_rows AS rows FROM parquet_metadata($file))
"""
MAX_POSITIONS = 1 << 24
"""Positions of one delete file that are taken from clients."""


@dataclass(frozen=True, slots=True)
class ParquetColumn:
    """A top-level column: its DuckDB type, its field ids as DuckDB's COPY takes them, and whether it has an order."""

    name: str
    type: str
    field_ids: str
    is_binary: bool = False
    has_bounds: bool = True


@dataclass(frozen=True, slots=True)
class ParquetRows:
    """An encoded file, and by column position (value count, null count, min, max) in DuckDB's texts, blobs as hex."""

    data: bytes
    record_count: int
    stats: Mapping[int, tuple[int, int, str | None, str | None]]


def read_position_deletes(data: bytes, location: str) -> dict[str, list[int]]:
    """The sorted positions of a delete file by data file path; InvalidRequest if it isn't one."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    with _temporary(data) as file, _connect() as connection:
        check_footer(file, location)
        try:
            with in_time(connection):
                _check_rows(connection, str(file), location)
                query = "SELECT DISTINCT file_path, pos FROM read_parquet($file) ORDER BY 1, 2"
                rows = connection.execute(query, {"file": str(file)}).fetchall()
        except duckdb.Error as error:
            raise InvalidRequest(f"{location} isn't a Parquet file of position deletes: {error}") from error
    for path, position in rows:
        found[path].append(position)
    return dict(found)


def _check_rows(connection: duckdb.DuckDBPyConnection, file: str, location: str) -> None:
    """InvalidRequest for more rows than positions are taken; encoded as runs, they need no bytes."""
    ((rows,),) = connection.execute(_ROWS, {"file": file}).fetchall()
    if rows > MAX_POSITIONS:
        raise InvalidRequest(f"{location} has {rows} rows; this server takes up to {MAX_POSITIONS} in one delete file")


def read_ducklake_deletes(data: bytes, location: str) -> dict[int, int | None]:
    """The positions of a delete file that DuckDB wrote, each with the snapshot that deleted it, where the file says.

    InvalidRequest if it isn't one.
    """
    with _temporary(data) as file, _connect() as connection:
        try:
            relation = connection.sql("SELECT * FROM read_parquet($file)", params={"file": str(file)})
            snapshot = _SNAPSHOT if _SNAPSHOT in relation.columns else "NULL"
            rows = relation.project(f"pos::BIGINT, {snapshot}::BIGINT").fetchall()
        except duckdb.Error as error:
            raise InvalidRequest(f"{location} isn't a delete file of DuckLake's: {error}") from error
    if any(position is None or position < 0 for position, _ in rows):
        raise InvalidRequest(f"{location} isn't a delete file of DuckLake's: a position is null or negative")
    return dict(rows)


def write_rows(columns: Sequence[ParquetColumn], rows: Sequence[Sequence[str | bytes | None]]) -> ParquetRows:
    """A file of rows whose values are texts that DuckDB casts to the columns' types; bytes for binary columns.

    InvalidRequest for a value that it can't cast.
    """
    with _connect() as connection:
        try:
            connection.sql(_select(columns), params=_parameters(columns, rows)).create("rows")
        except (duckdb.ConversionException, UnicodeDecodeError) as error:
            raise InvalidRequest(f"a value isn't one of its column's type: {error}") from error
        field_ids = "{" + ", ".join(f"{quoted(column.name)}: {column.field_ids}" for column in columns) + "}"
        data = _copy(connection, connection.table("rows"), field_ids)
        return ParquetRows(data, len(rows), _stats(connection, columns))


def _connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1, "memory_limit": _MEMORY, "autoload_known_extensions": False})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _select(columns: Sequence[ParquetColumn]) -> str:
    texts = (f"unnest($c{index}::{_wire(column)}[])" for index, column in enumerate(columns))
    parts = (
        f"CAST({text} AS {column.type}) AS {quoted(column.name)}" for text, column in zip(texts, columns, strict=True)
    )
    return f"SELECT {', '.join(parts)}"


def _wire(column: ParquetColumn) -> str:
    return "BLOB" if column.is_binary else "VARCHAR"


def _parameters(columns: Sequence[ParquetColumn], rows: Sequence[Sequence[str | bytes | None]]) -> dict[str, Any]:
    return {f"c{index}": [_value(row[index], column) for row in rows] for index, column in enumerate(columns)}


def _value(value: str | bytes | None, column: ParquetColumn) -> str | bytes | None:
    """The text without the casts that DuckDB inlines in place of days and times in structs, and can't read again."""
    if column.is_binary or value is None:
        return value
    text = value.decode() if isinstance(value, bytes) else value
    return _INLINED_CAST.sub(r"'\1'", text) if column.type.endswith((")", "]")) else text


def _copy(connection: duckdb.DuckDBPyConnection, relation: duckdb.DuckDBPyRelation, field_ids: str) -> bytes:
    with _room(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        relation.create_view("to_copy")
        connection.execute(f"COPY to_copy TO '{path}' (FORMAT parquet, COMPRESSION zstd, FIELD_IDS {field_ids})")
        return path.read_bytes()


@contextmanager
def _temporary(data: bytes) -> Iterator[Path]:
    """The data as a file of this machine; Unavailable if there is no room for it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.parquet"
        with _room():
            path.write_bytes(data)
        yield path


@contextmanager
def _room() -> Iterator[None]:
    """That a temporary file has no room is no fault of the request's: Unavailable."""
    try:
        yield
    except (OSError, duckdb.IOException) as error:
        raise Unavailable(f"The server has no room for a temporary file; nothing was written: {error}") from error


def _stats(
    connection: duckdb.DuckDBPyConnection, columns: Sequence[ParquetColumn]
) -> dict[int, tuple[int, int, str | None, str | None]]:
    bounded = [(index, column) for index, column in enumerate(columns) if column.has_bounds]
    parts = ", ".join(_aggregates(column) for _, column in bounded)
    row = connection.execute(f"SELECT {parts} FROM rows").fetchone() if bounded else ()
    assert row is not None
    return {index: tuple(row[4 * place : 4 * place + 4]) for place, (index, _) in enumerate(bounded)}


def _aggregates(column: ParquetColumn) -> str:
    name = quoted(column.name)
    bounds = (
        (f"hex(min({name})), hex(max({name}))") if column.is_binary else f"min({name})::VARCHAR, max({name})::VARCHAR"
    )
    return f"count({name}), count(*) - count({name}), {bounds}"
