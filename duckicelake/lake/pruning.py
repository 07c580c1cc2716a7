"""What is old is forgotten in portions, so that nobody waits for long."""

from datetime import datetime

from duckicelake.lake.postgres.database import Database


def prune_all(database: Database, query: str, before: datetime, batch: int) -> int:
    """Run a query that deletes `most` of what is older until nothing is; how many rows there were."""
    pruned = 0
    while True:
        with database.transaction() as cursor:
            deleted = cursor.execute(query, {"before": before, "most": batch}).rowcount
        pruned += deleted
        if deleted < batch:
            return pruned
