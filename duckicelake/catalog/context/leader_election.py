"""Run a task in one of several processes; another takes over when it has gone."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.postgres.notify import NotificationListener
from duckicelake.postgres.queries import Transaction

LOOK: Final = 1.0
"""Seconds between two looks whether another process still has the duty."""
_LONGEST_PAUSE: Final = 10.0
"""Seconds, after one failure after the other."""

Failed = Callable[[Exception], object]


@dataclass(frozen=True, slots=True)
class LeaderTask:
    """What is to be done, and how it is known who does it.

    is_free: whether nobody has the duty at this moment. lead: takes it for as long as the session lasts; False if
    another has it. work: does it, until the notices are closed. channel: what they hear from the beginning.
    """

    name: str
    channel: str | None
    is_free: Callable[[Transaction], bool]
    lead: Callable[[Transaction], bool]
    work: Callable[[NotificationListener, Transaction], None]


@contextmanager
def run_as_leader(services: Services, duty: LeaderTask, failed: Failed) -> Iterator[None]:
    """Have the duty whenever it is free, while the context lasts; `failed` hears of what went wrong, and it goes on."""
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
        """Until it is ended: what is under way comes to its end."""
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
            return self._duty.is_free(cursor)

    def _lead(self) -> None:
        with self._notices.connect() as cursor:
            if self._duty.lead(cursor):
                self._duty.work(self._notices, cursor)
