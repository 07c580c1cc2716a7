"""Which stores of followed Delta tables answer: those that don't rest, and no look waits for one that hangs."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from time import monotonic
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from duckicelake.delta.import_.sources import DeltaSource
from duckicelake.errors import StoreRestingError, UnavailableError
from duckicelake.postgres.database import Database
from duckicelake.storage.threads import DaemonCall, run_in_parallel

_FIRST_ANSWER_SECONDS: Final = 10.0
"""For which a store is waited for that has answered so far: it may retry, be cold, or have many requests."""
_ANSWER_SECONDS: Final = 3.0
"""For which a store is waited for that did not answer the last time."""
_MIN_REST_SECONDS: Final = 5.0
"""Of the first rest; each later one is twice as long."""
_MAX_REST_SECONDS: Final = 60.0
_MAX_DOUBLINGS: Final = 10
_SILENT_SECONDS: Final = 3.0
"""For which a request waits for a store that answers nothing. A task waits longer."""
_REQUEST_SECONDS: Final = 20.0
"""For which a request waits for stores that answer."""
_CHECK_SECONDS: Final = 0.05
_REST_RATIO: Final = 5.0
"""A store that held a worker rests for so many times as long: waits of up to 12 s take a sixth of a worker's time."""


@dataclass(frozen=True, slots=True)
class StoreRest:
    """Why a store isn't asked, and until when, by `monotonic`. failures: since its last answer.

    is_firm: an answer to another request doesn't end it.
    """

    ends_at: float
    error: UnavailableError
    failures: int
    is_firm: bool

    @property
    def is_over(self) -> bool:
        """Whether the store may be asked again."""
        return monotonic() >= self.ends_at

    def build_error(self, waited_seconds: float = 0.0) -> UnavailableError:
        """Build the error of a task that finds its store at rest: only from the second failure on it is an attempt."""
        message = f"{self.error}; its store is left alone for a while"
        if self.failures > 1:
            return UnavailableError(message)
        return StoreRestingError(message, self.ends_at - monotonic() + waited_seconds)


class StoreRests:
    """Which stores rest, by bucket. Each process finds it out for itself.

    Attributes:
        looks: those that have begun, by bucket.
        asked: the last look of a request at each bucket, which may go on.

    """

    def __init__(self) -> None:
        self.looks: dict[str, BucketLook] = {}
        self.asked: dict[str, BucketLook] = {}
        self._lock = Lock()
        self._rests: dict[str, StoreRest] = {}
        """The last one of each bucket that has not answered since."""

    def find(self, root: str) -> StoreRest | None:
        """Find the rest of the store of a folder; None if it may be asked."""
        found = self._rests.get(find_bucket(root))
        return None if found is None or found.is_over else found

    def begin(self, root: str, error: UnavailableError, waited_seconds: float = 0.0) -> bool:
        """Let the store of a folder rest that didn't answer; False if it does so already.

        waited_seconds: for which it held a worker after it had answered another request.
        """
        bucket = find_bucket(root)
        with self._lock:
            last = self._rests.get(bucket)
            if last is not None and not last.is_over:
                return False
            failures = 1 if last is None else last.failures + 1
            growing = _MIN_REST_SECONDS * 2.0 ** min(failures - 1, _MAX_DOUBLINGS)
            seconds = min(_MAX_REST_SECONDS, max(growing, _REST_RATIO * waited_seconds))
            self._rests[bucket] = StoreRest(monotonic() + seconds, error, failures, waited_seconds > 0)
        return True

    def note_answer(self, root: str) -> None:
        """Let the store of a folder be asked again, as it has answered."""
        bucket = find_bucket(root)
        with self._lock:
            last = self._rests.get(bucket)
            if last is not None and (last.is_over or not last.is_firm):
                del self._rests[bucket]

    def find_answer_seconds(self, root: str) -> float:
        """Find for how many seconds the store of a folder is waited for."""
        return _ANSWER_SECONDS if find_bucket(root) in self._rests else _FIRST_ANSWER_SECONDS

    def is_free(self, root: str) -> bool:
        """Return whether a look at the store of a folder may begin: a look that hangs is the last until an answer."""
        bucket = find_bucket(root)
        look = self.looks.get(bucket)
        if look is None or look.wait(0) or (look.is_given_up and bucket not in self._rests):
            return self.find(root) is None
        return False


_RESTS: Final[WeakKeyDictionary[Database, StoreRests]] = WeakKeyDictionary()
_LOCK: Final = Lock()


def find_rests(database: Database) -> StoreRests:
    """Find the rests of a lake's stores; each lake has its own, as it may have its own profile."""
    with _LOCK:
        return _RESTS.setdefault(database, StoreRests())


