"""Examine database, lake, tables, warehouse and files, for `duckicelake doctor`."""

import logging
from collections.abc import Iterator
from contextlib import closing
from functools import partial

from duckicelake.catalog.context.services import Services, read_clock_ms
from duckicelake.catalog.warehouses import confine_services
from duckicelake.changelog.doctor import examine_folder, examine_lake
from duckicelake.cli.wiring.chosen_lake import reach_lake
from duckicelake.cli.wiring.location import advise_on_postgres, build_policy, find_warehouse
from duckicelake.cli.wiring.services import open_lake_store
from duckicelake.cli.wiring.storage_access import build_storage_access, check_signing
from duckicelake.cli.wiring.store_options import build_store_options
from duckicelake.errors import InvalidSettingsError, StoreDeniedError, UnavailableError
from duckicelake.lake.doctor.findings import Finding, ReportProgress, report_nothing
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.settings.model import Settings
from duckicelake.storage.bucket_store import BucketStore
from duckicelake.storage.probe import ProbeResult, try_listing, try_vending, try_warehouse
from duckicelake.storage.protocol import ObjectStore
from duckicelake.storage.registry import SchemeStore, find_bucket_store
from duckicelake.storage.s3 import S3Store
from duckicelake.storage.sts_vendor import StsVendor


def examine(settings: Settings, report: ReportProgress = report_nothing, *, with_files: bool = True) -> list[Finding]:
    """Return all findings. Raises StartupError where there is no lake to examine."""
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    with (
        reach_lake(settings) as reached,
        closing(open_lake_store(reached.settings)) as store,
        closing(open_lake_database(reached.url, 1)) as database,
    ):
        own = reached.settings
        services = Services(database, store, build_policy(own), own.snapshot_ids, read_clock_ms)
        if reached.chosen is not None:
            services = confine_services(services, reached.chosen.row)
        return examine_lake(
            services,
            partial(_examine_store, services, own),
            with_files=with_files,
            with_lineage=own.lineage != "off",
            advise=advise_on_postgres,
            report=report,
        )


def _examine_store(services: Services, settings: Settings) -> Iterator[Finding]:
    """Examine the warehouse, and those allowed locations that are in S3."""
    store = services.store
    own, *allowed = (_select_store(store, root) for root in (find_warehouse(settings), *settings.allowed_locations))
    yield _build_bucket_finding(try_warehouse(own[1])) if isinstance(own[1], BucketStore) else examine_folder(services)
    for root, part in allowed:
        if isinstance(part, BucketStore):
            yield _build_bucket_finding(try_listing(part, root))
    yield from _examine_access(store, settings)


def _examine_access(store: ObjectStore, settings: Settings) -> Iterator[Finding]:
    """Examine the keys and signatures that clients get."""
    locations = (find_warehouse(settings), *settings.allowed_locations)
    part = find_bucket_store(store, locations, S3Store)
    if part is None:
        return
    try:
        access = build_storage_access(settings, locations, build_store_options(settings))
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
