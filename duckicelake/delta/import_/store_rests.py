"""Leave a store alone for a while that didn't answer: each table there would wait for it just as long."""

from threading import Lock
from time import monotonic
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from duckicelake.errors import UnavailableError
from duckicelake.postgres.database import Database

REST_RATIO: Final = 5.0
"""A store rests for so many times as long as it was waited for, so that this takes a sixth of a worker's time."""
MIN_REST_SECONDS: Final = 5.0
MAX_REST_SECONDS: Final = 60.0


class StoreRests:
    """Which stores rest, by bucket. Each process finds it out for itself."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._rests: dict[str, tuple[float, UnavailableError]] = {}
        """By bucket: when its rest ends, by `monotonic`, and why it rests."""

    def find(self, root: str) -> UnavailableError | None:
        """Find why the store of a folder rests; None if it doesn't."""
        ends_at, error = self._rests.get(_find_bucket(root), (0.0, None))
        return error if monotonic() < ends_at else None

    def begin(self, root: str, error: UnavailableError, waited_seconds: float) -> bool:
        """Let the store of a folder rest that didn't answer for so long; False if it does so already."""
        seconds = min(MAX_REST_SECONDS, max(MIN_REST_SECONDS, REST_RATIO * waited_seconds))
        with self._lock:
            if self.find(root) is not None:
                return False
            self._rests[_find_bucket(root)] = monotonic() + seconds, error
        return True

    def end(self, root: str) -> None:
        """Let the store of a folder be asked again."""
        self._rests.pop(_find_bucket(root), None)


def _find_bucket(root: str) -> str:
    parts = urlsplit(root)
    return f"{parts.scheme}://{parts.netloc}"


_RESTS: Final[WeakKeyDictionary[Database, StoreRests]] = WeakKeyDictionary()
_LOCK: Final = Lock()


def find_rests(database: Database) -> StoreRests:
    """Find the rests of a lake's stores; each lake has its own, as it may have its own profile."""
    with _LOCK:
        return _RESTS.setdefault(database, StoreRests())
