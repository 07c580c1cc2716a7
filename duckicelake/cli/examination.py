"""What `duckicelake doctor` examines: the database with everything in it, and the object store."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from duckicelake.cli.opening import running_postgres, warehouse_of
from duckicelake.errors import LakeInUse, StartupError, Unavailable
from duckicelake.lake.address import embedded_url
from duckicelake.lake.database import Database
from duckicelake.lake.doctor import Finding, diagnose
from duckicelake.settings import Settings
from duckicelake.storage.objects import open_store


def examine(settings: Settings) -> list[Finding]:
    """All findings. Raises StartupError where there is no lake to examine."""
    with reachable_postgres(settings) as url:
        return [*_database(url), _store(warehouse_of(settings))]


@contextmanager
def reachable_postgres(settings: Settings) -> Iterator[str]:
    """The database's URL: of the one that runs, else of the embedded one, which then runs while the block does."""
    if settings.database_url is None and not (Path(settings.lake) / "postgres").is_dir():
        raise StartupError(
            f"there is no lake in {settings.lake}; make one with: duckicelake init --lake {settings.lake}"
        )
    with ExitStack() as stack:
        try:
            url = stack.enter_context(running_postgres(settings)).database_url
        except LakeInUse:
            url = embedded_url(settings.lake)
        yield url or ""


def _database(url: str) -> list[Finding]:
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    try:
        with closing(Database(url, 1)) as database:
            database.check()
            return diagnose(database)
    except Unavailable as error:
        return [Finding("database", ok=False, detail=str(error), advice="start Postgres, or correct the database_url")]


def _store(warehouse: str) -> Finding:
    try:
        open_store(warehouse).check()
    except Unavailable as error:
        advice = "make the warehouse writable for this user, or choose another"
        return Finding("object store", ok=False, detail=str(error), advice=advice)
    return Finding("object store", ok=True, detail=f"{warehouse} is readable and writable", advice="")
