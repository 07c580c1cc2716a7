"""Open the DuckDB of a load: bounds of memory and threads, a temporary folder, errors in words."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb

from duckicelake.errors import BadSourceError, OutOfMemoryError, PipelineError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from duckicelake.file_import.load_request import FileLoad

_THREAD_BYTES: Final = 64 << 20
"""Of memory for each thread, which holds buffers of what it reads and a row group of what it writes."""
_ROW_GROUPS: Final = 4
"""Of memory for each thread: rows that it holds until a row group is full, and that of before as it is written."""
_UNITS: Final = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@contextmanager
def open_duckdb(request: FileLoad) -> Iterator[tuple[DuckDBPyConnection, Path]]:
    """Open a DuckDB of bounded memory and a temporary folder; explain what DuckDB raises."""
    with tempfile.TemporaryDirectory(prefix="duckicelake-load-") as folder:
        config: dict[str, Any] = {
            "memory_limit": request.memory,
            "temp_directory": f"{folder}/spill",
            "preserve_insertion_order": "false",
        }
        if request.threads:
            config["threads"] = str(request.threads)
        try:
            with duckdb.connect(config=config) as duck:
                duck.execute("SET TimeZone = 'UTC'")
                _bound_threads(duck)
                yield duck, Path(folder)
        except duckdb.OutOfMemoryException as error:
            raise OutOfMemoryError(f"DuckDB ran out of {request.memory}: give --memory more") from error
        except duckdb.Error as error:
            if "KeyboardInterrupt" in str(error):  # which a function in Python met within DuckDB
                raise KeyboardInterrupt from error
            text = " ".join(str(error).split("\n\nLINE ", 1)[0].split())[:600]
            if "Could not write" in text:
                raise PipelineError(f"The rows can't be written, nothing was committed: {text}") from error
            if "No space left" in text:
                raise PipelineError(f"The disk is full, nothing was committed: {text}") from error
            raise BadSourceError(f"The files can't be read: {text}") from error


def _bound_threads(duck: DuckDBPyConnection) -> None:
    """Take no more threads than the memory has room for: DuckDB fails where their buffers don't fit."""
    wanted, memory = _read_bounds(duck)
    duck.execute(f"SET threads TO {max(1, min(wanted, memory // _THREAD_BYTES))}")


def choose_row_group_bytes(duck: DuckDBPyConnection) -> int:
    """Choose the bytes of a row group: those of 122,880 wide rows don't fit into memory once for each thread."""
    threads, memory = _read_bounds(duck)
    return memory // (threads * _ROW_GROUPS)


def _read_bounds(duck: DuckDBPyConnection) -> tuple[int, int]:
    """Return the number of threads and the bytes of memory that DuckDB may take."""
    threads, memory = duck.execute("SELECT current_setting('threads'), current_setting('memory_limit')").fetchall()[0]
    number, unit = str(memory).split()
    return int(threads), int(float(number) * _UNITS[unit])


@contextmanager
def read_in_order(duck: DuckDBPyConnection) -> Iterator[None]:
    """Have DuckDB read the rows of a file by the order of their lines, in one thread, for as long as the block."""
    threads, _ = _read_bounds(duck)
    duck.execute("SET threads TO 1; SET preserve_insertion_order TO true")
    try:
        yield
    finally:
        duck.execute(f"SET threads TO {threads}; SET preserve_insertion_order TO false")
