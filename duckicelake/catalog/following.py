"""A thread that follows the lake: of several processes one does, and another takes over when it has gone.

It is woken by NOTIFY at each commit, ours or DuckDB's, and rests after each fold, so that many small commits are folded
together and it never takes more than a small part of a processor.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from duckicelake.catalog.chronicle import MOST, fold
from duckicelake.catalog.services import Services
from duckicelake.lake import followed
from duckicelake.lake.chronicle import SNAPSHOTS
from duckicelake.lake.notices import Notices

LOOK: Final = 1.0
"""Seconds between two looks whether another process still follows the lake."""
UNWOKEN: Final = 5.0
"""Seconds after which the lake is looked at though nobody has said that it changed."""
_REST: Final = 9
"""Times as long as it takes to fold: that makes a tenth of a processor."""
_LONGEST_REST: Final = 0.08

_LONGEST_PAUSE: Final = 10.0
"""Seconds, after one failure after the other."""

Failed = Callable[[Exception], object]


@contextmanager
def following(services: Services, failed: Failed) -> Iterator[None]:
    """Follow the lake for as long as the context lasts; `failed` hears of what went wrong, and it goes on."""
    follower = _Follower(services, failed)
    thread = threading.Thread(target=follower.run, name="follower", daemon=True)
    thread.start()
    try:
        yield
    finally:
        follower.end()
        thread.join()


class _Follower:
    def __init__(self, services: Services, failed: Failed) -> None:
        self._services = services
        self._failed = failed
        self._ended = threading.Event()
        self._notices = services.database.notices(SNAPSHOTS)

    def run(self) -> None:
        """Until it is ended: a fold under way comes to its end."""
        pause = LOOK
        while not self._ended.is_set():
            try:
                if self._is_free():
                    self._follow(self._notices)
                pause = LOOK
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look may find it gone
                self._failed(error)
                pause = min(2 * pause, _LONGEST_PAUSE)
            self._ended.wait(pause)
        self._notices.release()

    def end(self) -> None:
        self._ended.set()
        self._notices.close()

    def _is_free(self) -> bool:
        with self._services.database.statement() as cursor:
            return followed.is_free(cursor)

    def _follow(self, notices: Notices) -> None:
        with notices.listening() as cursor:
            if not followed.lead(cursor):
                return
            while not self._ended.is_set():
                began = monotonic()
                folded = fold(self._services, cursor)
                if folded < MOST:
                    self._ended.wait(min(_REST * (monotonic() - began), _LONGEST_REST) if folded else 0)
                    notices.wait(UNWOKEN)
