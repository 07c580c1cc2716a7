"""What `duckicelake doctor` examines: the database with everything in it, and the object store."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from duckicelake.catalog import warehouse
from duckicelake.catalog.doctor import examine_files, examine_tables
from duckicelake.catalog.services import Services
from duckicelake.cli import terminal
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.assembly.opening import now_ms, store_of
from duckicelake.cli.assembly.places import policy_of, warehouse_of
from duckicelake.cli.assembly.postgres import postgres_advice, reachable_postgres
from duckicelake.cli.assembly.vending import access_of, check_signing, s3_of
from duckicelake.errors import InvalidSettings, StoreDenied, Unavailable, UnsupportedCatalog
from duckicelake.lake.chronicle import left_out
from duckicelake.lake.doctor.checks import diagnose, is_prepared
from duckicelake.lake.doctor.examination import NeededFile
from duckicelake.lake.doctor.findings import Finding
from duckicelake.lake.migrate import is_up_to_date
from duckicelake.lake.postgres.database import Database
from duckicelake.settings import Settings, read_settings
from duckicelake.storage.access_examination import try_vending
from duckicelake.storage.objects import ObjectStore
from duckicelake.storage.s3 import S3Store
from duckicelake.storage.s3_examination import Tried, try_listing, try_warehouse
from duckicelake.storage.stores import SchemeStore
from duckicelake.storage.vending import StsVendor


def doctor(*, lake: Path | None, files: bool, forget_left_out: bool) -> None:
    """Print what was found. Raises as `examine`; Exit if something must be done."""
    settings = read_settings({"lake": lake})
    for each in _forgotten(settings) if forget_left_out else ():
        typer.echo(f"gone  {each}")
    findings = examine(settings, with_files=files)
    for finding in findings:
        typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name}: {finding.detail}")
        if finding.advice:
            typer.echo(f"      {finding.advice}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _forgotten(settings: Settings) -> list[str]:
    with opened(settings) as services, services.database.transaction() as cursor:
        return left_out.forget(cursor)


def examine(settings: Settings, *, with_files: bool = True) -> list[Finding]:
    """All findings. Raises StartupError where there is no lake to examine."""
    with reachable_postgres(settings) as url, closing(store_of(settings)) as store:
        findings, files = _database(url, with_lineage=settings.lineage != "off")
        found = list(_store(store, settings))
        if is_prepared(findings) and all(finding.ok for finding in found):
            found += _warehouse(url, store, settings)
        if all(finding.ok for finding in found) and with_files:
            return [*findings, *found, *_files(store, files)]
        return [*findings, *found]


def _database(url: str, *, with_lineage: bool) -> tuple[list[Finding], list[NeededFile]]:
    """(Findings on the lake, and on its tables if it is one; the files that must be in the store)."""
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    try:
        with closing(Database(url, 1)) as database:
            database.check()
            findings = diagnose(database, with_lineage=with_lineage)
            if not is_prepared(findings):
                return findings, []
            damage, files = examine_tables(database)
            return [*findings, *(damage or [_fine("tables", "nothing in them is damaged")])], files
    except Unavailable as error:
        return [Finding("database", ok=False, detail=str(error), advice=postgres_advice(error))], []
    except UnsupportedCatalog as error:
        return [Finding("database", ok=False, detail=str(error), advice="")], []


def _warehouse(url: str, store: ObjectStore, settings: Settings) -> list[Finding]:
    """Whose it is; nothing where the lake isn't one of this version."""
    with closing(Database(url, 1)) as database:
        with database.reading() as cursor:
            if not is_up_to_date(cursor):
                return []
        services = Services(database, store, policy_of(settings), settings.snapshot_ids, now_ms)
        standing = warehouse.look(services)
    if standing.refusal:
        return [Finding("warehouse", ok=False, detail=standing.refusal, advice="until then nothing is written there")]
    if standing.doubt:
        return [_fine("warehouse", f"not marked as this lake's yet, so gc deletes nothing: {standing.doubt}")]
    return [_fine("warehouse", f"{warehouse_of(settings)} is this lake's")]


def _store(store: ObjectStore, settings: Settings) -> Iterator[Finding]:
    """Of the warehouse, and of those allowed locations that are in S3."""
    own, *allowed = (_at(store, root) for root in (warehouse_of(settings), *settings.allowed_locations))
    yield _bucket(try_warehouse(own[1])) if isinstance(own[1], S3Store) else _folder(*own)
    for root, part in allowed:
        if isinstance(part, S3Store):
            yield _bucket(try_listing(part, root))
    yield from _access(store, settings)


def _access(store: ObjectStore, settings: Settings) -> Iterator[Finding]:
    """Of what clients are given."""
    locations = (warehouse_of(settings), *settings.allowed_locations)
    part = s3_of(store, locations)
    if part is None:
        return
    try:
        access = access_of(settings, locations, part.options, now_ms)
        check_signing(access, part)
    except (InvalidSettings, Unavailable, StoreDenied) as error:
        yield Finding("access", ok=False, detail=str(error), advice="correct the settings DUCKICELAKE_S3_…")
        return
    if isinstance(access.vendor, StsVendor):
        tried = try_vending(part, access.vendor)
        yield Finding("access", ok=not tried.advice, detail=tried.detail, advice=tried.advice)


def _at(store: ObjectStore, root: str) -> tuple[str, ObjectStore]:
    return root, store.of(root) if isinstance(store, SchemeStore) else store


def _bucket(tried: Tried) -> Finding:
    return Finding("object store", ok=not tried.advice, detail=tried.detail, advice=tried.advice)


def _folder(root: str, store: ObjectStore) -> Finding:
    try:
        store.check()
    except Unavailable as error:
        advice = "make the warehouse writable for this user, or choose another"
        return Finding("object store", ok=False, detail=str(error), advice=advice)
    return _fine("object store", f"{root} is readable and writable")


def _files(store: ObjectStore, files: Sequence[NeededFile]) -> list[Finding]:
    """What the store lacks of them, or holds in another size."""
    try:
        examined = _watched(examine_files(store, files), len(files))
        found = sorted((f for f in examined if f is not None), key=lambda finding: finding.detail)
    except Unavailable as error:
        advice = "make the files readable for this user, or leave them out with --no-files"
        return [Finding("files", ok=False, detail=str(error), advice=advice)]
    return found or [_fine("files", f"{len(files)} are in the store as they should be")]


def _watched(examined: Iterable[Finding | None], total: int) -> Iterator[Finding | None]:
    """With a progress bar where a person looks on; it goes when it is done."""
    columns = (TextColumn("Files"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with terminal.progress(*columns) as progress:
        yield from progress.track(examined, total)


def _fine(name: str, detail: str) -> Finding:
    return Finding(name, ok=True, detail=detail, advice="")
