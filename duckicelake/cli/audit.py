"""`duckicelake audit`: print and prune the audit trail."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, one_line_errors

if TYPE_CHECKING:
    from duckicelake.lake.side_tables.audit import AuditEntry, AuditFilter
    from duckicelake.postgres.database import Database
    from duckicelake.settings.model import Settings

EXAMPLES: Final = (
    "duckicelake audit --since 2h --resource sales.orders",
    "duckicelake audit --principal etl --result ForbiddenException --json",
    "duckicelake audit --prune-older-than 90d",
)
_PAUSE_SECONDS: Final = 0.5
_MAX_FOLLOWED_ENTRIES: Final = 10_000


@one_line_errors()
def audit(
    lake: LakeOption = None,
    since: Annotated[str | None, typer.Option(help="An age, as 2h or 7d, or a time in ISO form.")] = None,
    principal: Annotated[str | None, typer.Option(help="Who sent the request.")] = None,
    resource: Annotated[str | None, typer.Option(help="A table or view, or a namespace with all in it.")] = None,
    operation: Annotated[str | None, typer.Option(help="What was requested, as commit_table.")] = None,
    result: Annotated[str | None, typer.Option(help="ok, unchanged, or an error's type.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Max entries to list, the newest.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line, for programs.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Print new entries as they come, until Ctrl-C.")] = False,
    prune_older_than: Annotated[
        str | None, typer.Option(help="Delete entries older than this age or time, and list nothing.")
    ] = None,
) -> None:
    """List who changed what, when, from where and with what result: the newest last."""
    from duckicelake.cli.console.terminal import parse_time
    from duckicelake.lake.side_tables.audit import AuditFilter, prune_entries
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    if prune_older_than is not None:
        before = parse_time(prune_older_than)
        with _open_trail(settings) as database:
            typer.echo(f"{prune_entries(database, before)} entries are gone")
        return
    after = None if since is None else parse_time(since)
    wanted = AuditFilter(0, after, principal, resource, operation, result)
    with suppress(KeyboardInterrupt):
        _print_entries(settings, wanted, limit, as_json=as_json, follow=follow)


def _print_entries(settings: Settings, wanted: AuditFilter, limit: int, *, as_json: bool, follow: bool) -> None:
    """Print the newest entries, newest last; with `follow` then those that come, until interrupted.

    Raises InvalidRequestError for a resource that neither the trail nor the lake has had.
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


@contextmanager
def _open_trail(settings: Settings) -> Iterator[Database]:
    from duckicelake.cli.wiring.location import reach_postgres
    from duckicelake.errors import StartupError
    from duckicelake.lake.ducklake.database import open_lake_database
    from duckicelake.lake.setup.format import check_reachable, read_contents
    from duckicelake.lake.setup.migrations import is_up_to_date

    with reach_postgres(settings) as url, closing(open_lake_database(url, 1)) as database:
        database.check()
        with database.reading() as cursor:
            check_reachable(read_contents(cursor))
            if not is_up_to_date(cursor):
                raise StartupError("the catalog has no audit trail yet: start this version of the server once")
        yield database


def _check_resource(database: Database, name: str | None) -> None:
    """Raise InvalidRequestError if neither the trail nor the lake has ever had a resource of this name."""
    from duckicelake.errors import InvalidRequestError
    from duckicelake.lake.side_tables.audit import is_resource_known

    if name is None:
        return
    with database.reading() as cursor:
        if not is_resource_known(cursor, name):
            raise InvalidRequestError(
                f"{name} is no namespace, table or view of this lake, nor was it one as far as the audit trail goes: "
                "write it as `namespace` or `namespace.name`, with a dot inside a name as %2E"
            )


def _read(database: Database, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
    from duckicelake.lake.side_tables.audit import read_entries

    with database.reading() as cursor:
        return read_entries(cursor, wanted, limit)


def _print(entries: Sequence[AuditEntry], *, as_json: bool, heading: bool = True) -> None:
    if as_json:
        for entry in entries:
            sys.stdout.write(json.dumps(asdict(entry) | {"at": entry.at.isoformat()}) + "\n")
        sys.stdout.flush()
    elif entries or heading:
        _print_table(entries, heading=heading)


def _print_table(entries: Sequence[AuditEntry], *, heading: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from duckicelake.cli.console.terminal import make_printable, print_renderable
    from duckicelake.lake.side_tables.audit import OK_RESULT, UNCHANGED_RESULT

    table = Table(box=None, show_header=heading, pad_edge=False)
    for column in ("when (UTC)", "who", "from", "operation", "what", "result", "snapshot", "detail"):
        table.add_column(column, justify="right" if column == "snapshot" else "left", overflow="fold")
    for entry in entries:
        table.add_row(
            f"{entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            *map(make_printable, (entry.principal, entry.address, entry.operation, entry.resource)),
            Text(entry.result, style="" if entry.result in {OK_RESULT, UNCHANGED_RESULT} else "red"),
            "" if entry.snapshot_id is None else str(entry.snapshot_id),
            Text("" if entry.detail is None else json.dumps(entry.detail)),
        )
    print_renderable(table)
