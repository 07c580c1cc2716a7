"""Where events of lineage are sent to, by the settings."""

import os
import sys
from contextlib import AbstractContextManager

from duckicelake.catalog.lineage.deliveries import Limits, delivering_in_background
from duckicelake.catalog.lineage.delivering import Listener
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidSettings
from duckicelake.lake.lineage import deliveries
from duckicelake.lineage.outlets import Outlet
from duckicelake.lineage.receivers import ENDPOINT, Receiver, receivers_of
from duckicelake.lineage.transports import outlet_to
from duckicelake.server.telemetry.logging import make_logger
from duckicelake.settings import Settings


def check_receivers(settings: Settings) -> None:
    """Raises InvalidSettings, before anything is started, for receivers that can't be used."""
    for outlet in _outlets(settings):
        outlet.close()


def register_receivers(settings: Settings, services: Services) -> None:
    """Have new ones get the events from now on, before anybody makes one."""
    deliveries.register(services.database, [receiver.name for receiver in receivers(settings)])


def deliveries_of(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Delivers events of lineage to the receivers of the settings, for as long as the context lasts."""
    log = make_logger(sys.stderr, settings.log_format)
    limits = Limits(settings.lineage_backlog, settings.lineage_flush_seconds)
    return delivering_in_background(services, _outlets(settings), limits, Listener(services.meter, log.warning))


def _outlets(settings: Settings) -> list[Outlet]:
    return [outlet_to(receiver) for receiver in receivers(settings)]


def receivers(settings: Settings) -> list[Receiver]:
    """Those of the settings, or the one that OpenLineage's own variables name; InvalidSettings."""
    keys, kafka = settings.lineage_api_keys, settings.lineage_kafka
    if settings.lineage_transports:
        return receivers_of(
            settings.lineage_transports,
            keys.get_secret_value() if keys else None,
            kafka.get_secret_value() if kafka else None,
        )
    if keys or kafka:
        raise InvalidSettings("lineage_api_keys and lineage_kafka are for lineage_transports, which aren't set")
    url = os.environ.get("OPENLINEAGE_URL")
    if not url or os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return []
    endpoint = os.environ.get("OPENLINEAGE_ENDPOINT", ENDPOINT)
    try:
        return receivers_of([f"{url.rstrip('/')}/{endpoint.lstrip('/')}"], os.environ.get("OPENLINEAGE_API_KEY"))
    except InvalidSettings as error:
        raise InvalidSettings(f"OPENLINEAGE_URL is taken for lineage_transports: {error}") from error
