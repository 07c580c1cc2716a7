"""Send independent reads in one round trip, and delete old rows in batches."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import Cursor, sql

from duckicelake.postgres.database import Database, Row


class BatchedQuery(NamedTuple):
    """A statement with what its parameters are."""

    statement: str | sql.Composed
    parameters: Mapping[str, object]


def fetch_all_batched(cursor: Cursor[Row], *asked: BatchedQuery) -> list[list[Any]]:
    """The rows that each of the statements finds, in the cursor's transaction."""
    connection = cursor.connection
    with connection.pipeline():
        cursors = [connection.cursor().execute(each.statement, each.parameters) for each in asked]
    return [each.fetchall() for each in cursors]


def prune_in_batches(database: Database, query: str, before: datetime, batch: int) -> int:
    """Run a query that deletes `most` of what is older until nothing is; how many rows there were."""
    pruned = 0
    while True:
        with database.transaction() as cursor:
            deleted = cursor.execute(query, {"before": before, "most": batch}).rowcount
        pruned += deleted
        if deleted < batch:
            return pruned
