"""`duckicelake delta`: import and follow Delta tables, and write Delta logs of the lake's tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import orjson
import typer

from duckicelake.cli.console.command import (
    DATA,
    GOVERN,
    LOOK,
    SERVE,
    LakeOption,
    add_command,
    join_lines,
    make_group,
    one_line_errors,
)
from duckicelake.cli.console.terminal import open_progress
from duckicelake.errors import format_count

if TYPE_CHECKING:
    from duckicelake.catalog.context.services import Services
    from duckicelake.delta.import_.importer import DeltaImportResult, ImportProgress
    from duckicelake.delta.import_.sources import DeltaSource
    from duckicelake.delta.import_.sync import SyncStatus

_IMPORT_EXAMPLES: Final = (
    "duckicelake delta import /data/delta/orders --table sales.orders",
    "DUCKICELAKE_ALLOWED_LOCATIONS=s3://raw duckicelake delta import s3://raw/orders --table sales.orders --follow",
    "duckicelake delta import /data/delta/orders --table sales.orders --from-version 120",
)
_SYNC_EXAMPLES: Final = (
    "duckicelake delta sync",
    "duckicelake delta sync sales.orders",
    "duckicelake delta sync sales.orders --follow --interval 5",
)
_STATUS_EXAMPLES: Final = ("duckicelake delta status", "duckicelake delta status --json | jq 'select(.behind > 0)'")
_ADOPT_EXAMPLES: Final = ("duckicelake delta adopt sales.orders",)
_EXPORT_EXAMPLES: Final = ("duckicelake delta export sales.orders",)


@one_line_errors()
def import_delta(
    path: Annotated[str, typer.Argument(help="The Delta table's folder: a path or a URI.")],
    table: Annotated[str, typer.Option("--table", help="The table to create, as sales.orders.")],
    lake: LakeOption = None,
    from_version: Annotated[
        int | None, typer.Option(min=0, help="Leave versions before this one out of the history.")
    ] = None,
    copy_for_duckdb: Annotated[
        bool, typer.Option("--copy-for-duckdb", help="On S3: copy files whose folders don't name their partition.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Bring new versions of the Delta table here; no other client may write the table."
        ),
    ] = False,
) -> None:
    """Import a Delta table: the same files, and a snapshot for every version that can still be read.

    No data is copied, and Delta's files are never touched. The import brings all versions, or nothing. The Delta table
    must lie in the warehouse or in one of DUCKICELAKE_ALLOWED_LOCATIONS, but not where the lake keeps its own tables
    (the warehouse's folders data and ducklake). The same holds for all files that its log names, and for the targets of
    symbolic links.
    """
    from duckicelake.catalog.table.catch_up import gc_disabled
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.delta.import_.importer import DeltaImport, import_table
    from duckicelake.settings.sources import read_settings

    with open_lake(read_settings({"lake": lake}), "import_delta_table") as services, _show_progress() as progress:
        wanted = DeltaImport.of(_absolutize(path), table, from_version, copies=copy_for_duckdb, following=follow)
        with gc_disabled():
            result = import_table(services, wanted, progress)
    sys.stdout.write(f"{table}: {format_summary(result)}\n")
    for note in result.notes:
        sys.stderr.write(f"{table}: {note}\n")


@one_line_errors()
def sync_tables(
    name: Annotated[str | None, typer.Argument(help="A table, as sales.orders (default: all followed tables).")] = None,
    lake: LakeOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="Bring new versions as they come, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between checks, with --follow.")] = 1.0,
) -> None:
    """Bring new versions of Delta tables, each as a commit of its own. A server does this itself for followed tables.

    A table that was imported without --follow can be named here if no client has written it since. Exits with 1 if a
    table can't be synced.
    """
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.delta.import_.sync import SYNCER
    from duckicelake.settings.sources import read_settings

    with open_lake(read_settings({"lake": lake}), SYNCER.operation) as services:
        is_synced = _sync(services, name, is_first=True)
        with suppress(KeyboardInterrupt):
            while follow:
                time.sleep(interval)
                is_synced = _sync_again(services, name)
    if not is_synced:
        raise typer.Exit(1)


@one_line_errors()
def show_status(
    lake: LakeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line, for programs.")] = False,
) -> None:
    """List tables that were imported from Delta: whether they are followed, their version, and what is wrong."""
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.delta.import_.sync import read_statuses
    from duckicelake.settings.sources import read_settings

    with open_lake(read_settings({"lake": lake})) as services:
        statuses = read_statuses(services)
    for status in statuses:
        typer.echo(orjson.dumps(_build_facts(status)).decode() if as_json else _format_line(status))
    if not statuses:
        typer.echo("no table was imported from Delta", err=True)


@one_line_errors()
def adopt_table(
    name: Annotated[str, typer.Argument(help="The table, as sales.orders.")], lake: LakeOption = None
) -> None:
    """Take over a table that follows a Delta table: clients write it here from now on, and syncing ends.

    Its files stay where they are, and the lake deletes nothing in the Delta table's folder. This can't be undone: to
    follow the Delta table again, drop the table and import it with --follow.
    """
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.delta.import_ import sync
    from duckicelake.settings.sources import read_settings

    with open_lake(read_settings({"lake": lake}), "adopt_delta_table") as services:
        source = sync.adopt_table(services, name)
    typer.echo(f"{name} is written here from now on; it has version {source.position.version} of {source.root}")


@one_line_errors()
def export_table(
    name: Annotated[str, typer.Argument(help="The table, as sales.orders.")], lake: LakeOption = None
) -> None:
    """Bring the Delta log of a table up to date now, rewrite lost files of the log, and print the table's folder.

    The table must have the property delta.enabled=true. A running server does the same soon after each commit.
    """
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.delta.export.exporter import export_delta_log
    from duckicelake.settings.sources import read_settings
    from duckicelake.storage.policy import canonicalize

    with open_lake(read_settings({"lake": lake}), "export_delta_log") as services:
        log = export_delta_log(services, name)
    typer.echo(canonicalize(log.root).removeprefix("file://"))
    typer.echo(f"{name}: versions {log.oldest} to {log.version}", err=True)


def format_summary(result: DeltaImportResult) -> str:
    """Describe the result of an import in one line."""
    left = f"; left out: {format_ranges(result.left_out)}, whose files are gone" if result.left_out else ""
    what = [
        format_count(result.versions, "version"),
        format_count(result.files, "file"),
        format_count(result.rows, "row"),
    ]
    return f"{', '.join(what)}, up to version {result.newest}{left}"


def format_ranges(numbers: Sequence[int]) -> str:
    """Format ascending numbers, with ranges for consecutive ones, as 0-3, 7."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join("-".join(map(str, bounds)) for bounds in ranges)


def _absolutize(path: str) -> str:
    return path if ":" in path.partition("/")[0] else str(Path(path).absolute())


@contextmanager
def _show_progress() -> Iterator[ImportProgress]:
    """Show a progress bar on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("Versions"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with open_progress(*columns) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, count: bar.update(task, completed=done, total=count)


def _sync(services: Services, name: str | None, *, is_first: bool) -> bool:
    """Sync the table, or all followed ones, and print what came; return whether all are synced."""
    from duckicelake.delta.import_ import sources
    from duckicelake.delta.import_.sync import find_source

    with services.database.reading() as cursor:
        found = sources.read_sources(cursor, followed=True) if name is None else [find_source(services, name)]
    if not found and is_first:
        typer.echo("no table follows a Delta table", err=True)
    done = [_sync_one(services, source, is_first=is_first) for source in found]
    return all(done)


def _sync_again(services: Services, name: str | None) -> bool:
    """Sync like `_sync`; an unreachable Postgres or store is reported, and the next attempt may succeed."""
    from duckicelake.errors import FailoverError, UnavailableError

    try:
        return _sync(services, name, is_first=False)
    except FailoverError:
        raise
    except UnavailableError as error:
        typer.echo(f"duckicelake: {join_lines(error)}", err=True)
        return False


def _sync_one(services: Services, source: DeltaSource, *, is_first: bool) -> bool:
    from duckicelake.delta.import_.sync import sync_in_parts
    from duckicelake.errors import CatalogError

    before = source.position.version
    try:
        for now in sync_in_parts(services, source):
            if now.position.version > before:
                typer.echo(f"{now.name}: {_format_versions(before + 1, now.position.version)} came")
                before, is_first = now.position.version, False
    except CatalogError as error:
        typer.echo(f"{source.name}: {join_lines(error)}", err=True)
        return False
    if is_first:
        typer.echo(f"{source.name}: is at version {before}, the newest")
    return True


def _format_versions(first: int, last: int) -> str:
    return f"version {first}" if first == last else f"versions {first} to {last}"


def _build_facts(status: SyncStatus) -> dict[str, object]:
    source = status.source
    return {
        "table": source.name,
        "delta": source.root,
        "following": source.following,
        "version": source.position.version,
        "newest": status.newest,
        "behind": status.behind,
        "problem": status.problem,
        "since": source.failed_at,
    }


def _format_line(status: SyncStatus) -> str:
    source = status.source
    kind = "follows" if source.following else "was imported from"
    ahead = f"; Delta is at {status.newest}" if status.behind else ""
    problem = f"\n  {' '.join(status.problem.split())}" if status.problem else ""
    return f"{source.name} {kind} {source.root}: version {source.position.version}{ahead}{problem}"


app = make_group(
    "delta",
    "Import Delta tables without copying files, follow them, take them over; and write Delta logs of tables.",
    panel=DATA,
)
add_command(app, import_delta, *_IMPORT_EXAMPLES, name="import")
add_command(app, sync_tables, *_SYNC_EXAMPLES, name="sync")
add_command(app, show_status, *_STATUS_EXAMPLES, name="status", panel=LOOK)
add_command(app, adopt_table, *_ADOPT_EXAMPLES, name="adopt", panel=SERVE)
add_command(app, export_table, *_EXPORT_EXAMPLES, name="export", panel=GOVERN)
