"""Reads that need nothing of each other's answers: sent at once they take one round trip, and BEGIN goes with them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from psycopg import Cursor, sql

from duckicelake.lake.postgres.database import Row


class Ask(NamedTuple):
    """A statement with what its parameters are."""

    statement: str | sql.Composed
    parameters: Mapping[str, object]


def together(cursor: Cursor[Row], *asked: Ask) -> list[list[Any]]:
    """The rows that each of the statements finds, in the cursor's transaction."""
    connection = cursor.connection
    with connection.pipeline():
        cursors = [connection.cursor().execute(each.statement, each.parameters) for each in asked]
    return [each.fetchall() for each in cursors]
