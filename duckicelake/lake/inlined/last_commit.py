"""The lake as this process left it, which spares the next commit of rows its questions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Cursor

from duckicelake.lake.ducklake.snapshots import SnapshotClaim, SnapshotCounters
from duckicelake.lake.inlined.batches import RowBatch
from duckicelake.lake.inlined.targets import LockedState, LockedTable
from duckicelake.lake.side_tables.idempotency import TxnApp
from duckicelake.postgres.queries import Row, json_param, load_queries

STABLE_AFTER_COMMITS: Final = 4
"""Groups in a row that nobody else wrote between, after which the next is expected to follow its predecessor, too."""
MAX_REMEMBERED_TABLES: Final = 1024
"""Tables, and producers, that are remembered."""

_SQL = load_queries("lake", "rows")


@dataclass(frozen=True, slots=True)
class CommittedState:
    """The newest snapshot, which is ours, and what some tables and producers were with it."""

    snapshot: SnapshotCounters
    tables: Mapping[int, LockedTable]
    sequences: Mapping[TxnApp, int]

    def is_sufficient_for(self, batch: RowBatch) -> bool:
        """Whether the batch can be written without asking: it brings rows for a table that is remembered, no more."""
        is_plain = not batch.files and not batch.has_new_table and batch.untouched_since is None
        return (
            is_plain and batch.table_id in self.tables and (batch.producer is None or batch.producer in self.sequences)
        )

    def now(self) -> LockedState:
        """What batches depend on, with the next snapshot."""
        return LockedState(dict(self.tables), dict(self.sequences), set())

    def merge_older(self, before: "CommittedState | None") -> "CommittedState":
        """With what else was known, of a time since which only this was written."""
        if (
            before is None
            or len(before.tables) > MAX_REMEMBERED_TABLES
            or len(before.sequences) > MAX_REMEMBERED_TABLES
        ):
            return self
        return CommittedState(self.snapshot, {**before.tables, **self.tables}, {**before.sequences, **self.sequences})


class LastRowCommit:
    """Of who writes one group after the other."""

    def __init__(self) -> None:
        self._left: CommittedState | None = None
        self._taken: CommittedState | None = None
        self._calm = self._stable_commits_before = 0

    def take(self, batches: Iterable[RowBatch]) -> CommittedState | None:
        """What the batches can be written with, if so; until `put` nothing is taken to be known."""
        self._taken, self._left = self._left, None
        self._stable_commits_before, self._calm = self._calm, 0
        left = self._taken if self._stable_commits_before >= STABLE_AFTER_COMMITS else None
        return left if left is not None and all(map(left.is_sufficient_for, batches)) else None

    def put(self, before: SnapshotCounters, left: CommittedState) -> None:
        """The group that has taken what was known is committed, after this snapshot.

        It is told from one of the same id by its time, too: a failover may have lost the one that is remembered.
        """
        follows = self._taken is not None and self._taken.snapshot == before
        self._calm = self._stable_commits_before + 1 if follows else 0
        self._left = left.merge_older(self._taken if follows else None)


def claim_next_snapshot(
    cursor: Cursor[Row], wanted: SnapshotClaim, left: CommittedState, batches: Sequence[RowBatch]
) -> Cursor[Any]:
    """The snapshot after the one that was left, as `snapshots.claim` takes it; its row comes with the next answer.

    The transaction fails, with Overtaken unless a DuckDB client holds the id, if anything isn't as it was left.
    """
    last, tables = left.snapshot, [left.tables[table_id] for table_id in {batch.table_id for batch in batches}]
    parameters = {
        "snapshot_id": last.snapshot_id,
        "time": last.time,
        "file_ids": wanted.file_ids,
        "options": json_param(tables[0].options),
        "tables": json_param([_build_sizes(table) for table in tables]),
        "count": len(tables),
    }
    return cursor.connection.cursor().execute(_SQL.claim_next, parameters)


def _build_sizes(table: LockedTable) -> dict[str, int]:
    records, row_ids, size = table.sizes
    return {"table_id": table.table_id, "records": records, "row_ids": row_ids, "bytes": size}
