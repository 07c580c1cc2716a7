"""The Postgres that settings name, or the embedded one."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import typer

from duckicelake.cli.assembly.places import warehouse_of
from duckicelake.cli.lake_option import NO_LAKE
from duckicelake.errors import LakeInUse, StartupError, Unavailable
from duckicelake.lake.postgres.address import check_url, embedded_url
from duckicelake.lake.postgres.embedded import EmbeddedPostgres
from duckicelake.lake.postgres.keeper import Warn
from duckicelake.lake.postgres.start import STOP_SECONDS
from duckicelake.settings import Settings

AtExit = Callable[[Callable[[], object]], object]
_LEAST_STOP_SECONDS: Final = 2.0
"""For the embedded Postgres, whatever else took the time."""


@contextmanager
def running_postgres(settings: Settings) -> Iterator[Settings]:
    """Settings with a database in them: the embedded Postgres runs while the block does, if none was configured."""
    with kept_postgres(settings, None, lambda: STOP_SECONDS) as complete:
        yield complete


@contextmanager
def kept_postgres(
    settings: Settings, warn: Warn | None, stop_seconds: Callable[[], float], at_exit: AtExit | None = None
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
        yield settings.model_copy(update={"database_url": postgres.url, "warehouse": warehouse_of(settings)})
    finally:
        postgres.stop(max(_LEAST_STOP_SECONDS, stop_seconds()))


@contextmanager
def reachable_postgres(settings: Settings) -> Iterator[str]:
    """The database's URL: of the one that runs, else of the embedded one, which then runs while the block does."""
    if settings.database_url is None and not (settings.lake / "postgres").is_dir():
        raise StartupError(NO_LAKE.format(settings.lake))
    with ExitStack() as stack:
        try:
            url = stack.enter_context(running_postgres(settings)).database_url
        except LakeInUse:
            url = embedded_url(settings.lake)
        yield url or ""


def postgres_advice(error: Unavailable) -> str:
    """What to do where a connection couldn't be made."""
    first = "start Postgres" if "does not answer" in str(error) else "create what is missing"
    return f"{first}, or correct DUCKICELAKE_DATABASE_URL"
