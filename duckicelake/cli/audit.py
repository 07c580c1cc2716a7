"""`duckicelake audit`: print and prune the audit trail."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from duckicelake.cli.console import terminal
from duckicelake.cli.console.terminal import make_printable, parse_time
from duckicelake.cli.wiring.location import reach_postgres
from duckicelake.errors import InvalidRequest, StartupError
from duckicelake.lake.setup.format import check_reachable, read_contents
from duckicelake.lake.setup.migrations import is_up_to_date
from duckicelake.lake.side_tables import audit as trail
from duckicelake.lake.side_tables.audit import AuditEntry, AuditFilter
from duckicelake.postgres.database import Database
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import read_settings

_PAUSE_SECONDS = 0.5
_MAX_FOLLOWED_ENTRIES = 10_000


def audit(
    *,
    lake: Path | None,
    since: str | None,
    principal: str | None,
    resource: str | None,
    operation: str | None,
    result: str | None,
    limit: int,
    as_json: bool,
    follow: bool,
    prune_older_than: str | None,
) -> None:
    """Print the newest entries, or delete old ones and say how many. Raises as `show`, InvalidRequest."""
    settings = read_settings({"lake": lake})
    if prune_older_than is not None:
        typer.echo(f"{prune_entries(settings, parse_time(prune_older_than))} entries are gone")
        return
    after = None if since is None else parse_time(since)
    wanted = AuditFilter(0, after, principal, resource, operation, result)
    with suppress(KeyboardInterrupt):
        print_entries(settings, wanted, limit, as_json=as_json, follow=follow)


def print_entries(settings: Settings, wanted: AuditFilter, limit: int, *, as_json: bool, follow: bool) -> None:
    """Print the newest entries, newest last; with `follow` then those that come, until interrupted.

    Raises InvalidRequest for a resource that neither the trail nor the lake has had.
    """
    with _open_trail(settings) as database:
        found = _read(database, wanted, limit)
        if not found and not follow:
            _check_resource(database, wanted.resource)
        _print(found, as_json=as_json)
        while follow:
            wanted = replace(wanted, after=max([wanted.after, *(entry.id or 0 for entry in found)]))
            time.sleep(_PAUSE_SECONDS)
            found = _read(database, wanted, _MAX_FOLLOWED_ENTRIES)
            _print(found, as_json=as_json, heading=False)


def prune_entries(settings: Settings, before: datetime) -> int:
    """Delete what is older; how many entries there were."""
    with _open_trail(settings) as database:
        return trail.prune_entries(database, before)


@contextmanager
def _open_trail(settings: Settings) -> Iterator[Database]:
    with reach_postgres(settings) as url, closing(Database(url, 1)) as database:
        database.check()
        with database.reading() as cursor:
            check_reachable(read_contents(cursor))
            if not is_up_to_date(cursor):
                raise StartupError("the catalog has no audit trail yet: start this version of the server once")
        yield database


def _check_resource(database: Database, name: str | None) -> None:
    """Raise InvalidRequest if neither the trail nor the lake has ever had it."""
    if name is None:
        return
    with database.reading() as cursor:
        if not trail.is_resource_known(cursor, name):
            raise InvalidRequest(
                f"{name} is no namespace, table or view of this lake, nor was it one as far as the audit trail goes: "
                "write it as `namespace` or `namespace.name`, with a dot inside a name as %2E"
            )


def _read(database: Database, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
    with database.reading() as cursor:
        return trail.read_entries(cursor, wanted, limit)


def _print(entries: Sequence[AuditEntry], *, as_json: bool, heading: bool = True) -> None:
    if as_json:
        for entry in entries:
            sys.stdout.write(json.dumps(asdict(entry) | {"at": entry.at.isoformat()}) + "\n")
        sys.stdout.flush()
    elif entries or heading:
        _print_table(entries, heading=heading)


def _print_table(entries: Sequence[AuditEntry], *, heading: bool) -> None:
    table = Table(box=None, show_header=heading, pad_edge=False)
    for column in ("when (UTC)", "who", "from", "operation", "what", "result", "snapshot", "detail"):
        table.add_column(column, justify="right" if column == "snapshot" else "left", overflow="fold")
    for entry in entries:
        table.add_row(
            f"{entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            *map(make_printable, (entry.principal, entry.address, entry.operation, entry.resource)),
            Text(entry.result, style="" if entry.result in {trail.OK_RESULT, trail.UNCHANGED_RESULT} else "red"),
            "" if entry.snapshot_id is None else str(entry.snapshot_id),
            Text("" if entry.detail is None else json.dumps(entry.detail)),
        )
    terminal.print_renderable(table)
