"""Group commit: commits that wait at the same time share one Postgres transaction, each with snapshots of its own.

In one process, who comes first writes all that came meanwhile. One that no longer holds is left out, and one that
Postgres refuses has all of them written one by one. Several processes wait for each other in Postgres.

Batches of rows wait in the same line and share a transaction with each other, and one snapshot.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeVar

from duckicelake.catalog.auditing import Noted, note_all
from duckicelake.catalog.commits.courtesy import Courtesy
from duckicelake.catalog.commits.turns import Batch, Turns
from duckicelake.catalog.idempotency import Once, settle_results
from duckicelake.catalog.measuring import Meter
from duckicelake.errors import CommitStateUnknown, Unavailable
from duckicelake.lake.changes import ChangeSet, Written
from duckicelake.lake.foreseen import is_as_expected
from duckicelake.lake.postgres.database import Database, Overtaken, Transaction, is_retryable
from duckicelake.lake.postgres.pipelines import holding
from duckicelake.lake.rows import inserts as inlined_rows
from duckicelake.lake.rows.batches import RowBatch, WrittenRows
from duckicelake.lake.rows.memory import Memory
from duckicelake.lake.snapshots import Counters, duckdb_seen, lock, queue, queue_alone, retrying
from duckicelake.lake.writing import writer
from duckicelake.lake.writing.following import LastSnapshot

MOST: Final = 64
"""Commits in one transaction, so that others don't wait for long."""
CALM: Final = 4
"""Commits in a row that got the snapshot ids they were planned for, after which the next is expected to."""


@dataclass(frozen=True, slots=True)
class Memories:
    """How this process has left the lake, for works of each kind."""

    rows: Memory = field(default_factory=Memory)
    snapshot: LastSnapshot = field(default_factory=LastSnapshot)


Settle = Callable[[Transaction, Sequence[Written]], None]
"""The last step of a transaction, given what was written."""
W = TypeVar("W")
R = TypeVar("R")


class Group(Protocol):
    """Works of one kind, begun in a transaction."""

    def write(self) -> Sequence[Any]:
        """What becomes of each: its result, or why it can't be written. What is raised is of all of them."""

    def finish(self) -> None:
        """Write what needed to be known by nobody, after the last step of those that are written."""

    def committed(self) -> None:
        """Hear that the transaction is."""


