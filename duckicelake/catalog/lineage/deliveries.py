"""Lineage events are delivered in the background: a thread for each transport, which of all workers one has a turn at.

No request waits for it, and a receiver that is slow or away holds up nothing but its own events.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Final

from duckicelake.catalog.lineage.delivering import Deliverer, Ending, Listener, Moved
from duckicelake.catalog.services import Services
from duckicelake.lake.lineage import deliveries
from duckicelake.lake.postgres.notices import Notices
from duckicelake.lineage.outlets import Outlet

_PAUSE: Final = 2.0
"""Seconds until the next try to have the turn, or to reach Postgres."""
_GRACE: Final = 0.5
"""For a thread to end that has kept to its deadline."""


@dataclass(frozen=True, slots=True)
class Limits:
    """most: events that may wait for a receiver. seconds: for what is left, at the end."""

    most: int
    seconds: float


@contextmanager
def delivering_in_background(
    services: Services, outlets: Sequence[Outlet], limits: Limits, listener: Listener
) -> Iterator[None]:
    """Deliver for as long as the context lasts, and a few seconds more. A new transport begins with what comes then."""
    if not outlets:
        yield
        return
    ending = Ending()
    couriers = [
        _Courier(deliveries.news(services.database), outlet, limits.most, listener, ending) for outlet in outlets
    ]
    threads = [
        threading.Thread(target=courier.run, name=f"delivery to {courier.name}", daemon=True) for courier in couriers
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.deadline = monotonic() + limits.seconds
        for courier in couriers:
            courier.end()
        for thread in threads:
            thread.join(max(0.0, ending.seconds_left) + _GRACE)  # one that hangs at a receiver ends with the process


class _Courier:
    """Tries to have the turn for one transport, and delivers while it has it."""

    def __init__(self, notices: Notices, outlet: Outlet, most: int, listener: Listener, ending: Ending) -> None:
        self.name = outlet.name
        self._notices = notices
        self._outlet = outlet
        self._most = most
        self._listener = listener
        self._ending = ending

    def end(self) -> None:
        """Have no more news be waited for."""
        self._notices.close()

    def run(self) -> None:
        while self._ending.deadline is None:
            try:
                self._deliver()
            except Moved:
                continue
            except Exception as error:  # noqa: BLE001 - whatever it was, the next try may find it gone
                self._listener.warn("lineage events can't be delivered", transport=self.name, error=str(error))
            if self._ending.deadline is None:
                self._notices.wait(_PAUSE)
        self._outlet.close()
        self._notices.release()

    def _deliver(self) -> None:
        with self._notices.listening() as cursor:
            if deliveries.take_turn(cursor, self.name):
                try:
                    Deliverer(cursor, self._outlet, self._most, self._listener).run(self._notices, self._ending)
                finally:
                    self._listener.meter.lineage_waiting(self.name, 0)
