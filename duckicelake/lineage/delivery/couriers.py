"""Background threads that deliver to the receivers of the settings, one thread for each."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidSettingsError
from duckicelake.lineage.delivery import outbox
from duckicelake.lineage.delivery.deliverer import Deliverer, DeliveryDeadline, DeliveryObserver, PositionMovedError
from duckicelake.lineage.delivery.receivers import ENDPOINT, LineageOutlet, Receiver, parse_receivers
from duckicelake.lineage.delivery.transports import open_outlet
from duckicelake.postgres.notify import NotificationListener
from duckicelake.settings.model import Settings

_PAUSE_SECONDS: Final = 2.0
"""Seconds until the next attempt to take the lease, or to reach Postgres."""
_GRACE_SECONDS: Final = 0.5
"""Seconds for a thread to end after its deadline."""


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """Limits of deliveries. most: events that may wait for a receiver. seconds: for remaining events at the end."""

    most: int
    seconds: float


@contextmanager
def deliver_in_background(
    services: Services, outlets: Sequence[LineageOutlet], limits: DeliveryLimits, listener: DeliveryObserver
) -> Iterator[None]:
    """Deliver events in threads, until the block ends and a few seconds more.

    A new receiver gets the events from then on.
    """
    if not outlets:
        yield
        return
    ending = DeliveryDeadline()
    couriers = [
        _Courier(outbox.listen_for_events(services.database), outlet, limits.most, listener, ending)
        for outlet in outlets
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
            thread.join(
                max(0.0, ending.seconds_left) + _GRACE_SECONDS
            )  # a thread that hangs at a receiver ends with the process


class _Courier:
    """Takes the lease of one receiver, and delivers while it holds it."""

    def __init__(
        self,
        notices: NotificationListener,
        outlet: LineageOutlet,
        most: int,
        listener: DeliveryObserver,
        ending: DeliveryDeadline,
    ) -> None:
        self.name = outlet.name
        self._notices = notices
        self._outlet = outlet
        self._most = most
        self._listener = listener
        self._ending = ending

    def end(self) -> None:
        """Stop waiting for new events."""
        self._notices.close()

    def run(self) -> None:
        while self._ending.deadline is None:
            try:
                self._deliver()
            except PositionMovedError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever it was, the next try may find it gone
                self._listener.warn("lineage events can't be delivered", transport=self.name, error=str(error))
            if self._ending.deadline is None:
                self._notices.wait(_PAUSE_SECONDS)
        self._outlet.close()
        self._notices.release()

    def _deliver(self) -> None:
        with self._notices.connect(is_lease=True) as cursor:
            if outbox.take_turn(cursor, self.name):
                try:
                    Deliverer(cursor, self._outlet, self._most, self._listener).run(self._notices, self._ending)
                finally:
                    self._listener.meter.lineage_waiting(self.name, 0)


def check_receivers(settings: Settings) -> None:
    """Raise InvalidSettingsError for unusable receivers, before anything is started."""
    for outlet in _open_outlets(settings):
        outlet.close()


def register_receivers(settings: Settings, services: Services) -> None:
    """Register new receivers, which get the events from now on; call it before any event is made."""
    outbox.register_receivers(services.database, [receiver.name for receiver in read_receivers(settings)])


def start_deliveries(
    settings: Settings, services: Services, warn: Callable[..., object]
) -> AbstractContextManager[None]:
    """Deliver lineage events to the receivers of the settings until the block ends.

    warn: logs a text with facts.
    """
    limits = DeliveryLimits(settings.lineage_backlog, settings.lineage_flush_seconds)
    return deliver_in_background(services, _open_outlets(settings), limits, DeliveryObserver(services.meter, warn))


def _open_outlets(settings: Settings) -> list[LineageOutlet]:
    return [open_outlet(receiver) for receiver in read_receivers(settings)]


def read_receivers(settings: Settings) -> list[Receiver]:
    """Read the receivers from the settings, else from OpenLineage's own variables; InvalidSettingsError."""
    keys, kafka = settings.lineage_api_keys, settings.lineage_kafka
    if settings.lineage_transports:
        return parse_receivers(
            settings.lineage_transports,
            keys.get_secret_value() if keys else None,
            kafka.get_secret_value() if kafka else None,
        )
    if keys or kafka:
        raise InvalidSettingsError("lineage_api_keys and lineage_kafka are for lineage_transports, which aren't set")
    url = os.environ.get("OPENLINEAGE_URL")
    if not url or os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return []
    endpoint = os.environ.get("OPENLINEAGE_ENDPOINT", ENDPOINT)
    try:
        return parse_receivers([f"{url.rstrip('/')}/{endpoint.lstrip('/')}"], os.environ.get("OPENLINEAGE_API_KEY"))
    except InvalidSettingsError as error:
        raise InvalidSettingsError(f"OPENLINEAGE_URL is taken for lineage_transports: {error}") from error
