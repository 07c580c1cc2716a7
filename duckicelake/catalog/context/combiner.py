"""Combine works that come at the same time, and record materialized versions together."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from threading import BoundedSemaphore, Event, Lock
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from duckicelake.lake.changes import WrittenFile
from duckicelake.lake.ducklake.snapshots import retry_transaction
from duckicelake.lake.side_tables import written_files
from duckicelake.lake.state import TableRow
from duckicelake.postgres.database import Database

MAX_TURN_THREADS: Final = 2
"""As many as a pool of the usual size can spare."""
MAX_COMBINED_CALLS: Final = 32
"""So many in one turn that others don't wait for long."""
T = TypeVar("T")
MAX_RECORDED_VERSIONS: Final = 16
"""Versions in one statement."""


class CombiningQueue(Generic[T]):
    """Let one thread at a time act for all that wait, first come, first served.

    A thread waits by `do`. Works of `enqueue` have no thread: where one of them is first, the queue's own thread acts.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._mutex = Lock()
        self._waiting: list[_Waiting[T]] = []
        self._is_taken = False
        self._thread: ThreadPoolExecutor | None = None

    def do(self, work: T, act: Callable[["CombinedBatch[T]"], None]) -> None:
        """Return after `act` was called with the work, in this thread or in another one, together with others' works.

        What `act` raises reaches only the thread that called it.
        """
        awake = Event()
        own = _Waiting([work], awake.set, awake.set)
        if self._join(own):
            awake.wait()
        if not own.is_done:
            self._act(act)

    def enqueue(self, work: T, act: Callable[["CombinedBatch[T]"], None], finish: Callable[[], None]) -> None:
        """Have `act` called with the work, together with others' works; return at once.

        finish: called afterwards in the thread that acted. What `act` raises is dropped.
        """
        context = copy_context()  # of the request, for its traces
        own = _Waiting([work], partial(self._start, partial(context.run, self._act, act)), finish)
        if not self._join(own):
            own.lead()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the queue exclusively, without work to combine."""
        awake = Event()
        own = _Waiting[T]([], awake.set, awake.set, shares=False)
        if self._join(own):
            awake.wait()
        try:
            with self._mutex:
                self._waiting.remove(own)
            yield
        finally:
            self._pass_on()

    def _act(self, act: Callable[["CombinedBatch[T]"], None]) -> None:
        """Act for the first in the line, and for those that go with it."""
        taken: list[_Waiting[T]] = []
        batch = CombinedBatch(partial(self._take, taken))
        batch.grow()
        try:
            act(batch)
        finally:
            self._pass_on()
            for waiting in taken:
                waiting.is_done = True
                waiting.finish()

    def _start(self, act: Callable[[], None]) -> None:
        """Act in the queue's own thread, which ends when the queue is deleted."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "combiner")
        self._thread.submit(act)

    def _take(self, taken: list["_Waiting[T]"], fits: Callable[[T], bool]) -> list[T]:
        """Take the works that come next: the first in any case, others as they may and fit."""
        new: list[_Waiting[T]] = []
        with self._mutex:
            for item in self._waiting:
                has_room = item.shares and len(taken) + len(new) < self._most
                if (taken or new) and not (has_room and all(map(fits, item.works))):
                    break
                new.append(item)
            del self._waiting[: len(new)]
        taken += new
        return [work for waiting in new for work in waiting.works]

    def _join(self, own: "_Waiting[T]") -> bool:
        """Join the line; return whether the turn is another's."""
        with self._mutex:
            self._waiting.append(own)
            waits, self._is_taken = self._is_taken, True
        return waits

    def _pass_on(self) -> None:
        with self._mutex:
            self._is_taken = bool(self._waiting)
            first = self._waiting[0] if self._waiting else None
        if first is not None:
            first.lead()


class CombinedBatch(list[T]):
    """What is done in one turn."""

    def __init__(self, take: Callable[[Callable[[T], bool]], list[T]]) -> None:
        super().__init__()
        self._take = take

    def grow(self, fits: Callable[[T], bool] = lambda _: True) -> list[T]:
        """Return those that have come since, as far as they fit; they are in the batch from now on."""
        new = self._take(fits)
        self += new
        return new


class CombiningQueues:
    """Queues by key; a queue without waiting threads is dropped.

    A thread that has its turn may lock out other processes, too: only a few, since a lock takes a connection.
    """

    def __init__(self, *, keepers: int = MAX_TURN_THREADS) -> None:
        self.keepers = BoundedSemaphore(keepers)
        self._mutex = Lock()
        self._lanes: WeakValueDictionary[Hashable, CombiningQueue[Any]] = WeakValueDictionary()

    def get(self, key: Hashable) -> CombiningQueue[Any]:
        """Get the queue of a key. Hold a reference while you wait: an unreferenced queue is dropped."""
        with self._mutex:
            return self._lanes.setdefault(key, CombiningQueue(MAX_COMBINED_CALLS))


class _Waiting(Generic[T]):
    """A place in the line. lead: gives it the turn. finish: called once others have acted for its works."""

    def __init__(
        self, works: Sequence[T], lead: Callable[[], None], finish: Callable[[], None], *, shares: bool = True
    ) -> None:
        self.works = works
        self.lead = lead
        self.finish = finish
        self.shares = shares
        self.is_done = False


@dataclass(slots=True, eq=False)
class _Recording:
    row: TableRow
    files: Sequence[WrittenFile]
    counts: bool | None = None
    """None until it is recorded; it stays so if the thread that recorded it with others failed."""


class VersionRecorder:
    """Record the written versions of one process, several in one statement."""

    def __init__(self) -> None:
        self._turns = CombiningQueue[_Recording](MAX_RECORDED_VERSIONS)

    def record(self, database: Database, row: TableRow, files: Sequence[WrittenFile]) -> bool:
        """Record the files of a version; return whether its metadata.json counts (`record_versions`)."""
        own = _Recording(row, files)
        self._turns.do(own, partial(_record, database))
        if own.counts is None:
            _record(database, [own])
        return bool(own.counts)


def _record(database: Database, recordings: Sequence[_Recording]) -> None:
    def attempt() -> list[bool]:
        with database.statement() as cursor:
            return written_files.record_versions(cursor, [(item.row, item.files) for item in recordings])

    for recording, counts in zip(recordings, retry_transaction(attempt), strict=True):
        recording.counts = counts
