"""What `duckicelake doctor` examines: the database with everything in it, and the object store."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import track

from duckicelake.catalog.doctor import examine_files, examine_tables
from duckicelake.cli.opening import running_postgres, warehouse_of
from duckicelake.errors import LakeInUse, StartupError, Unavailable
from duckicelake.lake.address import embedded_url
from duckicelake.lake.database import Database
from duckicelake.lake.doctor import Finding, diagnose, is_prepared
from duckicelake.lake.examination import NeededFile
from duckicelake.settings import Settings
from duckicelake.storage.objects import open_store


def examine(settings: Settings, *, with_files: bool = True) -> list[Finding]:
    """All findings. Raises StartupError where there is no lake to examine."""
    with reachable_postgres(settings) as url:
        findings, files = _database(url)
        store = _store(warehouse_of(settings))
        if store.ok and with_files:
            return [*findings, store, *_files(warehouse_of(settings), files)]
        return [*findings, store]


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


def _database(url: str) -> tuple[list[Finding], list[NeededFile]]:
    """(Findings on the lake, and on its tables if it is one; the files that must be in the store)."""
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    try:
        with closing(Database(url, 1)) as database:
            database.check()
            findings = diagnose(database)
            if not is_prepared(findings):
                return findings, []
            damage, files = examine_tables(database)
            return [*findings, *(damage or [_fine("tables", "nothing in them is damaged")])], files
    except Unavailable as error:
        return [
            Finding("database", ok=False, detail=str(error), advice="start Postgres, or correct the database_url")
        ], []


def _store(warehouse: str) -> Finding:
    try:
        open_store(warehouse).check()
    except Unavailable as error:
        advice = "make the warehouse writable for this user, or choose another"
        return Finding("object store", ok=False, detail=str(error), advice=advice)
    return _fine("object store", f"{warehouse} is readable and writable")


def _files(warehouse: str, files: Sequence[NeededFile]) -> list[Finding]:
    """What the store lacks of them, or holds in another size."""
    try:
        examined = _watched(examine_files(open_store(warehouse), files), len(files))
        found = sorted((f for f in examined if f is not None), key=lambda finding: finding.detail)
    except Unavailable as error:
        advice = "make the files readable for this user, or leave them out with --no-files"
        return [Finding("files", ok=False, detail=str(error), advice=advice)]
    return found or [_fine("files", f"{len(files)} are in the store as they should be")]


def _watched(examined: Iterable[Finding | None], total: int) -> Iterable[Finding | None]:
    """With a progress bar where a person looks on; it goes when it is done."""
    console = Console(stderr=True)
    return track(examined, "Files", total, console=console, transient=True, disable=not console.is_terminal)


def _fine(name: str, detail: str) -> Finding:
    return Finding(name, ok=True, detail=detail, advice="")
