"""Run in a process of its own: write rows of a table's files into new ones, find rows in them again, sketch columns.

Files are written into the process's own folder, from which the server puts them into the lake.
"""

import base64
import ctypes
import json
import os
import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb

from duckicelake.query.protocol import Answers, Commands, Message, ProgressReports, main, quote_text
from duckicelake.rewrites.theta import ThetaSketch, hash_values

_FOLDER: Final = "made"
_COPY: Final = "catalog"
_LINEAGE_FIELD: Final = 2147483539
_NICENESS: Final = 19
"""Writers and readers of the lake go before rewrites. The worker, which commits, has no less than they have."""
_SET_PARENT_DEATH_SIGNAL: Final = 1
_BATCH_ROWS: Final = 32_768
"""Of rows that are sketched at once."""


@contextmanager
def use_secrets(connection: duckdb.DuckDBPyConnection, order: Mapping[str, Any]) -> Iterator[None]:
    """Have the order's keys of the store for as long as the block."""
    try:
        for name, secret in order["secrets"].items():
            connection.execute(f"CREATE OR REPLACE SECRET {name} {secret}")
        yield
    finally:
        for name in order["secrets"]:
            connection.execute(f"DROP SECRET IF EXISTS {name}")


def copy_catalog(
    connection: duckdb.DuckDBPyConnection, message: Message, _answers: Answers, commands: Commands
) -> Iterator[Message]:
    """Copy rows of a lake's catalog in one transaction, and attach the copy in place of the one before."""
    order = json.loads(message[1])
    before = list(Path.cwd().glob(f"{_COPY}-*.db"))
    file = Path.cwd() / f"{_COPY}-{secrets.token_hex(8)}.db"
    with commands.run():
        connection.execute(f"DETACH DATABASE IF EXISTS {order['copy']}")
        connection.execute(f"ATTACH {quote_text(str(file))} AS {_COPY}")
        connection.execute("BEGIN")
        for name, query in order["queries"].items():
            rows = f"postgres_query({quote_text(order['source'])}, {quote_text(query)})"
            connection.execute(f"CREATE TABLE {_COPY}.{name} AS FROM {rows}")
        connection.execute("COMMIT")
        connection.execute(f"DETACH {_COPY}")
        connection.execute(f"ATTACH {quote_text(f'ducklake:{file}')} AS {order['copy']} (READ_ONLY)")
    for old in before:
        old.unlink()
    yield b"V", b"null"


def find_lineage(
    connection: duckdb.DuckDBPyConnection, message: Message, _answers: Answers, commands: Commands
) -> Iterator[Message]:
    """Answer which of the files say of each row when it was last updated."""
    order = json.loads(message[1])
    with use_secrets(connection, order), commands.run():
        found = connection.execute(
            f"SELECT DISTINCT file_name FROM parquet_schema({_quote_all(order['files'])}) "
            f"WHERE field_id = {_LINEAGE_FIELD}"
        ).fetchall()
    yield b"G", json.dumps([name for (name,) in found]).encode()


def write_rows(
    connection: duckdb.DuckDBPyConnection, message: Message, answers: Answers, commands: Commands
) -> Iterator[Message]:
    """Copy the rows of the order's query into files, between its other statements; answer what the files are."""
    order = json.loads(message[1])
    folder = Path.cwd() / _FOLDER / order["name"]
    folder.parent.mkdir(exist_ok=True)
    divided = order["divided_by"]  # DuckDB has either folders of keys or files of a size
    layout = f"PARTITION_BY ({', '.join(divided)})" if divided else f"FILE_SIZE_BYTES {int(order['file_bytes'])}"
    options = f"RETURN_STATS true, {layout}, FILENAME_PATTERN 'rows-{{uuidv7}}'"
    with ProgressReports(connection, answers), use_secrets(connection, order), commands.run():
        for statement in order["before"]:
            connection.execute(statement)
        rows = connection.execute(
            f"COPY ({order['query']}) TO {quote_text(str(folder))} ({order['format']}, {options})"
        )
        made = [[str(file), count, size, stats, keys] for file, count, size, _, stats, keys, *_ in rows.fetchall()]
        for statement in order["after"]:
            connection.execute(statement)
    yield b"W", json.dumps(made).encode()


def count_distinct(
    connection: duckdb.DuckDBPyConnection, message: Message, answers: Answers, commands: Commands
) -> Iterator[Message]:
    """Count the distinct values of each column of the order's query; answer the numbers and the encoded sketches."""
    order = json.loads(message[1])
    with ProgressReports(connection, answers), use_secrets(connection, order), commands.run():
        reader = connection.execute(order["query"]).to_arrow_reader(_BATCH_ROWS)
        sketches = [ThetaSketch() for _ in reader.schema]
        for batch in reader:
            for sketch, column in zip(sketches, batch.columns, strict=True):
                sketch.add(hash_values(column))
    found = [(sketch.estimate, base64.b64encode(sketch.to_bytes()).decode()) for sketch in sketches]
    yield b"S", json.dumps(found).encode()


def find_rows(
    connection: duckdb.DuckDBPyConnection, message: Message, _answers: Answers, commands: Commands
) -> Iterator[Message]:
    """Answer the rows of a query that is asked with a list of numbers."""
    order = json.loads(message[1])
    with use_secrets(connection, order), commands.run():
        found = connection.execute(order["query"], order["parameters"]).fetchall()
    yield b"F", json.dumps(found).encode()


def _quote_all(files: list[str]) -> str:
    return f"[{', '.join(map(quote_text, files))}]"


def _ask_for_wake() -> None:
    """Have Linux continue this process once its server is gone, which may have stopped it just before."""
    if ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGCONT)):
        raise OSError("Linux refuses prctl(PR_SET_PDEATHSIG)")


if __name__ == "__main__":
    os.nice(_NICENESS)
    _ask_for_wake()
    main({b"V": copy_catalog, b"G": find_lineage, b"W": write_rows, b"F": find_rows, b"S": count_distinct})
