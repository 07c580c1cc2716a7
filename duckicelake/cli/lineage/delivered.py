"""What `duckicelake lineage deliveries` tells of receivers and of what they refused, and what it has done about it."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson
import typer
from rich.table import Table

from duckicelake.cli import terminal
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.terminal import plain
from duckicelake.errors import InvalidRequest
from duckicelake.lake.lineage import deliveries as lake
from duckicelake.lake.lineage.deliveries import Letter, Standing
from duckicelake.lake.postgres.database import Transaction
from duckicelake.settings import Settings, read_settings

_RIGHT: Final = frozenset(
    {"delivered up to", "delivered", "waiting", "oldest", "dropped", "dead", "again", "event", "tries"}
)


def deliveries(
    *,
    receiver: str | None,
    folder: Path | None,
    dead: bool,
    retry_dead: bool,
    replay: bool,
    forget: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Print the list, or do what is asked. Raises InvalidRequest, Unavailable, StartupError where there is no lake."""
    settings = read_settings({"lake": folder})
    if retry_dead:
        typer.echo(f"to be tried once more as soon as a server runs: {_retry(settings, receiver)}")
    elif replay or forget:
        _act(settings, receiver, replays=replay)
    elif dead:
        _show_dead(settings, receiver, limit, as_json=as_json)
    else:
        _show(settings, receiver, as_json=as_json)


def _show(settings: Settings, receiver: str | None, *, as_json: bool) -> None:
    with opened(settings) as services, services.database.reading() as cursor:
        found = [each for each in lake.standings(cursor) if receiver in {None, each.transport}]
        if receiver is not None and not found:
            raise InvalidRequest(_unknown(cursor, receiver))
    if as_json:
        _print_json(found)
        return
    table = _table("receiver", "delivered up to", "delivered", "waiting", "oldest", "dropped", "dead", "again")
    for each in found:
        age = "" if each.oldest is None else f"{datetime.now(UTC) - each.oldest}".partition(".")[0]
        facts = (each.event_id, each.delivered, each.waiting, age, each.dropped, each.dead, each.again)
        table.add_row(each.transport, *map(str, facts))
    terminal.show(table)


def _show_dead(settings: Settings, receiver: str | None, limit: int, *, as_json: bool) -> None:
    """As JSON with the events themselves."""
    with opened(settings) as services, services.database.reading() as cursor:
        found = lake.dead(cursor, receiver, limit)
    if as_json:
        _print_json(found)
        return
    table = _table("when (UTC)", "receiver", "event", "tries", "reason")
    for each in found:
        reason = plain(f"{each.reason} (is tried again)" if each.again else each.reason)
        moment = f"{each.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        table.add_row(moment, each.transport, str(each.event_id), str(each.attempts), reason)
    terminal.show(table)


def _retry(settings: Settings, receiver: str | None) -> int:
    with opened(settings) as services, services.database.transaction() as cursor:
        return lake.retry(cursor, receiver)


def _act(settings: Settings, receiver: str | None, *, replays: bool) -> None:
    if receiver is None:
        raise InvalidRequest("say which receiver is meant")
    with opened(settings) as services, services.database.transaction() as cursor:
        act = lake.replay if replays else lake.forget
        if not act(cursor, receiver):
            raise InvalidRequest(_unknown(cursor, receiver))
    what = "gets all events once more as soon as a server runs" if replays else "is forgotten"
    typer.echo(f"{receiver} {what}")


def _unknown(cursor: Transaction, receiver: str) -> str:
    known = ", ".join(each.transport for each in lake.standings(cursor))
    return f"{receiver} is no receiver; there is {known or 'none'}"


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in _RIGHT else "left", overflow="fold")
    return table


def _print_json(found: Sequence[Standing] | Sequence[Letter]) -> None:
    for each in found:
        sys.stdout.write(orjson.dumps(asdict(each), option=orjson.OPT_UTC_Z).decode() + "\n")
    sys.stdout.flush()
