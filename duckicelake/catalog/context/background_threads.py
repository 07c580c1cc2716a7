"""Run a function in a thread, or a task in one of several processes; another takes over when it has gone."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.postgres import frozen_sessions
from duckicelake.postgres.notify import NotificationListener
from duckicelake.postgres.queries import Transaction

LOOK: Final = 1.0
"""Seconds between two checks whether another process still has the task."""
_LONGEST_PAUSE: Final = 10.0
"""Seconds, after one failure after the other."""

Failed = Callable[[Exception], object]


@dataclass(frozen=True, slots=True)
class LeaderTask:
    """A task that one process does at a time, and how a process takes it.

    Attributes:
        channel: The channel of the notices.
        is_free: Whether no process has the task at this moment.
        lead: Takes the task for as long as the session lasts; False if another process has it.
        work: Does the task until the notices are closed. Long work without the cursor is in `notices.kept_alive`.

    """

    name: str
    channel: str | None
    is_free: Callable[[Transaction], bool]
    lead: Callable[[Transaction], bool]
    work: Callable[[NotificationListener, Transaction], None]


@contextmanager
def run_in_thread(name: str, run: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run a function in a thread while the context lasts; at its end, set the event and wait for the function."""
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(ended,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def run_as_leader(services: Services, duty: LeaderTask, failed: Failed) -> Iterator[None]:
    """Do the task whenever it is free, while the context lasts; `failed` gets errors, after which it goes on."""
    leader = _Leader(services, duty, failed)
    thread = threading.Thread(target=leader.run, name=duty.name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        leader.end()
        thread.join()


class _Leader:
    def __init__(self, services: Services, duty: LeaderTask, failed: Failed) -> None:
        self._services = services
        self._duty = duty
        self._failed = failed
        self._ended = threading.Event()
        self._notices = services.database.open_listener(duty.channel)

    def run(self) -> None:
        """Run until it is ended; work under way is finished."""
        pause = LOOK
        while not self._ended.is_set():
            try:
                if self._is_free():
                    self._lead()
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
            frozen_sessions.WATCH.look(cursor)
            return self._duty.is_free(cursor)

    def _lead(self) -> None:
        with self._notices.connect(is_lease=True) as cursor:
            if self._duty.lead(cursor):
                self._duty.work(self._notices, cursor)
