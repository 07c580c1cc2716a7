"""The state of the lake after this process's last commit, which saves the next commit its questions."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from psycopg import Cursor

from duckicelake.lake.ducklake.snapshots import SnapshotClaim, SnapshotCounters
from duckicelake.lake.inlined.batches import RowBatch
from duckicelake.lake.inlined.targets import LockedState, LockedTable
from duckicelake.lake.txn import TxnApp
from duckicelake.postgres.pipeline import json_param
from duckicelake.postgres.queries import Row, load_queries

STABLE_AFTER_COMMITS: Final = 4
"""Commits in a row that came out as expected, after which the next one is expected to."""
MAX_REMEMBERED_TABLES: Final = 1024
"""Tables, and apps, that are remembered."""

_SQL = load_queries("lake", "rows")


@dataclass(frozen=True, slots=True)
class CommittedState:
    """The newest snapshot, which this process made, and the state of some tables and apps with it."""

    snapshot: SnapshotCounters
    tables: Mapping[int, LockedTable] = field(default_factory=dict)
    txn_versions: Mapping[TxnApp, int] = field(default_factory=dict)

    def is_sufficient_for(self, batch: RowBatch) -> bool:
        """Return whether the batch can be written from this state: it only brings rows for a remembered table."""
        is_plain = not batch.files and not batch.has_new_table and batch.untouched_since is None
        return is_plain and batch.table_id in self.tables and (batch.txn is None or batch.app in self.txn_versions)

    def now(self) -> LockedState:
        """Return what batches depend on, with the next snapshot."""
        return LockedState(dict(self.tables), dict(self.txn_versions), set())

    def forget_tables(self, table_ids: Collection[int]) -> "CommittedState":
        """Return the state without these tables and their apps, and without any if there are too many."""
        if len(self.tables) > MAX_REMEMBERED_TABLES or len(self.txn_versions) > MAX_REMEMBERED_TABLES:
            return CommittedState(self.snapshot)
        return CommittedState(
            self.snapshot,
            {table_id: table for table_id, table in self.tables.items() if table_id not in table_ids},
            {app: version for app, version in self.txn_versions.items() if app.table_id not in table_ids},
        )


class LastCommit:
    """Remembers what this process's last commit left, for the next one. Used by one thread at a time.

    A commit takes the state and puts its own after COMMIT. Postgres checks that no other commit came in between.
    """

    def __init__(self) -> None:
        self._state: CommittedState | None = None
        self._taken: CommittedState | None = None
        self._successive = self._successive_before = 0

    def take_snapshot(self) -> SnapshotCounters | None:
        """Return the newest snapshot, if this process made it; forget the state until the next `put`."""
        self._taken, self._state = self._state, None
        self._successive_before, self._successive = self._successive, 0
        return None if self._taken is None else self._taken.snapshot

    def take_for_rows(self, batches: Iterable[RowBatch]) -> CommittedState | None:
        """Return the state from which the batches can be written, if any; forget it until the next `put`."""
        self.take_snapshot()
        taken = self._taken if self._successive_before >= STABLE_AFTER_COMMITS else None
        return taken if taken is not None and all(map(taken.is_sufficient_for, batches)) else None

    def put(self, before: SnapshotCounters, after: CommittedState, changed: Collection[int]) -> None:
        """Remember the state after a commit. before: the snapshot that it follows. changed: the tables it has changed.

        What the state before says of other tables still holds if the commit follows that. Snapshots are compared with
        their times: after a failover another one may have the id of the remembered one.
        """
        taken = self._taken
        if taken is None or taken.snapshot != before:
            self._successive, self._state = 0, after
            return
        older = taken.forget_tables(changed)
        self._successive = self._successive_before + 1
        self._state = CommittedState(
            after.snapshot, {**older.tables, **after.tables}, {**older.txn_versions, **after.txn_versions}
        )

    def put_snapshot(self, snapshot: SnapshotCounters) -> None:
        """Remember the newest snapshot alone, which this process made by other means than a commit."""
        self._state = CommittedState(snapshot)


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
