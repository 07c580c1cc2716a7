"""How a process has left the lake: what it needn't ask for as long as nobody else writes.

All that rows depend on changes with a snapshot, but for options and for what is repaired by hand. So who finds its own
snapshot to be the newest, and those two as they were, knows the rest, and writes without waiting for an answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Cursor

from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.documents import document
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.rows.batches import RowBatch
from duckicelake.lake.rows.producers import Producer
from duckicelake.lake.rows.tables import Now, TableNow
from duckicelake.lake.snapshots import Counters, Wanted

CALM: Final = 4
"""Groups in a row that nobody else wrote between, after which the next is expected to follow its predecessor, too."""
MOST: Final = 1024
"""Tables, and producers, that are remembered."""

_SQL = queries("rows")


@dataclass(frozen=True, slots=True)
class Left:
    """The newest snapshot, which is ours, and what some tables and producers were with it."""

    snapshot: Counters
    tables: Mapping[int, TableNow]
    sequences: Mapping[Producer, int]

    def knows(self, batch: RowBatch) -> bool:
        """Whether the batch can be written without asking: it brings rows for a table that is remembered, no more."""
        is_plain = not batch.files and not batch.makes_table and batch.untouched_since is None
        return (
            is_plain and batch.table_id in self.tables and (batch.producer is None or batch.producer in self.sequences)
        )

    def now(self) -> Now:
        """What batches depend on, with the next snapshot."""
        return Now(dict(self.tables), dict(self.sequences), set())

    def with_older(self, before: "Left | None") -> "Left":
        """With what else was known, of a time since which only this was written."""
        if before is None or len(before.tables) > MOST or len(before.sequences) > MOST:
            return self
        return Left(self.snapshot, {**before.tables, **self.tables}, {**before.sequences, **self.sequences})


class Memory:
    """Of who writes one group after the other."""

    def __init__(self) -> None:
        self._left: Left | None = None
        self._taken: Left | None = None
        self._calm = self._was_calm = 0

    def take(self, batches: Iterable[RowBatch]) -> Left | None:
        """What the batches can be written with, if so; until `put` nothing is taken to be known."""
        self._taken, self._left = self._left, None
        self._was_calm, self._calm = self._calm, 0
        left = self._taken if self._was_calm >= CALM else None
        return left if left is not None and all(map(left.knows, batches)) else None

    def put(self, before: Counters, left: Left) -> None:
        """The group that has taken what was known is committed, after this snapshot.

        It is told from one of the same id by its time, too: a failover may have lost the one that is remembered.
        """
        follows = self._taken is not None and self._taken.snapshot == before
        self._calm = self._was_calm + 1 if follows else 0
        self._left = left.with_older(self._taken if follows else None)


def claim_next(cursor: Cursor[Row], wanted: Wanted, left: Left, batches: Sequence[RowBatch]) -> Cursor[Any]:
    """The snapshot after the one that was left, as `snapshots.claim` takes it; its row comes with the next answer.

    The transaction fails, with Overtaken unless a DuckDB client holds the id, if anything isn't as it was left.
    """
    last, tables = left.snapshot, [left.tables[each] for each in {batch.table_id for batch in batches}]
    parameters = {
        "snapshot_id": last.snapshot_id,
        "time": last.time,
        "file_ids": wanted.file_ids,
        "options": document(tables[0].options),
        "tables": document([_sizes(each) for each in tables]),
        "count": len(tables),
    }
    return cursor.connection.cursor().execute(_SQL.claim_next, parameters)


def _sizes(table: TableNow) -> dict[str, int]:
    records, row_ids, size = table.sizes
    return {"table_id": table.table_id, "records": records, "row_ids": row_ids, "bytes": size}
