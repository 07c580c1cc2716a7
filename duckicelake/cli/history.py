"""What `duckicelake history` prints of the chronicle, and how it shortens it."""

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

from duckicelake.catalog.chronicle.folding import fold_all
from duckicelake.catalog.history import Asked, HistoryEntry, entry_of, named, wanted_of
from duckicelake.catalog.services import Services
from duckicelake.cli import terminal
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.counting import counted
from duckicelake.cli.moments import moment
from duckicelake.cli.terminal import plain
from duckicelake.lake.chronicle import entries as chronicle
from duckicelake.lake.chronicle.entries import END, Position, WantedChanges
from duckicelake.settings import Settings, read_settings

_PAUSE_SECONDS = 0.5
_MOST = 1_000
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
        typer.echo(f"forgot {counted(prune(settings, moment(prune_older_than)), 'change')}")
        return
    after, before = (None if text is None else moment(text) for text in (since, until))
    asked = Asked(limit, None, kind, after, before, principal, engine, source)
    with suppress(KeyboardInterrupt):
        show(settings, name, asked, as_json=as_json, follow=follow)


def show(settings: Settings, name: str | None, asked: Asked, *, as_json: bool, follow: bool) -> None:
    """Print the newest changes, newest last; with `follow` then those that come, until interrupted.

    Raises NoSuchTable, InvalidRequest, Unavailable, StartupError where there is no lake.
    """
    wanted = wanted_of(asked)
    with opened(settings) as services:
        fold_all(services)  # also where no server runs that would
        with services.database.reading() as cursor:
            if name is not None:
                wanted = named(cursor, wanted, name)
            found = chronicle.latest(cursor, END, asked.limit, wanted)
            last = chronicle.newest(cursor)
        _print([entry_of(change) for change in reversed(found)], as_json=as_json)
        while follow:
            time.sleep(_PAUSE_SECONDS)
            last = _print_new(services, wanted, last, as_json=as_json)


def prune(settings: Settings, before: datetime) -> int:
    """Forget what is older; how many changes there were."""
    with opened(settings) as services:
        return chronicle.prune(services.database, before)


def _print_new(services: Services, wanted: WantedChanges, after: Position, *, as_json: bool) -> Position:
    fold_all(services)
    with services.database.reading() as cursor:
        found = chronicle.changes(cursor, after, _MOST, wanted)
        last = found[-1].position if len(found) == _MOST else chronicle.newest(cursor)
    if found:
        _print([entry_of(change) for change in found], as_json=as_json, heading=False)
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
        table.add_row(*map(plain, _cells(entry)))
    terminal.show(table)


def _cells(entry: HistoryEntry) -> Sequence[str]:
    what = entry.resource
    return (
        str(entry.version),
        f"{entry.timestamp.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        entry.principal or "",
        entry.source,
        entry.engine or "",
        what if entry.previous is None else f"{entry.previous} → {what}",
        entry.kind,
        _operation(entry),
        " ".join(f"{name}={value}" for name, value in entry.metrics.items() if not name.startswith("total-")),
        ": ".join(part for part in (entry.notes.author, entry.notes.message) if part),
    )


def _operation(entry: HistoryEntry) -> str:
    """With its parameters, but for what another column says."""
    parameters = [
        f"{name}={_text(value)}" for name, value in entry.parameters.items() if name not in ("to", "requests")
    ]
    return " ".join([entry.operation or "", *parameters]).strip()


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else orjson.dumps(value).decode()
