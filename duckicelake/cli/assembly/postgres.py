"""The Postgres that settings name, or the embedded one."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import typer

from duckicelake.cli.assembly.places import warehouse_of
from duckicelake.cli.lake_option import NO_LAKE
from duckicelake.errors import LakeInUse, StartupError, Unavailable
from duckicelake.lake.postgres.address import check_url, embedded_url
from duckicelake.lake.postgres.embedded import EmbeddedPostgres
from duckicelake.settings import Settings


@contextmanager
def running_postgres(settings: Settings) -> Iterator[Settings]:
    """Settings with a database in them: the embedded Postgres runs while the block does, if none was configured."""
    if settings.database_url is not None:
        check_url(settings.database_url)
        yield settings
        return
    if not (settings.lake / "postgres").is_dir() and sys.stderr.isatty():
        typer.echo(f"making a lake in {settings.lake.resolve()}, which takes some seconds", err=True)
    with EmbeddedPostgres(settings.lake.resolve()) as postgres:
        yield settings.model_copy(update={"database_url": postgres.url, "warehouse": warehouse_of(settings)})


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
