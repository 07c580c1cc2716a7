"""Group commit: waiting commits share one Postgres transaction, with pauses for DuckDB's writers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, sleep
from typing import Any, Final, Generic, Protocol, TypeVar

from duckicelake.catalog.context.audit_notes import AuditNote, note_all
from duckicelake.catalog.context.combiner import CombinedBatch, CombiningQueue
from duckicelake.catalog.context.idempotency import Once, settle_results
from duckicelake.catalog.context.meter import Meter
from duckicelake.errors import CommitStateUnknownError, UnavailableError
from duckicelake.lake.changes import ChangeSet, WrittenCommit, is_as_predicted
from duckicelake.lake.conflicts import StaleSnapshotError
from duckicelake.lake.ducklake.snapshots import (
    DuckDBContention,
    SnapshotCounters,
    hold_queue,
    lock_in_queue,
    lock_writers,
    observe_duckdb,
    read_last_snapshot,
    retry_transaction,
)
from duckicelake.lake.inlined import inserts as inlined_rows
from duckicelake.lake.inlined.batches import RowBatch, WrittenRows
from duckicelake.lake.inlined.last_commit import STABLE_AFTER_COMMITS, LastCommit
from duckicelake.lake.writer.groups import ChangeSetGroup
from duckicelake.postgres.database import Database
from duckicelake.postgres.failures import is_retryable
from duckicelake.postgres.pipeline import measure_lock_seconds
from duckicelake.postgres.queries import Transaction

MIN_PAUSE_SECONDS: Final = 0.025
MAX_PAUSE_SECONDS: Final = 0.25
"""Seconds of a pause."""
_FIRST: Final = 0.05
_SUSPECTED: Final = 2.0
"""Seconds for which one that seems to have lost is left pauses: it tries again several times meanwhile."""
_SHARE: Final = 1.5
"""Seconds of a pause for each second that our last transaction had a snapshot id, if that is more."""
_SHORTER: Final = 0.8
_LONGER: Final = 1.5
_OBSERVED_SECONDS: Final = 5.0
"""Seconds after which a client that doesn't lose any more is taken to be gone; the longest wait of DuckDB's own."""
MAX_GROUP_COMMITS: Final = 64
"""Commits in one transaction, so that others don't wait for long."""
Settle = Callable[[Transaction, Sequence[WrittenCommit]], None]
"""The last step of a transaction, given what was written."""
W = TypeVar("W")
R = TypeVar("R")


