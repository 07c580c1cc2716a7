"""Events on their way out of a program that must not wait for them."""

import atexit
import logging
from collections.abc import Callable, Iterable
from queue import Full, Queue
from threading import Lock, Thread
from typing import Final, Protocol

from openlineage.client.event_v2 import RunEvent

CAPACITY: Final = 10_000
"""Pieces of work that may wait; what comes while they all do is dropped."""

Work = Callable[[], Iterable[RunEvent]]
"""Makes events, in the background as well."""

_log: Final = logging.getLogger(__name__)


class Emitter(Protocol):
    """Sends one event: OpenLineage's client, or one of its transports."""

    def emit(self, event: RunEvent) -> object: ...


class Outbox:
    """Makes and sends events in one thread of its own, in order; nothing is raised to whoever puts work in.

    It is shared by connections: each says `opened`, and the last that says `closed` waits until all is sent, or for
    `patience` seconds.
    """

    def __init__(self, emitter: Emitter, capacity: int = CAPACITY) -> None:
        self.dropped = self.failed = 0
        self._emitter = emitter
        self._waiting: Queue[Work | None] = Queue(capacity)
        self._thread: Thread | None = None
        self._users = 0
        self._lock = Lock()

    @property
    def users(self) -> int:
        """Connections that share it."""
        return self._users

    def opened(self) -> None:
        """Note one more connection."""
        with self._lock:
            self._users += 1

    def closed(self, patience: float) -> bool:
        """Note one connection less; whether all is sent, if it was the last."""
        with self._lock:
            self._users -= 1
            last = self._users <= 0
        return self.flush(patience) if last else True

    def put(self, work: Work) -> None:
        """Let the work be done when its turn comes; it's dropped if too much waits."""
        with self._lock:
            self._start()
        try:
            self._waiting.put_nowait(work)
        except Full:
            self.dropped += 1
            if self.dropped == 1:
                _log.warning("lineage: the receiver is slow; events are dropped")

    def flush(self, patience: float) -> bool:
        """Wait until all is sent, or for `patience` seconds; whether it is."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None:
            return True
        atexit.unregister(self.flush)
        try:
            self._waiting.put(None, timeout=patience)
        except Full:
            return False
        thread.join(patience)
        return not thread.is_alive()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="duckicelake-lineage", daemon=True)
            self._thread.start()
            atexit.register(self.flush, 5.0)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            self._do(work)

    def _do(self, work: Work) -> None:
        try:
            for event in work():
                self._emitter.emit(event)
        except Exception as error:  # noqa: BLE001 - lineage is never worth a failure of the program that it is about
            self.failed += 1
            _log.log(logging.WARNING if self.failed == 1 else logging.DEBUG, "lineage: %s", type(error).__name__)
