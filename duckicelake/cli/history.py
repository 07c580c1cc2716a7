"""`duckicelake history` and `audit`: print what changed, and who did what; prune the audit trail."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from datetime import UTC
from functools import partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.console.command import JsonOption, LakeOption, one_line_errors
from duckicelake.cli.console.terminal import follow_until_interrupted
from duckicelake.errors import format_count

if TYPE_CHECKING:
    from duckicelake.catalog.context.services import Services
    from duckicelake.changelog.entries import LoggedChange, LogPosition, WantedChanges
    from duckicelake.changelog.history import HistoryQuery
    from duckicelake.client.changes import ChangeInfo
    from duckicelake.client.lake import Lake
    from duckicelake.client.upkeep import AuditRecord
    from duckicelake.lake.side_tables.audit import AuditEntry, AuditFilter
    from duckicelake.postgres.database import Database
    from duckicelake.settings.model import Settings

HISTORY_EXAMPLES: Final = (
    "duckicelake history sales.orders",
    "duckicelake history --since 2h --engine spark --kind append,overwrite --json",
    "duckicelake history sales --follow",
    "duckicelake history --prune-older-than 90d",
)
_PAUSE_SECONDS: Final = 0.5
_MAX_FOLLOWED_CHANGES: Final = 1_000
_COLUMNS: Final = ("version", "when (UTC)", "who", "source", "engine", "what", "kind", "operation", "metrics", "notes")


@one_line_errors()
def history(
    name: Annotated[
        str | None, typer.Argument(help="A table or view, as sales.orders, or a namespace (default: the whole lake).")
    ] = None,
    lake: LakeOption = None,
    since: Annotated[str | None, typer.Option(help="An age, as 2h or 7d, or a time in ISO form.")] = None,
    until: Annotated[str | None, typer.Option(help="List changes before this age or time.")] = None,
    kind: Annotated[str | None, typer.Option(help="Kinds of changes, joined by commas, as append,overwrite.")] = None,
    principal: Annotated[str | None, typer.Option(help="Who made the change.")] = None,
    engine: Annotated[str | None, typer.Option(help="The engine's name, or a part of it, as spark.")] = None,
    source: Annotated[str | None, typer.Option(help="rest, pipeline or duckdb.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Max changes to list, the newest.")] = 100,
    as_json: JsonOption = False,
    follow: Annotated[bool, typer.Option("--follow", help="Print new changes as they come, until Ctrl-C.")] = False,
    prune_older_than: Annotated[
        str | None, typer.Option(help="Forget changes older than this age or time, and list nothing.")
    ] = None,
) -> None:
    """List what changed in the lake, a namespace or a table, by whom, with what engine: the newest last.

    It lists changes of every client: REST, DuckDB and the pipeline. It outlasts what DuckDB expires.
    """
    from duckicelake.changelog.entries import prune_entries
    from duckicelake.changelog.history import HistoryQuery
    from duckicelake.cli.console.terminal import parse_time
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    if prune_older_than is not None:
        forgotten = parse_time(prune_older_than)
        with open_lake(settings) as services:
            typer.echo(f"forgot {format_count(prune_entries(services.database, forgotten), 'change')}")
        return
    after, before = (None if text is None else parse_time(text) for text in (since, until))
    query = HistoryQuery(limit, None, kind, after, before, principal, engine, source)
    with follow_until_interrupted() if follow else nullcontext():
        _print_history(settings, name, query, as_json=as_json, follow=follow)


def history_over_rest(
    lake: Lake,
    name: str | None,
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
    """List what changed by the server, as far as the caller may read."""
    from duckicelake.cli.console.terminal import parse_time
    from duckicelake.errors import BadInputError

    if prune_older_than is not None:
        raise BadInputError("--prune-older-than needs the lake itself: give --lake")
    read = partial(
        lake.history,
        name or "",
        kinds=kind.split(",") if kind else (),
        since=None if since is None else parse_time(since),
        until=None if until is None else parse_time(until),
        principal=principal,
        engine=engine,
        source=source,
        page_size=min(limit, _MAX_FOLLOWED_CHANGES),
    )
    with follow_until_interrupted() if follow else nullcontext():
        found = list(islice(read(), limit))[::-1]
        _print(found, as_json=as_json)
        while follow:
            time.sleep(_PAUSE_SECONDS)
            new = _take_until(islice(read(), _MAX_FOLLOWED_CHANGES), found[-1].position if found else None)
            if new:
                _print(new, as_json=as_json, heading=False)
                found = new


def _take_until(newest: Iterable[ChangeInfo], position: str | None) -> list[ChangeInfo]:
    """Take changes, the newest first, until one at a position; return them the newest last."""
    return list(takewhile(lambda change: change.position != position, newest))[::-1]


def _print_history(settings: Settings, name: str | None, query: HistoryQuery, *, as_json: bool, follow: bool) -> None:
    """Print the newest changes, newest last; with `follow` then those that come, until interrupted.

    Raises NoSuchTableError, InvalidRequestError, UnavailableError, StartupError where there is no lake.
    """
    from duckicelake.changelog.entries import END_POSITION, read_latest, read_newest_position
    from duckicelake.changelog.history import parse_wanted, resolve_full_name
    from duckicelake.changelog.writer import write_all_changes
    from duckicelake.cli.wiring.services import open_lake

    wanted = parse_wanted(query)
    with open_lake(settings) as services:
        write_all_changes(services)  # no server may be running that writes them
        with services.database.reading() as cursor:
            if name is not None:
                wanted = resolve_full_name(cursor, wanted, name)
            found = read_latest(cursor, END_POSITION, query.limit, wanted)
            last = read_newest_position(cursor)
        _print(list(map(_build_change, reversed(found))), as_json=as_json)
        while follow:
            time.sleep(_PAUSE_SECONDS)
            last = _print_new(services, wanted, last, as_json=as_json)


def _print_new(services: Services, wanted: WantedChanges, after: LogPosition, *, as_json: bool) -> LogPosition:
    from duckicelake.changelog.entries import read_changes, read_newest_position
    from duckicelake.changelog.writer import write_all_changes

    write_all_changes(services)
    with services.database.reading() as cursor:
        found = read_changes(cursor, after, _MAX_FOLLOWED_CHANGES, wanted)
        last = found[-1].position if len(found) == _MAX_FOLLOWED_CHANGES else read_newest_position(cursor)
    if found:
        _print(list(map(_build_change, found)), as_json=as_json, heading=False)
    return max(after, last)


def _build_change(change: LoggedChange) -> ChangeInfo:
    """Build what the server answers for a change."""
    from duckicelake.changelog.history import build_entry
    from duckicelake.client.changes import ChangeInfo
    from duckicelake.client.records import parse_record

    return parse_record(ChangeInfo, build_entry(change).to_json())


def _print(entries: Sequence[ChangeInfo], *, as_json: bool, heading: bool = True) -> None:
    from duckicelake.cli.console.terminal import print_json, print_rows

    if as_json:
        print_json(*entries)
    else:
        print_rows(_COLUMNS, map(_build_cells, entries), right=(0,), has_headings=heading)
    sys.stdout.flush()


def _build_cells(entry: ChangeInfo) -> Sequence[str]:
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


def _format_operation(entry: ChangeInfo) -> str:
    """Format the operation with the parameters that no other column shows."""
    parameters = [
        f"{name}={_format_value(value)}" for name, value in entry.parameters.items() if name not in ("to", "requests")
    ]
    return " ".join([entry.operation or "", *parameters]).strip()


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


AUDIT_EXAMPLES: Final = (
    "duckicelake audit --since 2h --resource sales.orders",
    "duckicelake audit --principal etl --result ForbiddenException --json",
    "duckicelake audit --prune-older-than 90d",
)
_AUDIT_PAUSE_SECONDS: Final = 0.5
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
    as_json: JsonOption = False,
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
            typer.echo(f"{format_count(prune_entries(database, before), 'entry')} removed")
        return
    after = None if since is None else parse_time(since)
    wanted = AuditFilter(0, after, principal, resource, operation, result)
    with follow_until_interrupted() if follow else nullcontext():
        _print_entries(settings, wanted, limit, as_json=as_json, follow=follow)


def audit_over_rest(
    lake: Lake,
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
    """List entries of the audit trail by the server."""
    from duckicelake.cli.console.terminal import parse_time
    from duckicelake.errors import BadInputError

    if prune_older_than is not None:
        raise BadInputError("--prune-older-than needs the lake itself: give --lake")
    read = partial(
        lake.audit,
        since=None if since is None else parse_time(since),
        principal=principal,
        resource=resource,
        operation=operation,
        result=result,
    )
    with follow_until_interrupted() if follow else nullcontext():
        found = read(limit=limit)
        _print_audit(found, as_json=as_json)
        last = 0
        while follow:
            last = max([last, *(entry.id for entry in found)])
            time.sleep(_AUDIT_PAUSE_SECONDS)
            found = read(limit=_MAX_FOLLOWED_ENTRIES, after=last)
            _print_audit(found, as_json=as_json, heading=False)


def _print_entries(settings: Settings, wanted: AuditFilter, limit: int, *, as_json: bool, follow: bool) -> None:
    """Print the newest entries, newest last; with `follow` then those that come, until interrupted.

    Raises InvalidRequestError for a resource that neither the trail nor the lake has had.
    """
    from duckicelake.lake.side_tables.audit import check_resource

    with _open_trail(settings) as database:
        found = _read(database, wanted, limit)
        if not found and not follow:
            with database.reading() as cursor:
                check_resource(cursor, wanted.resource)
        _print_audit(found, as_json=as_json)
        while follow:
            wanted = replace(wanted, after=max([wanted.after, *(entry.id or 0 for entry in found)]))
            time.sleep(_AUDIT_PAUSE_SECONDS)
            found = _read(database, wanted, _MAX_FOLLOWED_ENTRIES)
            _print_audit(found, as_json=as_json, heading=False)


@contextmanager
def _open_trail(settings: Settings) -> Iterator[Database]:
    from duckicelake.cli.wiring.chosen_lake import reach_lake
    from duckicelake.errors import StartupError
    from duckicelake.lake.ducklake.database import open_lake_database
    from duckicelake.lake.setup.format import check_reachable, read_contents
    from duckicelake.lake.setup.migrations import is_up_to_date

    with reach_lake(settings) as reached, closing(open_lake_database(reached.url, 1)) as database:
        database.check()
        with database.reading() as cursor:
            check_reachable(read_contents(cursor))
            if not is_up_to_date(cursor):
                raise StartupError("the catalog has no audit trail yet: start this version of the server once")
        yield database


def _read(database: Database, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
    from duckicelake.lake.side_tables.audit import read_entries

    with database.reading() as cursor:
        return read_entries(cursor, wanted, limit)


def _print_audit(entries: Sequence[AuditEntry | AuditRecord], *, as_json: bool, heading: bool = True) -> None:
    if as_json:
        for entry in entries:
            sys.stdout.write(json.dumps(asdict(entry) | {"at": entry.at.isoformat()}) + "\n")
    elif entries or heading:
        _print_audit_table(entries, heading=heading)
    sys.stdout.flush()


def _print_audit_table(entries: Sequence[AuditEntry | AuditRecord], *, heading: bool) -> None:
    from duckicelake.cli.console.terminal import print_rows

    rows = (
        (
            f"{entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            entry.principal,
            entry.address,
            entry.operation,
            entry.resource,
            entry.result,
            "" if entry.snapshot_id is None else str(entry.snapshot_id),
            "" if entry.detail is None else json.dumps(entry.detail),
        )
        for entry in entries
    )
    headings = ("when (UTC)", "who", "from", "operation", "what", "result", "snapshot", "detail")
    print_rows(headings, rows, right=(6,), has_headings=heading)
