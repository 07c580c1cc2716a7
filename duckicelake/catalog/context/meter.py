"""Measure the use cases: how long each phase took, and what happened on the way.

`services.meter` is the seam. Without a measuring entry point it is `NO_METER`, which costs next to nothing.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal, Protocol

Phase = Literal[
    "freshness",  # asking Postgres whether what is cached is the newest
    "catch_up",  # folding in what DuckDB did
    "upload_read",  # reading what a client uploaded before its commit
    "rows_read",  # reading a batch of rows, and looking at each value
    "plan",  # computing a commit outside the lock; with reading uploads and, if it commits alone, materializing
    "lock_wait",  # from asking for the turn until the lock is held
    "critical_section",  # from the lock to COMMIT's return
    "duckdb_pause",  # keeping still so that DuckDB's clients get their turn
    "materialize",  # encoding manifests, lists and metadata.json, and writing them
]
Retry = Literal[
    "stale_base",  # others changed the table since the commit was planned
    "serialization",  # Postgres took back the transaction: SQLSTATE 40001, 40P01, 55P03, or 23505, a lost snapshot id
    "append_rebase",  # main moved, and the append was put on top of it
    "unasked",  # computed of a table as this process had left it, an append failed: it is asked what the table is
]
Task = Literal[
    "follow",  # the lake, into its history
    "lineage",  # events of what was followed
    "reads",  # noting what engines read
    "delta_log",  # keeping Delta logs beside tables
    "flush",  # writing a table's rows to files
    "duckdb_login",  # ending logins of DuckDB
    "uploads",  # deleting what clients uploaded for commits of long ago
    "upkeep",  # planning the lake's upkeep
]
Outcome = Literal[
    "delivered",
    "retried",  # it will be tried again
    "dead",  # the receiver refused it
    "dropped",  # too many were waiting
]


class Meter(Protocol):
    """Hears what happens. Called from many threads; never raises, and never takes long."""

    def phase(self, phase: Phase) -> AbstractContextManager[object]:
        """Measure the block, whether or not it raises."""

    def took(self, phase: Phase, seconds: float) -> None:
        """Record the seconds of a phase that is no block."""

    def count_retry(self, reason: Retry) -> None:
        """Count a retry."""

    def caught_up(self, snapshots: int) -> None:
        """Note that a table was this many of its DuckLake snapshots behind; 0 isn't noted."""

    def written_together(self, commits: int) -> None:
        """Count a committed transaction with this many clients' commits in it."""

    def rows_written(self, batches: int, rows: int) -> None:
        """Count a committed transaction with this many clients' batches of rows, and so many rows."""

    def rows_flushed(self, rows: int) -> None:
        """Count rows that went from Postgres to data files."""

    def scan_planned(self, considered: int, matched: int) -> None:
        """Count a plan of a scan, the files that were considered for it, and those that may match."""

    def lineage_sent(self, transport: str, outcome: Outcome, events: int) -> None:
        """Count events of lineage, or a try to deliver them, by result."""

    def lineage_waiting(self, transport: str, events: int) -> None:
        """Set how many events wait now for this process."""

    def task_failed(self, task: Task) -> None:
        """Count a failure of a background task."""

    def upkeep_queued(self, warehouse: str, tasks: Mapping[str, int], oldest_seconds: float) -> None:
        """Set how many tasks of upkeep a warehouse has by state, and the age of the oldest that may be taken."""

    def upkeep_failed(self, warehouse: str, attempts: Mapping[str, int]) -> None:
        """Set how many attempts at tasks of upkeep failed in the last hour, by kind."""

    def store_call(self, call: str) -> AbstractContextManager[object]:
        """Measure the block, which calls the object store; what it raises counts as a failed call."""


class _Unmeasured:
    """Hears nothing."""

    def phase(self, phase: Phase) -> AbstractContextManager[object]:  # noqa: ARG002
        return nullcontext()

    def took(self, phase: Phase, seconds: float) -> None:
        pass

    def count_retry(self, reason: Retry) -> None:
        pass

    def caught_up(self, snapshots: int) -> None:
        pass

    def written_together(self, commits: int) -> None:
        pass

    def rows_written(self, batches: int, rows: int) -> None:
        pass

    def rows_flushed(self, rows: int) -> None:
        pass

    def scan_planned(self, considered: int, matched: int) -> None:
        pass

    def lineage_sent(self, transport: str, outcome: Outcome, events: int) -> None:
        pass

    def lineage_waiting(self, transport: str, events: int) -> None:
        pass

    def task_failed(self, task: Task) -> None:
        pass

    def upkeep_queued(self, warehouse: str, tasks: Mapping[str, int], oldest_seconds: float) -> None:
        pass

    def upkeep_failed(self, warehouse: str, attempts: Mapping[str, int]) -> None:
        pass

    def store_call(self, call: str) -> AbstractContextManager[object]:  # noqa: ARG002
        return nullcontext()


NO_METER: Final[Meter] = _Unmeasured()
