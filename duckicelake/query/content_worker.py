"""Run in a process of its own: what a query's process does, and besides describe and write the result of a query.

Files are written into the process's own folder, which the server puts into the lake.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import duckdb

from duckicelake.query.protocol import Answers, Commands, Message, ProgressReports, main, prepare_query, quote_text
from duckicelake.query.worker import ERRORS, HANDLERS

_FOLDER: Final = "made"
_WATCH_SECONDS: Final = 0.2


def describe_result(
    connection: duckdb.DuckDBPyConnection,
    message: Message,
    _answers: Answers,
    commands: Commands,
) -> Iterator[Message]:
    """Answer the names and types of a query's columns."""
    with prepare_query(connection, json.loads(message[1])) as sql, commands.run():
        found = connection.execute(f"DESCRIBE {sql}").fetchall()
    yield b"S", json.dumps([[str(name), str(kind)] for name, kind, *_ in found]).encode()


def write_result(
    connection: duckdb.DuckDBPyConnection, message: Message, answers: Answers, commands: Commands
) -> Iterator[Message]:
    """Write the result of queries, one behind the other, as Parquet files; answer what these are.

    The order's `around` is the text around a query, and `whole` that around all of them.
    """
    order = json.loads(message[1])
    with ProgressReports(connection, answers), ExitStack() as stack:
        queries = [stack.enter_context(prepare_query(connection, {**order, "tree": tree})) for tree in order["trees"]]
        selects = " UNION ALL ".join(query.join(order["around"]) for query in queries)
        folder = Path.cwd() / _FOLDER / order["name"]
        folder.parent.mkdir(exist_ok=True)
        options = (
            f"FORMAT parquet, GEOPARQUET_VERSION 'V2', COMPRESSION zstd, RETURN_STATS true, "
            f"FIELD_IDS {order['field_ids']}, "
            f"ROW_GROUP_SIZE_BYTES {int(order['row_group_bytes'])}, "
            f"FILE_SIZE_BYTES {int(order['file_bytes'])}, FILENAME_PATTERN 'rows-{{uuidv7}}'"
        )
        with commands.run(), bound_folder(connection, folder, order["max_bytes"]):
            rows = connection.execute(
                f"COPY ({selects.join(order['whole'])}) TO {quote_text(str(folder))} ({options})"
            ).fetchall()
    yield b"W", json.dumps([[str(file), count, size, stats] for file, count, size, _, stats, *_ in rows]).encode()


@contextmanager
def bound_folder(connection: duckdb.DuckDBPyConnection, folder: Path, max_bytes: int | None) -> Iterator[None]:
    """End the block's query once its files take more than so many bytes, if they are bounded. Raises ValueError."""
    if max_bytes is None:
        yield
        return
    ended, is_over = threading.Event(), threading.Event()

    def watch() -> None:
        while not ended.wait(_WATCH_SECONDS):
            if measure_folder(folder) > max_bytes:
                is_over.set()
                connection.interrupt()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    except duckdb.InterruptException:
        if not is_over.is_set():
            raise
    finally:
        ended.set()
        thread.join()
    if is_over.is_set() or measure_folder(folder) > max_bytes:
        raise ValueError(
            f"The result takes more than the {max_bytes:,} bytes of disk that a query may "
            "(DUCKICELAKE_QUERY_DISK_BYTES): ask for less"
        )


def measure_folder(folder: Path) -> int:
    """Return the bytes of the files that are in a folder."""
    total = 0
    with suppress(OSError):  # a file has gone since it was listed, or the folder isn't made yet
        for file in folder.iterdir():
            total += file.stat().st_size
    return total


if __name__ == "__main__":
    main({**HANDLERS, b"S": describe_result, b"W": write_result}, ERRORS)
