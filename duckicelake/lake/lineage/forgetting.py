"""Old runs and events of lineage are forgotten; the graph that they told of stays."""

from datetime import datetime
from typing import Final, NamedTuple

from duckicelake.lake.postgres.database import Database
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.pruning import prune_all

_SQL: Final = queries("lineage_forgetting")
BATCH: Final = 5_000


class Forgotten(NamedTuple):
    """How much there was."""

    events: int
    runs: int


def kept(database: Database, before: datetime) -> list[tuple[str, int]]:
    """Receivers for which events stay that are older, and how many those are."""
    with database.reading() as cursor:
        return [(transport, count) for transport, count in cursor.execute(_SQL.kept, {"before": before}).fetchall()]


def forget(database: Database, before: datetime, batch: int = BATCH) -> Forgotten:
    """Delete what is older, `batch` rows in a transaction, so that nobody waits for long.

    Datasets, jobs and edges stay, then without the runs behind them. Events that receivers are yet to get stay, too.
    """
    events, runs = prune_all(database, _SQL.events, before, batch), 0
    while True:
        with database.transaction() as cursor:
            row = cursor.execute(_SQL.runs, {"before": before, "most": batch}).fetchone()
        assert row is not None
        runs += row[0]
        if row[0] < batch:
            return Forgotten(events, runs)
