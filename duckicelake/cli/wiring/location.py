"""The warehouse and the Postgres that settings name, or the embedded ones."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import typer

from duckicelake.cli.console.command import NO_LAKE
from duckicelake.errors import LakeInUseError, StartupError, UnavailableError
from duckicelake.postgres.embedded import EmbeddedPostgres, WarnFunction, build_embedded_url, check_url
from duckicelake.postgres.server import STOP_SECONDS
from duckicelake.settings.model import Settings
from duckicelake.storage.policy import LocationPolicy

AtExit = Callable[[Callable[[], object]], object]
_MIN_STOP_SECONDS: Final = 2.0
"""For the embedded Postgres to stop, however long the rest of the shutdown took."""


def find_warehouse(settings: Settings) -> str:
    """Return the configured warehouse, or the folder `warehouse` of the lake."""
    return (settings.warehouse or str(Path(settings.lake).resolve() / "warehouse")).rstrip("/")


def find_warehouse_roots(settings: Settings) -> tuple[str, ...]:
    """Return the configured folders for further warehouses, or the folder `warehouses` of the embedded lake."""
    is_embedded = settings.database_url is None or settings.database_url == build_embedded_url(settings.lake)
    return settings.warehouse_roots or ((str(Path(settings.lake).resolve() / "warehouses"),) if is_embedded else ())


def build_policy(settings: Settings) -> LocationPolicy:
    """Build where the files of the first warehouse may be."""
    return LocationPolicy(find_warehouse(settings), settings.allowed_locations, foreign=find_warehouse_roots(settings))


@contextmanager
def run_postgres(settings: Settings) -> Iterator[Settings]:
    """Run the embedded Postgres for the block, unless a database is configured; yield settings with its URL."""
    with keep_postgres(settings, None, lambda: STOP_SECONDS) as complete:
        yield complete


@contextmanager
def keep_postgres(
    settings: Settings, warn: WarnFunction | None, stop_seconds: Callable[[], float], at_exit: AtExit | None = None
) -> Iterator[Settings]:
    """Run the embedded Postgres like `run_postgres`, and restart it whenever it has ended.

    warn: gets a message at each restart; None: no restarts. stop_seconds: returns the seconds that Postgres may take to
    stop after the block. at_exit: registers a function that kills Postgres, for a process that can't end the block.
    """
    if settings.database_url is not None:
        check_url(settings.database_url)
        yield settings
        return
    if not (settings.lake / "postgres").is_dir() and sys.stderr.isatty():
        typer.echo(f"creating a lake in {settings.lake.resolve()}, which takes some seconds", err=True)
    postgres = EmbeddedPostgres(settings.lake.resolve())
    try:
        if warn is not None:
            postgres.keep(warn)
        if at_exit is not None:
            at_exit(lambda: postgres.stop(0))
        yield settings.model_copy(update={"database_url": postgres.url, "warehouse": find_warehouse(settings)})
    finally:
        postgres.stop(max(_MIN_STOP_SECONDS, stop_seconds()))


@contextmanager
def reach_postgres(settings: Settings) -> Iterator[str]:
    """Yield the URL of the configured or running database; else run the embedded Postgres for the block."""
    if settings.database_url is None and not (settings.lake / "postgres").is_dir():
        raise StartupError(NO_LAKE.format(settings.lake))
    with ExitStack() as stack:
        try:
            url = stack.enter_context(run_postgres(settings)).database_url
        except LakeInUseError:
            url = build_embedded_url(settings.lake)
        yield url or ""


def advise_on_postgres(error: UnavailableError) -> str:
    """Advise what to do after a failed connection."""
    first = "start Postgres" if "does not answer" in str(error) else "create what is missing"
    return f"{first}, or correct DUCKICELAKE_DATABASE_URL"
