"""Parquet through DuckDB: position deletes to read, and inlined rows to write."""

import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import duckdb

from duckicelake.errors import InvalidRequest, Unavailable
from duckicelake.storage.csv_rows import END, SNAPSHOT, CopiedRows, ParquetColumn, fitting, typed
from duckicelake.storage.parquet_copy import quoted
from duckicelake.storage.parquet_footer import check_footer, in_time

_MEMORY = "2GB"
_ROWS = """
SELECT coalesce(sum(rows), 0)
FROM (SELECT DISTINCT row_group_id, row_group_num_rows AS rows FROM parquet_metadata($file))
"""
_THREAD: Final = threading.local()
MAX_POSITIONS = 1 << 24
"""Positions of one delete file that are taken from clients."""


StoredStats: TypeAlias = tuple[int, int, str | None, str | None, bool | None]


@dataclass(frozen=True, slots=True)
class ParquetRows:
    """An encoded file, and by column position what DuckDB says of the column, in its texts.

    That is (value count, null count, lower bound, upper bound, whether there are NaN, None where it doesn't say).
    Blobs are in hex, and the bounds of long values shortened. nested: value and null count of what is
    in others, by its quoted names, joined by dots; rows count as null where there is none of it.
    """

    data: bytes
    record_count: int
    stats: Mapping[int, StoredStats]
    nested: Mapping[str, tuple[int, int]]


def read_position_deletes(data: bytes, location: str) -> dict[str, list[int]]:
    """The sorted positions of a delete file by data file path; InvalidRequest if it isn't one."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    with _temporary(data) as file, own_connection() as connection:
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
    with _temporary(data) as file, own_connection() as connection:
        try:
            relation = connection.sql("SELECT * FROM read_parquet($file)", params={"file": str(file)})
            snapshot = SNAPSHOT if SNAPSHOT in relation.columns else "NULL"
            rows = relation.project(f"pos::BIGINT, {snapshot}::BIGINT").fetchall()
        except duckdb.Error as error:
            raise InvalidRequest(f"{location} isn't a delete file of DuckLake's: {error}") from error
    if any(position is None or position < 0 for position, _ in rows):
        raise InvalidRequest(f"{location} isn't a delete file of DuckLake's: a position is null or negative")
    return dict(rows)


def write_rows(rows: CopiedRows) -> ParquetRows:
    """A file of the rows in their order, with their lineage; InvalidRequest if a value isn't of its column's type.

    It is made beside their copy, and stays there.
    """
    with own_connection() as connection, in_room():
        path = rows.path.with_suffix(".parquet")
        with fitting():
            ((_, count, _, _, said, _),) = connection.execute(
                f"COPY (SELECT * EXCLUDE ({END}) FROM ({typed(rows)})) TO '{path}' "
                f"(FORMAT parquet, COMPRESSION zstd, RETURN_STATS true, FIELD_IDS {rows.field_ids})"
            ).fetchall()
        return ParquetRows(
            path.read_bytes(), count, dict(_stats(rows.columns, said)), dict(_nested(rows.columns, said))
        )


@contextmanager
def own_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """The thread's own database, for what leaves nothing in it: to open one takes longer than most files. Never nested.

    One in which something failed is not used again.
    """
    connection = getattr(_THREAD, "connection", None) or _connect()
    _THREAD.connection = None
    yield connection
    _THREAD.connection = connection


def _connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1, "memory_limit": _MEMORY, "autoload_known_extensions": False})
    connection.execute("SET TimeZone = 'UTC'; SET enable_external_file_cache = false")
    return connection


@contextmanager
def _temporary(data: bytes) -> Iterator[Path]:
    """The data as a file of this machine; Unavailable if there is no room for it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.parquet"
        with in_room():
            path.write_bytes(data)
        yield path


@contextmanager
def in_room() -> Iterator[None]:
    """That a temporary file has no room is no fault of the request's: Unavailable."""
    try:
        yield
    except (OSError, duckdb.IOException) as error:
        raise Unavailable(f"The server has no room for a temporary file; nothing was written: {error}") from error


def _stats(
    columns: Sequence[ParquetColumn], said: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[int, StoredStats]]:
    for index, column in enumerate(columns):
        found = said.get(quoted(column.name)) if column.has_bounds else None
        if found is not None:
            nulls = int(found["null_count"])
            has_nan = {"true": True, "false": False}.get(found.get("has_nan", ""))
            yield index, (int(found["num_values"]) - nulls, nulls, found.get("min"), found.get("max"), has_nan)


def _nested(
    columns: Sequence[ParquetColumn], said: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, tuple[int, int]]]:
    top = {quoted(column.name) for column in columns if column.has_bounds}
    for name, found in said.items():
        if name not in top:
            nulls = int(found["null_count"])
            yield name, (int(found["num_values"]) - nulls, nulls)
