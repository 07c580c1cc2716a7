"""What the subcommands of `duckicelake delta` do."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson
import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from duckicelake.catalog.context.runtime import gc_disabled
from duckicelake.catalog.context.services import Services
from duckicelake.cli.console import terminal
from duckicelake.cli.console.command import join_lines
from duckicelake.cli.console.terminal import format_count
from duckicelake.cli.wiring.services import open_lake
from duckicelake.delta.export.exporter import export_delta_log
from duckicelake.delta.import_ import sources
from duckicelake.delta.import_.importer import DeltaImport, DeltaImportResult, import_table
from duckicelake.delta.import_.importer import ImportProgress as Told
from duckicelake.delta.import_.sources import DeltaSource
from duckicelake.delta.import_.sync import SYNCER, SyncStatus, find_source, read_statuses, sync
from duckicelake.delta.import_.sync import adopt_table as take_over
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.errors import CatalogError, FailedOver, Unavailable
from duckicelake.settings.sources import read_settings
from duckicelake.storage.policy import canonicalize


def import_delta(
    *, path: str, table: str, lake: Path | None, from_version: int | None, copy_for_duckdb: bool, follow: bool
) -> None:
    """Import it and tell what came. Raises as `import_table`, StartupError where there is no lake."""
    with open_lake(read_settings({"lake": lake}), "import_delta_table") as services, _show_progress() as progress:
        wanted = DeltaImport.of(_absolutize(path), table, from_version, copies=copy_for_duckdb, following=follow)
        with gc_disabled():
            told = import_table(services, wanted, progress)
    sys.stdout.write(f"{table}: {format_summary(told)}\n")
    for note in told.notes:
        sys.stderr.write(f"{table}: {note}\n")


def format_summary(told: DeltaImportResult) -> str:
    """What came, in one line."""
    left = f"; left out: {format_ranges(told.left_out)}, whose files are gone" if told.left_out else ""
    what = [format_count(told.versions, "version"), format_count(told.files, "file"), format_count(told.rows, "row")]
    return f"{', '.join(what)}, up to version {told.newest}{left}"


def format_ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, those that follow each other drawn together, as 0-3, 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ", ".join("-".join(map(str, each)) for each in found)


def _absolutize(path: str) -> str:
    return path if ":" in path.partition("/")[0] else str(Path(path).absolute())


@contextmanager
def _show_progress() -> Iterator[Told]:
    """Where a person looks on, how far it is."""
    columns = (TextColumn("Versions"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with terminal.open_progress(*columns) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, count: bar.update(task, completed=done, total=count)


def sync_tables(*, name: str | None, lake: Path | None, follow: bool, interval: float) -> None:
    """Bring what is new and tell it. Raises as `find_source`, StartupError; Exit if a table can't go on."""
    with open_lake(read_settings({"lake": lake}), SYNCER.operation) as services:
        all_done = _sync(services, name, is_first=True)
        with suppress(KeyboardInterrupt):
            while follow:
                time.sleep(interval)
                all_done = _sync_again(services, name)
    if not all_done:
        raise typer.Exit(1)


def show_status(*, lake: Path | None, as_json: bool) -> None:
    """Print a line for each table. Raises Unavailable, StartupError."""
    with open_lake(read_settings({"lake": lake})) as services:
        found = read_statuses(services)
        for each in found:
            typer.echo(orjson.dumps(_build_facts(each)).decode() if as_json else _format_line(each))
    if not found:
        typer.echo("no table was imported from Delta", err=True)


def adopt_table(*, name: str, lake: Path | None) -> None:
    """Take it over and tell it. Raises as `catalog.delta.adoption.adopt`, StartupError."""
    with open_lake(read_settings({"lake": lake}), "adopt_delta_table") as services:
        was = take_over(services, name)
        typer.echo(f"{name} is written here from now on; it has version {was.position.version} of {was.root}")


def _sync(services: Services, name: str | None, *, is_first: bool) -> bool:
    """Sync the table, or all that are followed; what there is to tell is told. Whether nothing was wrong."""
    with services.database.reading() as cursor:
        found = sources.read_sources(cursor, followed=True) if name is None else [find_source(services, name)]
    if not found and is_first:
        typer.echo("no table follows a Delta table", err=True)
    done = [_sync_one(services, source, is_first=is_first) for source in found]
    return all(done)


def _sync_again(services: Services, name: str | None) -> bool:
    """The same, though Postgres or the store may be away for a while."""
    try:
        return _sync(services, name, is_first=False)
    except FailedOver:
        raise
    except Unavailable as error:
        typer.echo(f"duckicelake: {join_lines(error)}", err=True)
        return False


def _sync_one(services: Services, source: DeltaSource, *, is_first: bool) -> bool:
    before = source.position.version
    try:
        for now in _iterate_portions(services, source):
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


def _iterate_portions(services: Services, source: DeltaSource) -> Iterator[DeltaSource]:
    """The source after each transaction, until nothing new comes."""
    log, version = DeltaLog(services.store, source.root), -1
    while version < source.position.version:
        version = source.position.version
        source = sync(services, source, log)
        yield source


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


def export_table(*, name: str, lake: Path | None) -> None:
    """Bring the log up to date and tell where it is. Raises as `export`, StartupError."""
    with open_lake(read_settings({"lake": lake}), "export_delta_log") as services:
        log = export_delta_log(services, name)
        typer.echo(canonicalize(log.root).removeprefix("file://"))
        typer.echo(f"{name}: versions {log.oldest} to {log.version}", err=True)