def find_bucket(root: str) -> str:
    """Find the bucket of a folder's URI, which stands for its store."""
    parts = urlsplit(root)
    return f"{parts.scheme}://{parts.netloc}"


FoundTable = tuple[DeltaSource, str]
"""A followed table, and why it is due."""


class BucketLook:
    """A look at followed tables of one bucket, in threads of its own that may hang.

    Attributes:
        first: the table that stands for all if the store hangs.
        is_given_up: whether the store was found to hang.

    """

    def __init__(self, followed: Sequence[DeltaSource], find_reason: Callable[[DeltaSource], str | None]) -> None:
        """Begin to look at each table."""
        self.first = followed[0]
        self.is_given_up = False
        self._find_reason = find_reason
        self._found: deque[FoundTable] = deque()
        self._open = {source.table_id: source for source in followed}
        self._answered_at = monotonic()
        self._call = DaemonCall(partial(run_in_parallel, self._look, followed))

    def wait(self, seconds: float) -> bool:
        """Wait for the end for so many seconds; return whether it has come."""
        return self._call.wait(seconds)

    def take_found(self) -> list[FoundTable]:
        """Take what was found since the last call."""
        return [self._found.popleft() for _ in range(len(self._found))]

    def list_open(self) -> list[DeltaSource]:
        """List the tables that it isn't done with."""
        return list(self._open.values())

    @property
    def silent_seconds(self) -> float:
        """For how many seconds no table was done with."""
        return monotonic() - self._answered_at

    def _look(self, source: DeltaSource) -> None:
        reason = self._find_reason(source)
        self._answered_at = monotonic()
        if reason is not None:
            self._found.append((source, reason))
        del self._open[source.table_id]


def look_at_buckets(
    rests: StoreRests,
    followed: Sequence[DeltaSource],
    find_reason: Callable[[DeltaSource], str | None],
    seconds: float,
) -> list[FoundTable]:
    """Begin to look at tables of buckets that are free; return what all looks have found within so many seconds.

    Looks that take longer go on, and a later call returns what they find. A store that hangs is there with one table.
    """
    found = [table for look in rests.looks.values() for table in look.take_found()]
    begun = {bucket: BucketLook(tables, find_reason) for bucket, tables in _group_by_bucket(followed).items()}
    rests.looks.update(begun)
    ends_at = monotonic() + seconds
    for look in begun.values():
        look.wait(max(0.0, ends_at - monotonic()))
    for bucket, look in list(rests.looks.items()):
        if look.wait(0):
            del rests.looks[bucket]
        elif not look.is_given_up and look.silent_seconds > rests.find_answer_seconds(look.first.root):
            found += _give_up(rests, look)
        found += look.take_found()
    return [*{source.table_id: (source, reason) for source, reason in found}.values()]


def _group_by_bucket(followed: Sequence[DeltaSource]) -> dict[str, list[DeltaSource]]:
    groups: dict[str, list[DeltaSource]] = {}
    for source in followed:
        groups.setdefault(find_bucket(source.root), []).append(source)
    return groups


def ask_buckets(
    rests: StoreRests, followed: Sequence[DeltaSource], find_reason: Callable[[DeltaSource], str | None]
) -> list[FoundTable]:
    """Look at tables for a request; return those with a reason, and those whose stores did not answer in time.

    One request at a time looks at a bucket, so that a store that hangs holds the threads of one.
    """
    found, begun, ends_at = list[FoundTable](), list[BucketLook](), monotonic() + _REQUEST_SECONDS
    for bucket, tables in _group_by_bucket(followed).items():
        earlier = rests.asked.get(bucket)
        if earlier is None or earlier.wait(0):
            rests.asked[bucket] = look = BucketLook(tables, find_reason)
            begun.append(look)
        else:
            found += [(source, f"another request waits for the store of {source.root}") for source in tables]
    for look in begun:
        while not look.wait(_CHECK_SECONDS) and look.silent_seconds < _SILENT_SECONDS and monotonic() < ends_at:
            continue
        found += [(source, f"the store of {source.root} did not answer in time") for source in look.list_open()]
        found += look.take_found()
    return [*{source.table_id: (source, reason) for source, reason in found}.values()]


def _give_up(rests: StoreRests, look: BucketLook) -> list[FoundTable]:
    """Let the store of a look rest that hangs, which goes on. A task asks the store again after its rest."""
    look.is_given_up = True
    source = look.first
    error = UnavailableError(f"the store of {source.root} did not answer for {look.silent_seconds:.0f} seconds")
    return [(source, describe_failed_look(source))] if rests.begin(source.root, error) else []


def describe_failed_look(source: DeltaSource) -> str:
    """Say that the next version of a table can't be looked for."""
    return f"version {source.position.version + 1} can not be looked for"
