"""Examine database, lake, tables, warehouse and files, for `duckicelake doctor`."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from duckicelake.catalog import warehouse
from duckicelake.catalog.context.services import Services, read_clock_ms
from duckicelake.catalog.doctor import examine_files, examine_tables
from duckicelake.changelog.doctor import diagnose
from duckicelake.cli.console import terminal
from duckicelake.cli.wiring.chosen_lake import reach_lake
from duckicelake.cli.wiring.location import advise_on_postgres, build_policy, find_warehouse
from duckicelake.cli.wiring.services import open_lake_store
from duckicelake.cli.wiring.storage_access import build_storage_access, check_signing
from duckicelake.errors import InvalidSettingsError, StoreDeniedError, UnavailableError, UnsupportedCatalogError
from duckicelake.lake.doctor.checks import is_prepared
from duckicelake.lake.doctor.damage import NeededFile
from duckicelake.lake.doctor.findings import Finding
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.migrations import is_up_to_date
from duckicelake.settings.model import Settings
from duckicelake.storage.protocol import ObjectStore
from duckicelake.storage.registry import SchemeStore, find_s3_store
from duckicelake.storage.s3 import S3Store
from duckicelake.storage.s3_probe import ProbeResult, try_listing, try_vending, try_warehouse
from duckicelake.storage.vendor import StsVendor


def examine(settings: Settings, *, with_files: bool = True) -> list[Finding]:
    """Return all findings. Raises StartupError where there is no lake to examine."""
    with reach_lake(settings) as reached, closing(open_lake_store(reached.settings)) as store:
        return _examine_lake(reached.url, store, reached.settings, with_files=with_files)


def _examine_lake(url: str, store: ObjectStore, settings: Settings, *, with_files: bool) -> list[Finding]:
    findings, files = _examine_database(url, with_lineage=settings.lineage != "off")
    found = list(_examine_store(store, settings))
    if is_prepared(findings) and all(finding.ok for finding in found):
        found += _examine_warehouse(url, store, settings)
    if all(finding.ok for finding in found) and with_files:
        return [*findings, *found, *_examine_needed_files(store, files)]
    return [*findings, *found]


def _examine_database(url: str, *, with_lineage: bool) -> tuple[list[Finding], list[NeededFile]]:
    """Return the findings on the lake and its tables, and the files that must be in the store."""
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    try:
        with closing(open_lake_database(url, 1)) as database:
            database.check()
            findings = diagnose(database, with_lineage=with_lineage)
            if not is_prepared(findings):
                return findings, []
            damage, files = examine_tables(database)
            return [*findings, *(damage or [_build_ok("tables", "nothing in them is damaged")])], files
    except UnavailableError as error:
        return [Finding("database", ok=False, detail=str(error), advice=advise_on_postgres(error))], []
    except UnsupportedCatalogError as error:
        return [Finding("database", ok=False, detail=str(error), advice="")], []


def _examine_warehouse(url: str, store: ObjectStore, settings: Settings) -> list[Finding]:
    """Check which lake the warehouse belongs to; no finding if the lake is of another version."""
    with closing(open_lake_database(url, 1)) as database:
        with database.reading() as cursor:
            if not is_up_to_date(cursor):
                return []
        services = Services(database, store, build_policy(settings), settings.snapshot_ids, read_clock_ms)
        standing = warehouse.look(services)
    if standing.refusal:
        return [Finding("warehouse", ok=False, detail=standing.refusal, advice="until then nothing is written there")]
    if standing.doubt:
        return [_build_ok("warehouse", f"not marked as this lake's yet, so gc deletes nothing: {standing.doubt}")]
    return [_build_ok("warehouse", f"{find_warehouse(settings)} is this lake's")]


def _examine_store(store: ObjectStore, settings: Settings) -> Iterator[Finding]:
    """Examine the warehouse, and those allowed locations that are in S3."""
    own, *allowed = (_select_store(store, root) for root in (find_warehouse(settings), *settings.allowed_locations))
    yield _build_bucket_finding(try_warehouse(own[1])) if isinstance(own[1], S3Store) else _examine_folder(*own)
    for root, part in allowed:
        if isinstance(part, S3Store):
            yield _build_bucket_finding(try_listing(part, root))
    yield from _examine_access(store, settings)


def _examine_access(store: ObjectStore, settings: Settings) -> Iterator[Finding]:
    """Examine the keys and signatures that clients get."""
    locations = (find_warehouse(settings), *settings.allowed_locations)
    part = find_s3_store(store, locations)
    if part is None:
        return
    try:
        access = build_storage_access(settings, locations, part.options, read_clock_ms)
        check_signing(access, part)
    except (InvalidSettingsError, UnavailableError, StoreDeniedError) as error:
        yield Finding("access", ok=False, detail=str(error), advice="correct the settings DUCKICELAKE_S3_…")
        return
    if isinstance(access.vendor, StsVendor):
        tried = try_vending(part, access.vendor)
        yield Finding("access", ok=not tried.advice, detail=tried.detail, advice=tried.advice)


def _select_store(store: ObjectStore, root: str) -> tuple[str, ObjectStore]:
    return root, store.find_store(root) if isinstance(store, SchemeStore) else store


def _build_bucket_finding(tried: ProbeResult) -> Finding:
    return Finding("object store", ok=not tried.advice, detail=tried.detail, advice=tried.advice)


def _examine_folder(root: str, store: ObjectStore) -> Finding:
    try:
        store.check()
    except UnavailableError as error:
        advice = "make the warehouse writable for this user, or choose another"
        return Finding("object store", ok=False, detail=str(error), advice=advice)
    return _build_ok("object store", f"{root} is readable and writable")


def _examine_needed_files(store: ObjectStore, files: Sequence[NeededFile]) -> list[Finding]:
    """Find files that the store lacks, or holds in another size."""
    try:
        examined = _track(examine_files(store, files), len(files))
        found = sorted((f for f in examined if f is not None), key=lambda finding: finding.detail)
    except UnavailableError as error:
        advice = "make the files readable for this user, or leave them out with --no-files"
        return [Finding("files", ok=False, detail=str(error), advice=advice)]
    return found or [_build_ok("files", f"{len(files)} are in the store as they should be")]


def _track(examined: Iterable[Finding | None], total: int) -> Iterator[Finding | None]:
    """Show a progress bar on a terminal; it disappears at the end."""
    columns = (TextColumn("Files"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with terminal.open_progress(*columns) as progress:
        yield from progress.track(examined, total)


def _build_ok(name: str, detail: str) -> Finding:
    return Finding(name, ok=True, detail=detail, advice="")
