"""Where events of lineage are sent to, by the settings; and what `duckicelake lineage deliveries` tells of it."""

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from duckicelake.catalog.deliveries import Limits, delivering_in_background
from duckicelake.catalog.delivering import Listener
from duckicelake.catalog.services import Services
from duckicelake.cli.collecting import opened
from duckicelake.errors import InvalidRequest, InvalidSettings
from duckicelake.lake import deliveries
from duckicelake.lake.deliveries import Letter, Standing
from duckicelake.lineage.outlets import Outlet
from duckicelake.lineage.receivers import ENDPOINT, Receiver, receivers_of
from duckicelake.lineage.transports import outlet_to
from duckicelake.server.logging import make_logger
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


def show(settings: Settings, *, as_json: bool) -> None:
    """Print how far each receiver's deliveries are."""
    with opened(settings) as services, services.database.reading() as cursor:
        found = deliveries.standings(cursor)
    if as_json:
        _print_json(found)
        return
    table = Table(box=None, pad_edge=False)
    for heading in (
        "receiver",
        "delivered up to",
        "delivered",
        "waiting",
        "oldest",
        "dropped",
        "dead",
        "to be retried",
    ):
        table.add_column(heading, justify="left" if heading == "receiver" else "right", overflow="fold")
    for each in found:
        age = "" if each.oldest is None else str(datetime.now(UTC) - each.oldest).partition(".")[0]
        counts = (each.dropped, each.dead, each.again)
        table.add_row(each.transport, *map(str, (each.event_id, each.delivered, each.waiting, age, *counts)))
    _print(table)


def show_dead(settings: Settings, receiver: str | None, limit: int, *, as_json: bool) -> None:
    """Print the newest dead letters, of one receiver or all; as JSON with the events themselves."""
    with opened(settings) as services, services.database.reading() as cursor:
        found = deliveries.dead(cursor, receiver, limit)
    if as_json:
        _print_json(found)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("when (UTC)", "receiver", "event", "tries", "reason"):
        table.add_column(heading, justify="right" if heading in {"event", "tries"} else "left", overflow="fold")
    for each in found:
        reason = f"{each.reason} (is tried again)" if each.again else each.reason
        moment = f"{each.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        table.add_row(moment, each.transport, str(each.event_id), str(each.attempts), Text(reason))
    _print(table)


def retry_dead(settings: Settings, receiver: str | None) -> int:
    """Have a server try the dead letters again, of one receiver or all; how many there are."""
    with opened(settings) as services, services.database.transaction() as cursor:
        return deliveries.retry(cursor, receiver)


def replay(settings: Settings, receiver: str) -> None:
    """Have a server send a receiver all events once more; InvalidRequest for an unknown one."""
    with opened(settings) as services, services.database.transaction() as cursor:
        if not deliveries.replay(cursor, receiver):
            raise InvalidRequest(_unknown(receiver, deliveries.standings(cursor)))


def forget(settings: Settings, receiver: str) -> None:
    """Forget a receiver that is no more; InvalidRequest for an unknown one."""
    with opened(settings) as services, services.database.transaction() as cursor:
        if not deliveries.forget(cursor, receiver):
            raise InvalidRequest(_unknown(receiver, deliveries.standings(cursor)))


def _unknown(receiver: str, known: Sequence[Standing]) -> str:
    names = ", ".join(each.transport for each in known)
    return f"nothing was ever delivered to {receiver}; there is {names or 'no receiver'}"


def _print_json(found: Sequence[Standing] | Sequence[Letter]) -> None:
    for each in found:
        sys.stdout.write(orjson.dumps(asdict(each), option=orjson.OPT_UTC_Z).decode() + "\n")
    sys.stdout.flush()


def _print(table: Table) -> None:
    console = Console()
    (console if console.is_terminal else Console(width=400)).print(table)
