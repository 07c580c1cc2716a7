"""The process that runs queries: `python -I worker.py`.

`protocol` says how it is asked, and how it answers. Its own commands:

    > P text   parse a statement                               < T    its syntax tree as JSON
    > Q {…}    run a checked tree                              < D place, length: pieces of the result, then E {…}
    > L {…}    plan a checked tree                             < L {…} the plan as text, and as a tree
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import duckdb
import pyarrow as pa

from duckicelake.query.protocol import (
    Answers,
    Commands,
    Handler,
    Message,
    ProgressReports,
    main,
    prepare_query,
    quote_text,
)
from duckicelake.query.result_formats import FORMATS

_MAX_TREE_BYTES: Final = 8 * 1024 * 1024
"""Of a syntax tree: the server reads it whole, and a value of the statement takes some 250 bytes of it."""
_BATCH_ROWS: Final = 8_192
ERRORS: Final = (pa.ArrowException,)
"""That a query's process answers, beside those of all processes."""


def parse_statement(
    connection: duckdb.DuckDBPyConnection, message: Message, _answers: Answers, _commands: Commands
) -> Iterator[Message]:
    """Answer the syntax tree of a statement."""
    sql = f"SELECT json_serialize_sql({quote_text(message[1].decode())}::VARCHAR)"
    (tree,) = connection.execute(sql).fetchone() or ("",)
    encoded = str(tree).encode()
    if len(encoded) > _MAX_TREE_BYTES:
        raise ValueError("The query is too deep or too long")
    yield b"T", encoded


def answer_query(
    connection: duckdb.DuckDBPyConnection, message: Message, answers: Answers, commands: Commands
) -> Iterator[Message]:
    """Answer the result of a checked tree."""
    with ProgressReports(connection, answers) as progress:
        yield from run_query(connection, json.loads(message[1]), progress, commands)


def answer_plan(
    connection: duckdb.DuckDBPyConnection, message: Message, _answers: Answers, commands: Commands
) -> Iterator[Message]:
    """Answer how DuckDB would run a checked tree."""
    yield b"L", json.dumps(explain_query(connection, json.loads(message[1]), commands)).encode()


def explain_query(
    connection: duckdb.DuckDBPyConnection, order: Mapping[str, Any], commands: Commands
) -> Mapping[str, Any]:
    """Return DuckDB's plan of a query, drawn as text, and as a tree of JSON objects."""
    with prepare_query(connection, order) as sql, commands.run():
        drawn, planned = (
            connection.execute(f"EXPLAIN {options}{sql}").fetchall() for options in ("", "(FORMAT json) ")
        )
    return {"text": "\n".join(str(text) for _, text in drawn), "tree": json.loads(planned[0][1])}


def run_query(
    connection: duckdb.DuckDBPyConnection, order: Mapping[str, Any], progress: ProgressReports, commands: Commands
) -> Iterator[Message]:
    """Run a query; yield its result in pieces of the format, then how many rows it had."""
    with prepare_query(connection, order) as sql, commands.run():
        reader = connection.execute(sql).to_arrow_reader(_BATCH_ROWS)
        is_cut = False
        writer = FORMATS[order["format"]](reader.schema)
        for batch in reader:
            left = order["rows"] - progress.rows
            is_cut = batch.num_rows > left
            progress.rows += min(batch.num_rows, left)
            yield b"D", writer.write(batch.slice(0, left))
            if is_cut:
                break
        yield b"D", writer.end()
        yield b"E", json.dumps({"rows": progress.rows, "is_cut": is_cut}).encode()


HANDLERS: Final[Mapping[bytes, Handler]] = {b"P": parse_statement, b"Q": answer_query, b"L": answer_plan}
"""What a process of queries does. Processes with more commands have these, too."""

if __name__ == "__main__":
    main(HANDLERS, ERRORS)
