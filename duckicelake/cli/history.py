"""`duckicelake history`: print and prune the changes of the lake."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import typer
from rich.table import Table

from duckicelake.catalog.context.services import Services
from duckicelake.changelog import entries as chronicle
from duckicelake.changelog.entries import END_POSITION, LogPosition, WantedChanges
from duckicelake.changelog.history import HistoryEntry, HistoryQuery, build_entry, parse_wanted, resolve_full_name
from duckicelake.changelog.writer import write_all_changes
from duckicelake.cli.console import terminal
from duckicelake.cli.console.terminal import format_count, make_printable, parse_time
from duckicelake.cli.wiring.services import open_lake
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import read_settings

_PAUSE_SECONDS = 0.5
_MAX_FOLLOWED_CHANGES = 1_000
_COLUMNS = ("version", "when (UTC)", "who", "source", "engine", "what", "kind", "operation", "metrics", "notes")


def history(
    *,
    name: str | None,
    lake: Path | None,
    since: str | None,
    until: str | None,
    kind: str | None,
    principal: str | None,
    engine: str | None,
    source: str | None,
    limit: int,
    as_json: bool,
    follow: bool,
    prune_older_than: str | None,
) -> None:
    """Print the newest changes, or forget old ones and say how many. Raises as `show`."""
    settings = read_settings({"lake": lake})
    if prune_older_than is not None:
        typer.echo(f"forgot {format_count(prune_history(settings, parse_time(prune_older_than)), 'change')}")
        return
    after, before = (None if text is None else parse_time(text) for text in (since, until))
    asked = HistoryQuery(limit, None, kind, after, before, principal, engine, source)
    with suppress(KeyboardInterrupt):
        print_history(settings, name, asked, as_json=as_json, follow=follow)


def print_history(settings: Settings, name: str | None, asked: HistoryQuery, *, as_json: bool, follow: bool) -> None:
    """Print the newest changes, newest last; with `follow` then those that come, until interrupted.

    Raises NoSuchTable, InvalidRequest, Unavailable, StartupError where there is no lake.
    """
    wanted = parse_wanted(asked)
    with open_lake(settings) as services:
        write_all_changes(services)  # also where no server runs that would
        with services.database.reading() as cursor:
            if name is not None:
                wanted = resolve_full_name(cursor, wanted, name)
            found = chronicle.read_latest(cursor, END_POSITION, asked.limit, wanted)
            last = chronicle.read_newest_position(cursor)
        _print([build_entry(change) for change in reversed(found)], as_json=as_json)
        while follow:
            time.sleep(_PAUSE_SECONDS)
            last = _print_new(services, wanted, last, as_json=as_json)


def prune_history(settings: Settings, before: datetime) -> int:
    """Forget what is older; how many changes there were."""
    with open_lake(settings) as services:
        return chronicle.prune_entries(services.database, before)


def _print_new(services: Services, wanted: WantedChanges, after: LogPosition, *, as_json: bool) -> LogPosition:
    write_all_changes(services)
    with services.database.reading() as cursor:
        found = chronicle.read_changes(cursor, after, _MAX_FOLLOWED_CHANGES, wanted)
        last = found[-1].position if len(found) == _MAX_FOLLOWED_CHANGES else chronicle.read_newest_position(cursor)
    if found:
        _print([build_entry(change) for change in found], as_json=as_json, heading=False)
    return max(after, last)


def _print(entries: Sequence[HistoryEntry], *, as_json: bool, heading: bool = True) -> None:
    if as_json:
        for entry in entries:
            sys.stdout.write(orjson.dumps(entry.to_json()).decode() + "\n")
        sys.stdout.flush()
        return
    table = Table(box=None, show_header=heading, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column == "version" else "left", overflow="fold")
    for entry in entries:
        table.add_row(*map(make_printable, _build_cells(entry)))
    terminal.print_renderable(table)


def _build_cells(entry: HistoryEntry) -> Sequence[str]:
    what = entry.resource
    return (
        str(entry.version),
        f"{entry.timestamp.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        entry.principal or "",
        entry.source,
        entry.engine or "",
        what if entry.previous is None else f"{entry.previous} → {what}",
        entry.kind,
        _format_operation(entry),
        " ".join(f"{name}={value}" for name, value in entry.metrics.items() if not name.startswith("total-")),
        ": ".join(part for part in (entry.notes.author, entry.notes.message) if part),
    )


def _format_operation(entry: HistoryEntry) -> str:
    """With its parameters, but for what another column says."""
    parameters = [
        f"{name}={_format_value(value)}" for name, value in entry.parameters.items() if name not in ("to", "requests")
    ]
    return " ".join([entry.operation or "", *parameters]).strip()


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else orjson.dumps(value).decode()
