"""Run in a process of its own: what a query's process does, and besides describe and write the result of a query.

Files are written into the process's own folder, which the server puts into the lake.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import duckdb

from duckicelake.query.worker import Answers, Commands, Message, ProgressReports, main, prepare_query

_FOLDER: Final = "made"


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
            f"FORMAT parquet, COMPRESSION zstd, RETURN_STATS true, FIELD_IDS {order['field_ids']}, "
            f"FILE_SIZE_BYTES {int(order['file_bytes'])}, FILENAME_PATTERN 'rows-{{uuidv7}}'"
        )
        with commands.run():
            rows = connection.execute(
                f"COPY ({selects.join(order['whole'])}) TO '{str(folder).replace(chr(39), 2 * chr(39))}' ({options})"
            ).fetchall()
    yield b"W", json.dumps([[str(file), count, size, stats] for file, count, size, _, stats, *_ in rows]).encode()


if __name__ == "__main__":
    main({b"S": describe_result, b"W": write_result})
