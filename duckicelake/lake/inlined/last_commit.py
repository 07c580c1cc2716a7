"""The state of the lake after this process's last commit of rows, which saves the next commit its questions."""

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
"""Groups in a row without another writer in between, after which the next group is expected to follow too."""
MAX_REMEMBERED_TABLES: Final = 1024
"""Tables, and producers, that are remembered."""

_SQL = load_queries("lake", "rows")


@dataclass(frozen=True, slots=True)
class CommittedState:
    """The newest snapshot, which this process made, and the state of some tables and producers with it."""

    snapshot: SnapshotCounters
    tables: Mapping[int, LockedTable]
    sequences: Mapping[TxnApp, int]

    def is_sufficient_for(self, batch: RowBatch) -> bool:
        """Return whether the batch can be written from this state: it only brings rows for a remembered table."""
        is_plain = not batch.files and not batch.has_new_table and batch.untouched_since is None
        return (
            is_plain and batch.table_id in self.tables and (batch.producer is None or batch.producer in self.sequences)
        )

    def now(self) -> LockedState:
        """Return what batches depend on, with the next snapshot."""
        return LockedState(dict(self.tables), dict(self.sequences), set())

    def merge_older(self, before: "CommittedState | None") -> "CommittedState":
        """Add what an older state holds; since then only this group was written."""
        if (
            before is None
            or len(before.tables) > MAX_REMEMBERED_TABLES
            or len(before.sequences) > MAX_REMEMBERED_TABLES
        ):
            return self
        return CommittedState(self.snapshot, {**before.tables, **self.tables}, {**before.sequences, **self.sequences})


class LastRowCommit:
    """Remembers the state after one group for the next."""

    def __init__(self) -> None:
        self._left: CommittedState | None = None
        self._taken: CommittedState | None = None
        self._calm = self._stable_commits_before = 0

    def take(self, batches: Iterable[RowBatch]) -> CommittedState | None:
        """Return the state from which the batches can be written, if any, and forget it until `put`."""
        self._taken, self._left = self._left, None
        self._stable_commits_before, self._calm = self._calm, 0
        left = self._taken if self._stable_commits_before >= STABLE_AFTER_COMMITS else None
        return left if left is not None and all(map(left.is_sufficient_for, batches)) else None

    def put(self, before: SnapshotCounters, left: CommittedState) -> None:
        """Remember the state after a committed group. before: the snapshot that the group follows.

        Snapshots are compared with their times: after a failover another one may have the id of the remembered one.
        """
        follows = self._taken is not None and self._taken.snapshot == before
        self._calm = self._stable_commits_before + 1 if follows else 0
        self._left = left.merge_older(self._taken if follows else None)


def claim_next_snapshot(
    cursor: Cursor[Row], wanted: SnapshotClaim, left: CommittedState, batches: Sequence[RowBatch]
) -> Cursor[Any]:
    """Claim the snapshot after the remembered one, as `claim_snapshot`; its row comes with the next answer.

    The transaction fails if anything isn't as remembered: with StaleSnapshotError, unless a DuckDB client holds the id.
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
