"""What `duckicelake delta sync`, `status` and `adopt` do."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson
import typer

from duckicelake.catalog.delta.adoption import adopt as take_over
from duckicelake.catalog.delta.adoption import find_source
from duckicelake.catalog.delta.status import Status, statuses
from duckicelake.catalog.delta.sync import SYNCER, sync
from duckicelake.catalog.services import Services
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.complaining import one_line
from duckicelake.delta.log import DeltaLog
from duckicelake.errors import CatalogError, FailedOver, Unavailable
from duckicelake.lake import delta_sources
from duckicelake.lake.delta_sources import Source
from duckicelake.settings import read_settings


def sync_tables(*, name: str | None, lake: Path | None, follow: bool, interval: float) -> None:
    """Bring what is new and tell it. Raises as `find_source`, StartupError; Exit if a table can't go on."""
    with opened(read_settings({"lake": lake}), SYNCER.operation) as services:
        all_done = _sync(services, name, is_first=True)
        with suppress(KeyboardInterrupt):
            while follow:
                time.sleep(interval)
                all_done = _sync_again(services, name)
    if not all_done:
        raise typer.Exit(1)


def show_status(*, lake: Path | None, as_json: bool) -> None:
    """Print a line for each table. Raises Unavailable, StartupError."""
    with opened(read_settings({"lake": lake})) as services:
        found = statuses(services)
        for each in found:
            typer.echo(orjson.dumps(_facts(each)).decode() if as_json else _line(each))
    if not found:
        typer.echo("no table was imported from Delta", err=True)


def adopt_table(*, name: str, lake: Path | None) -> None:
    """Take it over and tell it. Raises as `catalog.delta.adoption.adopt`, StartupError."""
    with opened(read_settings({"lake": lake}), "adopt_delta_table") as services:
        was = take_over(services, name)
        typer.echo(f"{name} is written here from now on; it has version {was.position.version} of {was.root}")


def _sync(services: Services, name: str | None, *, is_first: bool) -> bool:
    """Sync the table, or all that are followed; what there is to tell is told. Whether nothing was wrong."""
    with services.database.reading() as cursor:
        found = delta_sources.sources(cursor, followed=True) if name is None else [find_source(services, name)]
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
        typer.echo(f"duckicelake: {one_line(error)}", err=True)
        return False


def _sync_one(services: Services, source: Source, *, is_first: bool) -> bool:
    before = source.position.version
    try:
        for now in _portions(services, source):
            if now.position.version > before:
                typer.echo(f"{now.name}: {_versions(before + 1, now.position.version)} came")
                before, is_first = now.position.version, False
    except CatalogError as error:
        typer.echo(f"{source.name}: {one_line(error)}", err=True)
        return False
    if is_first:
        typer.echo(f"{source.name}: is at version {before}, the newest")
    return True


def _versions(first: int, last: int) -> str:
    return f"version {first}" if first == last else f"versions {first} to {last}"


def _portions(services: Services, source: Source) -> Iterator[Source]:
    """The source after each transaction, until nothing new comes."""
    log, version = DeltaLog(services.store, source.root), -1
    while version < source.position.version:
        version = source.position.version
        source = sync(services, source, log)
        yield source


def _facts(status: Status) -> dict[str, object]:
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


def _line(status: Status) -> str:
    source = status.source
    kind = "follows" if source.following else "was imported from"
    ahead = f"; Delta is at {status.newest}" if status.behind else ""
    problem = f"\n  {' '.join(status.problem.split())}" if status.problem else ""
    return f"{source.name} {kind} {source.root}: version {source.position.version}{ahead}{problem}"