class DuckDBBackoff:
    """Pauses between our commits, in which DuckDB's clients get a snapshot id; used by one thread at a time."""

    def __init__(self) -> None:
        self._until = 0.0
        self._pause = _FIRST
        self._held = 0.0

    def wait(self, cursor: Transaction, meter: Meter) -> None:
        """Wait until DuckDB's clients have had their pause. The caller holds the lock, so no other commit of ours runs.

        The next pause is shorter if a client of DuckDB's used this one, else longer.
        """
        if monotonic() >= self._until:
            return
        before, age = read_last_snapshot(cursor)
        pause = max(self._pause, _SHARE * self._held)
        if age > self._held + pause:
            return
        with meter.phase("duckdb_pause"):
            sleep(pause)
        after, _ = read_last_snapshot(cursor)
        factor = _SHORTER if after > before else _LONGER
        self._pause = min(max(self._pause * factor, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)

    def observe(self, seen: DuckDBContention, held: float, *, are_quick: bool) -> None:
        """Learn from DuckDB's clients, as seen before COMMIT of a transaction that held a snapshot id.

        held: seconds between taking the snapshot id and COMMIT.

        are_quick: such transactions are so short that a client which loses is hardly ever seen to wait.
        """
        self._held = held
        now = monotonic()
        if now >= self._until:
            self._pause = _FIRST
        if seen.is_waiting:
            self._until = now + _OBSERVED_SECONDS
        elif seen.has_lost and are_quick:
            self._until = max(self._until, now + _SUSPECTED)


class CommitGroup(Protocol):
    """Works of one kind, begun in one transaction."""

    def write(self) -> Sequence[Any]:
        """Write the works; returns a result or an error for every one. Raises an error of the whole group."""

    def finish(self) -> None:
        """Write what no other statement of the transaction needs, after `settle`."""

    def remember_snapshot(self) -> None:
        """Remember the lake's last commit, after COMMIT."""


@dataclass(slots=True)
class QueuedWork(Generic[W, R]):
    """A unit of work that waits in the queue; it is written whole or not at all."""

    changes: W
    since: float = field(default_factory=monotonic)
    outcome: R | Exception | None = None

    @staticmethod
    def begin(cursor: Transaction, works: Sequence[Any], last: LastCommit) -> CommitGroup:
        """Begin to write the changes of several of this kind."""
        raise NotImplementedError

    @staticmethod
    def settle_all(database: Database, cursor: Transaction, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Settle several works of this kind, as the last step of their transaction."""
        raise NotImplementedError

    @staticmethod
    def report(meter: Meter, results: Sequence[Any]) -> None:
        """Report to the meter what was committed in one transaction."""
        raise NotImplementedError

    def result(self) -> R:
        """Return what was written, or raise the error."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome is None:
            raise CommitStateUnknownError("The server was stopped while it wrote the commit")
        return self.outcome


@dataclass(slots=True)
class QueuedCommit(QueuedWork[Sequence[ChangeSet], Sequence[WrittenCommit]]):
    """Changes of tables, computed from what these are. settle: the last step of the transaction, given the result."""

    settle: Settle = field(kw_only=True)

    @staticmethod
    def begin(cursor: Transaction, works: Sequence[Any], last: LastCommit) -> CommitGroup:
        return ChangeSetGroup(cursor, works, last)

    @staticmethod
    def settle_all(database: Database, cursor: Transaction, pairs: Sequence[tuple[Any, Any]]) -> None:  # noqa: ARG004
        for pair, result in pairs:
            pair.settle(cursor, result)

    @staticmethod
    def report(meter: Meter, results: Sequence[Any]) -> None:
        meter.written_together(len(results))


@dataclass(slots=True)
class QueuedRows(QueuedWork[RowBatch, WrittenRows]):
    """Rows for one table. once: the request, if it must not run twice. noted: for the audit trail."""

    once: Once | None = field(kw_only=True)
    noted: Callable[[WrittenRows], AuditNote] = field(kw_only=True)

    @staticmethod
    def begin(cursor: Transaction, works: Sequence[Any], last: LastCommit) -> CommitGroup:
        return inlined_rows.RowsGroup(cursor, works, last)

    @staticmethod
    def settle_all(database: Database, cursor: Transaction, pairs: Sequence[tuple[Any, Any]]) -> None:
        keyed = [(pair.once, _as_parsed(result)) for pair, result in pairs if pair.once is not None]
        settle_results(cursor, keyed)
        note_all(database, cursor, [pair.noted(result) for pair, result in pairs])

    @staticmethod
    def report(meter: Meter, results: Sequence[WrittenRows]) -> None:
        meter.rows_written(len(results), sum(result.count for result in results))


def _as_parsed(written: WrittenRows) -> tuple[int, int, int]:
    """Return what is noted of rows, so that the request is answered again (`rows.inserts.RowsAnswer`)."""
    return written.snapshot_id, written.count, written.first_row_id


Join = Callable[[], Sequence[QueuedWork[Any, Any]]]
"""Gives works that have come since a group was put together, and that go with it."""


def _is_of(kind: type[QueuedWork[Any, Any]], work: QueuedWork[Any, Any]) -> bool:
    return type(work) is kind


class CommitQueue:
    """Queue of the commits of one process; waiting commits hold no connection."""

    def __init__(self, expected_commits: int = STABLE_AFTER_COMMITS) -> None:
        """Make a queue. expected_commits: so many of the last commits got the snapshot ids they were planned for."""
        self._turns = CombiningQueue[QueuedWork[Any, Any]](MAX_GROUP_COMMITS)
        self._backoff = DuckDBBackoff()
        self._expected_commits = expected_commits
        self.is_calm = expected_commits >= STABLE_AFTER_COMMITS
        """Whether the last commits got the snapshot ids that they were planned for."""
        self._is_crowded = False
        self._last = LastCommit()

    def note_snapshot(self, newest: SnapshotCounters) -> None:
        """Remember a DuckLake snapshot that this process made without the queue."""
        self._last.put_snapshot(newest)

    def write(self, database: Database, meter: Meter, commit: QueuedWork[W, R]) -> R:
        """Write the commit, together with others that wait; StaleBaseError, and what the writer and `settle` raise."""
        self._turns.do(commit, partial(self._write_all, database, meter))
        return commit.result()

    def enqueue(
        self, database: Database, meter: Meter, commit: QueuedWork[Any, Any], finish: Callable[[], None]
    ) -> None:
        """Write the commit as `write` does, but return at once; `finish` is called when its outcome is set."""
        self._turns.enqueue(commit, partial(self._write_all, database, meter), finish)

    @contextmanager
    def alone(self, database: Database) -> Iterator[None]:
        """Keep all other commits waiting, in other processes, too; what is to be written goes through `write_alone`."""
        with self._turns.alone(), database.statement() as cursor, hold_queue(cursor):
            yield

    def write_alone(self, database: Database, meter: Meter, commit: QueuedWork[W, R]) -> R:
        """Write the commit within `alone`, and raise as `write` does."""
        self._write_alike(database, meter, [commit], is_alone=True)
        return commit.result()

    def _write_all(self, database: Database, meter: Meter, batch: CombinedBatch[QueuedWork[Any, Any]]) -> None:
        """Set every outcome; every kind of work has its own transaction."""
        count = 0
        for kind in dict.fromkeys(map(type, batch)):
            group = [work for work in batch if type(work) is kind]
            self._write_alike(database, meter, group, partial(batch.grow, partial(_is_of, kind)))
            count += len(group)
        self._is_crowded = count > 1

    def _write_alike(
        self,
        database: Database,
        meter: Meter,
        group: list[QueuedWork[Any, Any]],
        join: Join = list,
        *,
        is_alone: bool = False,
    ) -> None:

        def again(error: BaseException) -> bool:
            """Return whether to retry. A group may fail by one commit: its works are then written one by one."""
            if len(group) > 1 or not is_retryable(error):
                return False
            meter.count_retry("serialization")
            return True

        def attempt() -> None:
            try:
                self._attempt(database, meter, group, join, is_alone=is_alone)
            except StaleSnapshotError:
                self._attempt(database, meter, group, join, is_alone=is_alone)

        try:
            retry_transaction(attempt, again)
        except (UnavailableError, CommitStateUnknownError) as error:
            for item in group:
                item.outcome = error
        except Exception as error:  # noqa: BLE001 - what it is becomes the outcome of the commit that made it
            if len(group) == 1:
                group[0].outcome = error
                return
            for work in group:
                self._write_alike(database, meter, [work])

    def _attempt(
        self, database: Database, meter: Meter, group: list[QueuedWork[Any, Any]], join: Join, *, is_alone: bool
    ) -> None:
        """Write all works whose base still holds in one transaction; outcomes are set after COMMIT.

        Where many write, other processes are waited for first: what has come meanwhile joins the group.
        """
        with database.transaction(pipelined=True) as cursor:
            (lock_writers if is_alone else lock_in_queue)(cursor)
            self._backoff.wait(cursor, meter)
            if self._is_crowded or len(group) > 1:
                cursor.fetchone()
                group += join()
            together = group[0].begin(cursor, [work.changes for work in group], self._last)
            locked, measure, held = monotonic(), measure_lock_seconds(cursor), list[float]()
            database.after_commit(cursor, lambda: held.append(measure()))
            database.after_commit(cursor, together.remember_snapshot)
            results = together.write()
            pairs = [pair for pair in zip(group, results, strict=True) if not isinstance(pair[1], Exception)]
            group[0].settle_all(database, cursor, pairs)
            together.finish()
            seen = observe_duckdb(cursor)
        self._backoff.observe(seen(), held[0], are_quick=isinstance(group[0], QueuedRows))
        written = [result for result in results if not isinstance(result, Exception)]
        if isinstance(group[0], QueuedCommit):
            self._observe_prediction(written)
        group[0].report(meter, written)
        meter.took("critical_section", held[0])
        for work, result in zip(group, results, strict=True):
            meter.took("lock_wait", locked - work.since)
            work.outcome = result

    def _observe_prediction(self, results: Sequence[Sequence[WrittenCommit]]) -> None:
        is_expected = all(is_as_predicted(commit) for written in results for commit in written)
        self._expected_commits = self._expected_commits + 1 if is_expected else 0
        self.is_calm = self._expected_commits >= STABLE_AFTER_COMMITS
