"""Keep a session's lock while its process works without it, and no longer: a frozen process loses it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final

import psycopg
from psycopg import Connection

LEASE_USES: Final = 3
"""How often a lease's session is used in the time for which it may be idle."""


class LeaseKeeper:
    """Uses a lease's session now and then while long work is done without it, as Postgres ends a session that is idle.

    One thread for the whole session: to start one for each event that is sent took more than 130 µs.
    """

    def __init__(self, connection: Connection[Any], pause_seconds: float) -> None:
        """Start the thread. pause_seconds: a LEASE_USES-th of the time for which the session may be idle."""
        self._connection = connection
        self._pause_seconds = pause_seconds
        self._lock = Lock()
        self._is_working = False
        self._used_at = monotonic()
        self._ended = Event()
        self._thread = Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Keep the session until the block ends, which doesn't use it."""
        if monotonic() - self._used_at > self._pause_seconds:  # as with much short work
            self._use()
        with self._lock:
            self._is_working = True
        try:
            yield
        finally:
            with self._lock:  # the thread doesn't use the session any more
                self._is_working = False

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(psycopg.Error):  # the next statement in the session raises it
            while not self._ended.wait(self._pause_seconds):
                with self._lock:
                    if self._is_working:
                        self._use()

    def _use(self) -> None:
        self._connection.execute("SELECT")
        self._used_at = monotonic()
