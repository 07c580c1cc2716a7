"""Statements of whose answer nobody wants more than whether it is an error: told, they take a fifth of what others do.

psycopg looks for a dumper of each parameter, keeps a cursor for each answer, and prepares a statement anew for numbers
of each size. What is told to a pipeline is prepared once, and its parameters are texts as they are made here.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import orjson
from psycopg import Cursor, DataError

from duckicelake.lake.postgres.pipelines import PatientConnection, Statement

_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s|%%")


def tell(cursor: Cursor[Any], statement: str, parameters: Mapping[str, object]) -> None:
    """Have Postgres run a statement, `cursor.execute` but for the answer, which can't be had.

    parameters, by the names in the statement: whole numbers and lists of them, texts, mappings as JSON, None.
    """
    connection = cursor.connection
    if isinstance(connection, PatientConnection) and connection.has_begun_pipeline:
        query, names = _compiled(statement)
        values = [parameters[name] for name in names]
        are_numbers = tuple([type(value) is int for value in values])
        connection.tell(Statement(statement, query, are_numbers), [_text(value) for value in values])
    else:
        cursor.execute(statement, parameters)


@cache
def _compiled(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """The statement as Postgres has it, with $1 and so on, and what the parameters are called in this order."""
    names: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

    return _PLACEHOLDER.sub(numbered, statement).encode(), tuple(names)


def _text(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, str):
        text = value.encode()
        if b"\0" in text:
            raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return text
    if isinstance(value, list):
        return b"{%s}" % b",".join([b"%d" % each for each in value])
    return orjson.dumps(value)
