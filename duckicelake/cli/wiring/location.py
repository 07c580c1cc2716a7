"""The warehouse and the Postgres that settings name, or the embedded ones."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import typer

from duckicelake.cli.console.command import NO_LAKE
from duckicelake.errors import LakeInUse, StartupError, Unavailable
from duckicelake.postgres.embedded import EmbeddedPostgres, WarnFunction, build_embedded_url, check_url
from duckicelake.postgres.server import STOP_SECONDS
from duckicelake.settings.model import Settings
from duckicelake.storage.policy import LocationPolicy

AtExit = Callable[[Callable[[], object]], object]
_MIN_STOP_SECONDS: Final = 2.0
"""For the embedded Postgres, whatever else took the time."""


def find_warehouse(settings: Settings) -> str:
    """The configured warehouse, or the folder `warehouse` in the lake's."""
    return (settings.warehouse or str(Path(settings.lake).resolve() / "warehouse")).rstrip("/")


def build_policy(settings: Settings) -> LocationPolicy:
    return LocationPolicy(find_warehouse(settings), settings.allowed_locations)


@contextmanager
def run_postgres(settings: Settings) -> Iterator[Settings]:
    """Settings with a database in them: the embedded Postgres runs while the block does, if none was configured."""
    with keep_postgres(settings, None, lambda: STOP_SECONDS) as complete:
        yield complete


@contextmanager
def keep_postgres(
    settings: Settings, warn: WarnFunction | None, stop_seconds: Callable[[], float], at_exit: AtExit | None = None
) -> Iterator[Settings]:
    """`running_postgres` for long: the embedded one is started again whenever it has ended.

    warn: gets what has happened; None: it isn't started again. stop_seconds: how long it may take to stop at the end.
    at_exit: takes what kills it, for a process that can't reach the end of the block.
    """
    if settings.database_url is not None:
        check_url(settings.database_url)
        yield settings
        return
    if not (settings.lake / "postgres").is_dir() and sys.stderr.isatty():
        typer.echo(f"making a lake in {settings.lake.resolve()}, which takes some seconds", err=True)
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
    """The database's URL: of the one that runs, else of the embedded one, which then runs while the block does."""
    if settings.database_url is None and not (settings.lake / "postgres").is_dir():
        raise StartupError(NO_LAKE.format(settings.lake))
    with ExitStack() as stack:
        try:
            url = stack.enter_context(run_postgres(settings)).database_url
        except LakeInUse:
            url = build_embedded_url(settings.lake)
        yield url or ""


def advise_on_postgres(error: Unavailable) -> str:
    """What to do where a connection couldn't be made."""
    first = "start Postgres" if "does not answer" in str(error) else "create what is missing"
    return f"{first}, or correct DUCKICELAKE_DATABASE_URL"