@dataclass(slots=True)
class Work(Generic[W, R]):
    """What is written as a whole or not at all."""

    changes: W
    since: float = field(default_factory=monotonic)
    outcome: R | Exception | None = None

    @staticmethod
    def begin(cursor: Transaction, works: Sequence[Any], memories: Memories) -> Group:
        """Begin to write the changes of several of this kind."""
        raise NotImplementedError

    @staticmethod
    def settle_all(database: Database, cursor: Transaction, pairs: Sequence[tuple[Any, Any]]) -> None:
        """The last step of several of this kind, each with its result."""
        raise NotImplementedError

    @staticmethod
    def tell(meter: Meter, results: Sequence[Any]) -> None:
        """Tell the meter of what was committed together."""
        raise NotImplementedError

    def result(self) -> R:
        """What was written; raises what it failed with."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome is None:
            raise CommitStateUnknown("The server was stopped while it wrote the commit")
        return self.outcome


@dataclass(slots=True)
class Commit(Work[Sequence[ChangeSet], Sequence[Written]]):
    """Changes of tables, computed from what these are. settle: the last step of the transaction, given the result."""

    settle: Settle = field(kw_only=True)

    @staticmethod
    def begin(cursor: Transaction, works: Sequence[Any], memories: Memories) -> Group:
        return writer.Group(cursor, works, memories.snapshot)

    @staticmethod
    def settle_all(database: Database, cursor: Transaction, pairs: Sequence[tuple[Any, Any]]) -> None:  # noqa: ARG004
        for each, result in pairs:
            each.settle(cursor, result)

    @staticmethod
    def tell(meter: Meter, results: Sequence[Any]) -> None:
        meter.written_together(len(results))


@dataclass(slots=True)
class RowsCommit(Work[RowBatch, WrittenRows]):
    """Rows for one table. once: the request, if it must not run twice. noted: for the audit trail."""

    once: Once | None = field(kw_only=True)
    noted: Callable[[WrittenRows], Noted] = field(kw_only=True)

    @staticmethod
    def begin(cursor: Transaction, works: Sequence[Any], memories: Memories) -> Group:
        return inlined_rows.Group(cursor, works, memories.rows)

    @staticmethod
    def settle_all(database: Database, cursor: Transaction, pairs: Sequence[tuple[Any, Any]]) -> None:
        keyed = [(each.once, _as_told(result)) for each, result in pairs if each.once is not None]
        settle_results(cursor, keyed)
        note_all(database, cursor, [each.noted(result) for each, result in pairs])

    @staticmethod
    def tell(meter: Meter, results: Sequence[WrittenRows]) -> None:
        meter.rows_written(len(results), sum(result.count for result in results))


def _as_told(written: WrittenRows) -> tuple[int, int, int]:
    """What is noted of rows, so that the request is answered again (`rows.inserts.RowsAnswer`)."""
    return written.snapshot_id, written.count, written.first_row_id


Join = Callable[[], Sequence[Work[Any, Any]]]
"""Gives works that have come since a group was put together, and that go with it."""
_NO_MORE: Final[Mapping[type[Work[Any, Any]], Join]] = {}


def _all_of(joins: Sequence[Join]) -> list[Work[Any, Any]]:
    return [each for join in joins for each in join()]


def _is_of(kind: type[Work[Any, Any]], work: Work[Any, Any]) -> bool:
    return type(work) is kind


class CommitQueue:
    """Where the commits of one process wait, holding no connection that others need."""

    def __init__(self, foreseen: int = CALM) -> None:
        """foreseen: so many of the last commits got the snapshot ids that they were planned for."""
        self._turns = Turns[Work[Any, Any]](MOST)
        self._courtesy = Courtesy()
        self._foreseen = foreseen
        self._is_crowded = False
        self._memories = Memories()

    @property
    def is_calm(self) -> bool:
        """Whether nobody else has committed between the planning and the writing of the last commits."""
        return self._foreseen >= CALM

    def note_snapshot(self, newest: Counters) -> None:
        """Hear of a DuckLake snapshot that this process has made past the queue."""
        self._memories.snapshot.put(newest)

    def write(self, database: Database, meter: Meter, commit: Work[W, R]) -> R:
        """Write the commit, with others if they wait, too; StaleBase, and what `writer.write` and `settle` raise."""
        self._turns.do(commit, partial(self._write_all, database, meter))
        return commit.result()

    def write_together(
        self, database: Database, meter: Meter, commits: Sequence[Work[Any, Any]], more: Join = list
    ) -> None:
        """Write the commits, and those of the same kind that `more` gives; each knows its outcome then."""
        self._turns.do_all(commits, partial(self._write_all, database, meter, more={type(commits[0]): more}))

    @contextmanager
    def alone(self, database: Database) -> Iterator[None]:
        """Keep all other commits waiting, in other processes, too; what is to be written goes through `write_alone`."""
        with self._turns.alone(), database.statement() as cursor, queue_alone(cursor):
            yield

    def write_alone(self, database: Database, meter: Meter, commit: Work[W, R]) -> R:
        """Write the commit within `alone`, and raise as `write` does."""
        self._write_alike(database, meter, [commit], is_alone=True)
        return commit.result()

    def _write_all(
        self,
        database: Database,
        meter: Meter,
        batch: Batch[Work[Any, Any]],
        more: Mapping[type[Work[Any, Any]], Join] = _NO_MORE,
    ) -> None:
        """Settle the outcome of each; each kind has a transaction of its own."""
        count = 0
        for kind in dict.fromkeys(map(type, batch)):
            group = [each for each in batch if type(each) is kind]
            joins = (partial(batch.grow, partial(_is_of, kind)), more.get(kind, list))
            self._write_alike(database, meter, group, partial(_all_of, joins))
            count += len(group)
        self._is_crowded = count > 1

    def _write_alike(
        self,
        database: Database,
        meter: Meter,
        group: list[Work[Any, Any]],
        join: Join = list,
        *,
        is_alone: bool = False,
    ) -> None:

        def again(error: BaseException) -> bool:
            """In a group it may be one commit's fault: then they are written one by one."""
            if len(group) > 1 or not is_retryable(error):
                return False
            meter.retried("serialization")
            return True

        def attempt() -> None:
            try:
                self._attempt(database, meter, group, join, is_alone=is_alone)
            except Overtaken:
                self._attempt(database, meter, group, join, is_alone=is_alone)

        try:
            retrying(attempt, again)
        except (Unavailable, CommitStateUnknown) as error:
            for each in group:
                each.outcome = error
        except Exception as error:  # noqa: BLE001 - what it is becomes the outcome of the commit that made it
            if len(group) == 1:
                group[0].outcome = error
                return
            for each in group:
                self._write_alike(database, meter, [each])

    def _attempt(
        self, database: Database, meter: Meter, group: list[Work[Any, Any]], join: Join, *, is_alone: bool
    ) -> None:
        """One transaction with all that still hold; nobody has an outcome before its COMMIT.

        Where many write, other processes are waited for first: what has come meanwhile joins the group.
        """
        with database.transaction(pipelined=True) as cursor:
            (lock if is_alone else queue)(cursor)
            self._courtesy.keep(cursor, meter)
            if self._is_crowded or len(group) > 1:
                cursor.fetchone()
                group += join()
            together = group[0].begin(cursor, [each.changes for each in group], self._memories)
            locked, held = monotonic(), holding(cursor)
            database.after_commit(cursor, lambda: meter.took("critical_section", held()))
            database.after_commit(cursor, together.committed)
            results = together.write()
            pairs = [pair for pair in zip(group, results, strict=True) if not isinstance(pair[1], Exception)]
            group[0].settle_all(database, cursor, pairs)
            together.finish()
            seen = duckdb_seen(cursor)
        self._courtesy.noted(seen(), held(), are_quick=isinstance(group[0], RowsCommit))
        written = [result for result in results if not isinstance(result, Exception)]
        if isinstance(group[0], Commit):
            self._note_calm(written)
        for each, result in zip(group, results, strict=True):
            meter.took("lock_wait", locked - each.since)
            each.outcome = result
        group[0].tell(meter, written)

    def _note_calm(self, results: Sequence[Sequence[Written]]) -> None:
        if all(is_as_expected(each) for written in results for each in written):
            self._foreseen += 1
        else:
            self._foreseen = 0
