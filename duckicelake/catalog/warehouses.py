"""Warehouses beside the first: find and open them.

A warehouse is a lake in a schema of its own, in the database of the first warehouse or in another one. The first
warehouse's schema holds the registry.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from duckicelake.catalog import warehouse
from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.combiner import CombiningQueues, VersionRecorder
from duckicelake.catalog.context.commit_queue import CommitQueue
from duckicelake.catalog.context.hooks import UNOBSERVED, ReadObserver
from duckicelake.catalog.context.registry_link import RegistryLink
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.row_targets import RowTargets
from duckicelake.catalog.context.scan_cache import ScanCache
from duckicelake.catalog.context.services import IdPools, Services
from duckicelake.catalog.context.storage_access import NO_ACCESS, StorageAccess
from duckicelake.catalog.storage_profiles import ProfileRules, check_endpoints, find_profile_of
from duckicelake.catalog.warehouse_databases import WarehouseDatabases
from duckicelake.errors import InvalidRequestError, StartupError, UnavailableError
from duckicelake.lake.setup.format import prepare_catalog, require_known
from duckicelake.lake.side_tables import warehouses as registry
from duckicelake.lake.side_tables.storage_profiles import ProfileRow
from duckicelake.lake.side_tables.warehouses import FIRST_NAME, WarehouseRow, pick_row
from duckicelake.postgres.failures import is_unfit_statement
from duckicelake.postgres.shared_pools import LeasedDatabase, SchemaDatabase
from duckicelake.storage.confined import confine
from duckicelake.storage.policy import LocationPolicy
from duckicelake.storage.protocol import MeasuredStore, ObjectStore, unwrap

FIRST_WAREHOUSE_NAME: Final = FIRST_NAME
RESERVED_NAMES: Final = frozenset(
    {
        FIRST_WAREHOUSE_NAME, "actions", "audit", "aws", "calls", "catalogs", "column-lineage", "config",
        "datasets", "doctor", "dropped", "events", "events-lineage", "explain", "export", "facets", "functions",
        "grants", "graph", "history", "jobs", "labels", "lineage", "logins", "materialized-views", "namespaces",
        "oauth", "orphans", "plan", "plans", "policies", "principals", "protected", "queries", "query", "roles", "runs",
        "search", "stats", "tables",
        "tags", "transactions", "undrop", "upkeep", "users", "views", "warehouses", "whoami",
    }
)  # fmt: skip
"""Names that stand where a warehouse's would in the path of a route, and others that routes may take.

No new warehouse gets one. One that had its name before a route did is reached by its prefix.
"""
_ESCAPE: Final = "_"
"""With what the prefix of such a warehouse begins: no route and no warehouse does."""
Warehouse = WarehouseRow
"""A warehouse beside the first, as the registry has it."""
CheckPolicies = Callable[[Mapping[str, str]], object]
_NAME_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}")
_KEEPERS: Final = 1
"""Threads that combine appends, of one warehouse beside the first."""


@dataclass(frozen=True, slots=True)
class ProfileStorage:
    """The store of a warehouse by its storage profile, and clients' access to it."""

    store: ObjectStore
    access: StorageAccess


@dataclass(frozen=True, slots=True)
class WarehouseWiring:
    """How a process makes what each warehouse beside the first has for itself.

    Attributes:
        roots: folders below which the files of warehouses may be.
        build_access: makes clients' access to files of a location in the store of the settings.
        profiles: what storage profiles may say.
        open_profile: opens the store of a location by a storage profile; None where there are none.
        databases: how databases of warehouses beside the first one's are reached.
        run_tasks: runs the background tasks of an open warehouse.
        check_policies: raises InvalidRequestError for policies of maintenance that can't be.

    """

    roots: tuple[str, ...] = ()
    build_access: Callable[[str], StorageAccess] = field(default=lambda _: NO_ACCESS)
    profiles: ProfileRules = field(default_factory=ProfileRules)
    open_profile: Callable[[str, ProfileRow], ProfileStorage] | None = None
    databases: WarehouseDatabases = field(default_factory=WarehouseDatabases)
    build_cache: Callable[[], TableCache] = TableCache
    build_scans: Callable[[], ScanCache] = ScanCache
    open_reads: Callable[[], ReadObserver] = field(default=lambda: UNOBSERVED)
    run_tasks: Callable[[Warehouse, Services], AbstractContextManager[object]] = field(default=lambda *_: nullcontext())
    check_policies: CheckPolicies = field(default=lambda _: None)


def is_warehouse_name(name: str) -> bool:
    """Return whether a further warehouse may have the name, as far as its form goes."""
    return _NAME_PATTERN.fullmatch(name) is not None


def build_prefix(name: str) -> str:
    """Return what stands for a warehouse in the paths of its routes."""
    return f"{_ESCAPE}{name}" if name in RESERVED_NAMES else name


def parse_prefix(segment: str) -> str | None:
    """Return the warehouse that a segment of a path stands for; None if it stands for none, but for a route."""
    if segment == FIRST_WAREHOUSE_NAME:
        return segment
    name = segment.removeprefix(_ESCAPE)
    is_free = name != segment or segment not in RESERVED_NAMES
    return name if is_free and is_warehouse_name(name) else None


def list_warehouses(services: Services) -> list[WarehouseRow]:
    """List the warehouses beside the first, by name."""
    with services.database.reading() as cursor:
        return registry.read_warehouses(cursor)


def find_warehouse(services: Services, name: str) -> WarehouseRow:
    """Find a warehouse in any state; NoSuchWarehouseError."""
    return pick_row(list_warehouses(services), name)


def open_warehouse(services: Services, wiring: WarehouseWiring, row: WarehouseRow) -> Services:
    """Build the services of a warehouse from those of the first; `close_warehouse` closes them.

    Meter is that of the first, and so are the connections unless the warehouse is in another database, and the object
    store unless it has a storage profile. Caches, queues and the log of reads are its own. Raises UnavailableError for
    a profile that can't be used, and a database that doesn't answer.
    """
    store, access = _open_storage(services, wiring, row)
    try:
        database, rights = _open_database(services, wiring, row)
    except BaseException:
        _close_store(services, store)
        raise
    return replace(
        services,
        database=database,
        policy=build_policy(row),
        cache=wiring.build_cache(),
        commits=CommitQueue(),
        recorder=VersionRecorder(),
        ids=IdPools(),
        appends=CombiningQueues(keepers=_KEEPERS),
        rows=RowTargets(),
        store=store,
        access=access,
        scans=wiring.build_scans(),
        reads=wiring.open_reads(),
        maintenance={**services.maintenance, **row.policies},
        rights=rights,
        trino_catalog=services.trino_catalog and row.name,
        warehouse=row.name,
        prefix=f"{build_prefix(row.name)}/",
    )


def _open_database(
    services: Services, wiring: WarehouseWiring, row: WarehouseRow
) -> tuple[SchemaDatabase, RightsCache | None]:
    if row.database_url is None:
        shared = SchemaDatabase(services.database, row.schema_name)
        return shared, services.rights and services.rights.beside(shared, row.warehouse_id, row.name)
    link = RegistryLink.build(services.database, row.warehouse_id)
    leased = wiring.databases.lease(row)
    rights = services.rights or RightsCache.of_first(services.database)
    return leased, rights.elsewhere(leased, link, row.name)


def _open_storage(services: Services, wiring: WarehouseWiring, row: WarehouseRow) -> tuple[ObjectStore, StorageAccess]:
    if row.profile_id is None:
        return confine(services.store, build_policy(row)), wiring.build_access(row.location)
    if wiring.open_profile is None:
        raise UnavailableError(f"Warehouse {row.name} has a storage profile, and this process opens none")
    profile = find_profile_of(services, row.profile_id)
    try:
        check_endpoints(wiring.profiles, profile.spec)
        opened = wiring.open_profile(row.location, profile)
    except (StartupError, InvalidRequestError) as error:
        raise UnavailableError(f"Storage profile {profile.name}: {error}") from error
    return confine(MeasuredStore(opened.store, services.meter.store_call), build_policy(row)), opened.access


def build_policy(row: WarehouseRow) -> LocationPolicy:
    """Build where the files of a warehouse may be: its folder, that of an adopted lake, and what is allowed for it."""
    return LocationPolicy(
        row.location,
        row.allowed_locations,
        row.data_path,
        foreign=None,
        advice="its option allowed-locations adds some",
    )


def confine_services(services: Services, row: WarehouseRow) -> Services:
    """Keep the services of a command to the places of a warehouse, as `open_warehouse` does."""
    policy = build_policy(row)
    return replace(services, policy=policy, store=confine(services.store, policy))


def close_warehouse(services: Services, own: Services) -> None:
    """Close what `open_warehouse` has opened for a warehouse. services: the first one's."""
    if own.rights is not None and own.rights is not services.rights:
        own.rights.close()
    own.database.close()
    _close_store(services, own.store)


def _close_store(services: Services, store: ObjectStore) -> None:
    if unwrap(store) is not unwrap(services.store):
        store.close()


@contextmanager
def open_catalog(services: Services, wiring: WarehouseWiring, row: WarehouseRow) -> Iterator[Services]:
    """Open a warehouse without its files: to change what keeps it from being opened with them. UnavailableError."""
    own = open_warehouse(services, WarehouseWiring(databases=wiring.databases), replace(row, profile_id=None))
    try:
        prepare_catalog(own.database, own.policy.data_path, creates=False)
        yield replace(own, caller=services.caller, once=services.once)
    except StartupError as error:
        raise UnavailableError(f"Warehouse {row.name} can't be served: {error}") from error
    finally:
        close_warehouse(services, own)


def is_database_lost(services: Services) -> bool:
    """Return whether a warehouse must be opened anew, as the other database that it is in went away."""
    return isinstance(services.database, LeasedDatabase) and services.database.is_lost


def is_lake_gone(error: Exception) -> bool:
    """Return whether a request for a warehouse may have failed as its tables were dropped meanwhile."""
    return is_unfit_statement(error)


def prepare_warehouse(services: Services) -> None:
    """Bring the lake of a warehouse to this version's migrations, and check whose its folders are.

    Raises UnavailableError if the lake can't be served.
    """
    try:
        warehouse.prepare_lake(services)
        require_known(services.database)
        services.database.gate.require_open()
    except (StartupError, InvalidRequestError) as error:
        raise UnavailableError(f"Warehouse {services.warehouse} can't be served: {error}") from error
