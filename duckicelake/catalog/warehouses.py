"""Warehouses beside the first: list, create, adopt, open and drop them.

A warehouse is a lake in a schema of its own, in the database of the first warehouse. The first warehouse's schema holds
the registry.
"""

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from time import monotonic, sleep
from typing import Any, Final

from duckicelake.catalog import warehouse
from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.combiner import CombiningQueues, VersionRecorder
from duckicelake.catalog.context.commit_queue import CommitQueue
from duckicelake.catalog.context.hooks import UNOBSERVED, ReadObserver
from duckicelake.catalog.context.row_targets import RowTargets
from duckicelake.catalog.context.scan_cache import ScanCache
from duckicelake.catalog.context.services import IdPools, Services
from duckicelake.catalog.context.storage_access import NO_ACCESS, StorageAccess
from duckicelake.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidRequestError,
    NoSuchWarehouseError,
    StartupError,
    UnavailableError,
)
from duckicelake.lake.setup.format import read_options, require_known
from duckicelake.lake.side_tables import locations
from duckicelake.lake.side_tables import warehouses as registry
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.warehouses import ACTIVE, LakeContents, WarehouseRow
from duckicelake.postgres.database import SchemaDatabase
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.policy import LocationPolicy, canonicalize, is_within

FIRST_WAREHOUSE_NAME: Final = "duckicelake"
RESERVED_NAMES: Final = frozenset(
    {
        FIRST_WAREHOUSE_NAME, "actions", "aws", "catalogs", "column-lineage", "config", "datasets", "dropped",
        "events", "events-lineage", "explain", "export", "facets", "functions", "grants", "graph", "history", "jobs",
        "labels", "lineage", "namespaces", "oauth", "plans", "principals", "protected", "roles", "runs", "search",
        "stats", "tables", "tags", "transactions", "undrop", "users", "views", "warehouses",
    }
)  # fmt: skip
"""Names that stand where a warehouse's would in the path of a route, and others that routes may take."""
Warehouse = WarehouseRow
"""A warehouse beside the first, as the registry has it."""
_NAME_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}")
_SCHEMA_PREFIX: Final = "warehouse_"
_MAX_SCHEMA_BYTES: Final = 63
_CLOSING_SECONDS: Final = 5.0
"""Seconds that a drop waits for servers that have the warehouse open; they look at the registry once a second."""
_KEEPERS: Final = 1
"""Threads that combine appends, of one warehouse beside the first."""


@dataclass(frozen=True, slots=True)
class NewWarehouse:
    """A warehouse to create.

    Attributes:
        location: the folder of its files; None: the name below the first root.
        adopted_schema: the schema of the lake to adopt; None: a new lake in a new schema.

    """

    name: str
    location: str | None = None
    adopted_schema: str | None = None


@dataclass(frozen=True, slots=True)
class WarehouseWiring:
    """How a process makes what each warehouse beside the first has for itself.

    Attributes:
        roots: folders below which the files of warehouses may be.
        build_access: makes clients' access to files of a location.
        run_tasks: runs the background tasks of an open warehouse.

    """

    roots: tuple[str, ...] = ()
    build_access: Callable[[str], StorageAccess] = field(default=lambda _: NO_ACCESS)
    build_cache: Callable[[], TableCache] = TableCache
    build_scans: Callable[[], ScanCache[Any]] = ScanCache
    open_reads: Callable[[], ReadObserver] = field(default=lambda: UNOBSERVED)
    run_tasks: Callable[[Services], AbstractContextManager[object]] = field(default=lambda _: nullcontext())


def is_warehouse_name(name: str) -> bool:
    """Return whether a further warehouse may have the name, as far as its form goes."""
    return _NAME_PATTERN.fullmatch(name) is not None


def list_warehouses(services: Services) -> list[WarehouseRow]:
    """List the warehouses beside the first, by name."""
    with services.database.reading() as cursor:
        return registry.read_warehouses(cursor)


def find_warehouse(services: Services, name: str) -> WarehouseRow:
    """Find a warehouse in any state; NoSuchWarehouseError."""
    return _find_row(list_warehouses(services), name)


def open_warehouse(services: Services, wiring: WarehouseWiring, row: WarehouseRow) -> Services:
    """Build the services of a warehouse from those of the first. Postgres is not asked for anything yet.

    Connections, object store and meter are those of the first. Caches, queues and the log of reads are its own.
    """
    return replace(
        services,
        database=SchemaDatabase(services.database, row.schema_name),
        policy=LocationPolicy(row.location),
        cache=wiring.build_cache(),
        commits=CommitQueue(),
        recorder=VersionRecorder(),
        ids=IdPools(),
        appends=CombiningQueues(keepers=_KEEPERS),
        rows=RowTargets(),
        access=wiring.build_access(row.location),
        scans=wiring.build_scans(),
        reads=wiring.open_reads(),
        prefix=f"{row.name}/",
    )


def prepare_warehouse(services: Services) -> None:
    """Bring the lake of a warehouse to this version's migrations, and check whose its folders are.

    Raises InvalidRequestError if the lake can't be served.
    """
    try:
        warehouse.prepare_lake(services)
        require_known(services.database)
        services.database.gate.require_open()
    except StartupError as error:
        raise InvalidRequestError(f"The lake can't be served: {error}") from error


def create_warehouse(services: Services, wiring: WarehouseWiring, new: NewWarehouse) -> WarehouseRow:
    """Create a warehouse with a new lake, or with one that is in the database; a creation left halfway is completed.

    Raises AlreadyExistsError, and InvalidRequestError for a name, location or lake that can't be taken.
    """
    _check_name(new.name)
    schema = new.adopted_schema or f"{_SCHEMA_PREFIX}{new.name}"
    if len(schema.encode()) > _MAX_SCHEMA_BYTES:
        raise InvalidRequestError(f"Invalid schema {schema!r}: expected at most {_MAX_SCHEMA_BYTES} bytes")
    location = _choose_location(wiring, new)
    row = _register(services, wiring, new, schema, location)
    own = open_warehouse(services, wiring, row)
    try:
        _prepare_new(own)
    except BaseException:
        _unregister(services, row)
        raise
    with services.database.transaction() as cursor:
        created = registry.set_state(cursor, row.name, ACTIVE)
        services.settle(cursor, [AuditedResource(f"warehouse {row.name}")])
    return created


def _prepare_new(own: Services) -> None:
    try:
        warehouse.prepare_lake(own, creates=True)
        own.database.gate.require_open()
    except (StartupError, UnavailableError) as error:
        if isinstance(error, UnavailableError) and own.database.gate.reason is None:
            raise
        raise InvalidRequestError(f"The warehouse can't be made: {error}") from error
    finally:
        own.database.close()


def drop_warehouse(
    services: Services, wiring: WarehouseWiring, name: str, *, forces: bool = False, keeps_lake: bool = False
) -> LakeContents:
    """Drop a warehouse with its catalog; its data files stay. Return what the lake had.

    forces: drop a lake that has tables, views or namespaces, too. keeps_lake: only stop serving it; the lake stays in
    its schema, and can be adopted again.

    Raises ConflictError if the lake isn't empty and neither is given, and NoSuchWarehouseError.
    """
    row = find_warehouse(services, name)
    own = open_warehouse(services, wiring, row)
    try:
        contents = _read_contents(services, own, row)
        if not (contents.is_empty or forces or keeps_lake):
            raise _build_not_empty_error(name, contents)
        with services.database.transaction() as cursor:
            registry.set_state(cursor, name, "dropping")
        return _drop_registered(services, own, row, forces=forces, keeps_lake=keeps_lake)
    finally:
        own.database.close()


def _drop_registered(
    services: Services, own: Services, row: WarehouseRow, *, forces: bool, keeps_lake: bool
) -> LakeContents:
    """Drop a warehouse in state `dropping`; if its lake has got something meanwhile, make it active again."""
    _wait_for_servers(services, own, row)
    marked: Iterable[str] = ()
    with own.database.transaction() as cursor:
        contents = LakeContents(0, 0, 0)
        if registry.read_schema_facts(cursor, row.schema_name).has_lake:
            contents = registry.lock_contents(cursor)
            marked = () if keeps_lake else warehouse.folders(own)
        is_refused = not (contents.is_empty or forces or keeps_lake)
        if not (is_refused or keeps_lake):
            registry.drop_schema(cursor, row.schema_name)
    with services.database.transaction() as cursor:
        if is_refused:
            registry.set_state(cursor, row.name, ACTIVE)
        else:
            registry.delete_warehouse(cursor, row.name)
            services.settle(cursor, [AuditedResource(f"warehouse {row.name}")])
    if is_refused:
        raise _build_not_empty_error(row.name, contents)
    warehouse.release(own, list(marked))
    return contents


def _wait_for_servers(services: Services, own: Services, row: Warehouse) -> None:
    """Wait until the servers that run have closed the warehouse, so that no background task meets half a lake."""
    until = monotonic() + _CLOSING_SECONDS
    with services.database.reading() as cursor:
        if not registry.read_schema_facts(cursor, row.schema_name).is_prepared:
            return
    server = warehouse.describe_server(own)
    while monotonic() < until:
        with own.database.statement() as cursor:
            if not server.has_others(cursor):
                return
        sleep(_CLOSING_SECONDS / 50)


def _read_contents(services: Services, own: Services, row: WarehouseRow) -> LakeContents:
    with services.database.reading() as cursor:
        if not registry.read_schema_facts(cursor, row.schema_name).has_lake:
            return LakeContents(0, 0, 0)
    with own.database.reading() as cursor:
        return registry.read_contents(cursor)


def _build_not_empty_error(name: str, contents: LakeContents) -> ConflictError:
    return ConflictError(
        f"Warehouse {name} has {contents.tables} tables, {contents.views} views and {contents.namespaces} namespaces: "
        "drop them first, or force the drop, or keep the lake and only stop serving it"
    )


def _check_name(name: str) -> None:
    if not is_warehouse_name(name):
        raise InvalidRequestError(
            f"Invalid warehouse name {name!r}: expected up to 48 lower-case letters, digits, _ and -, "
            "the first a letter or digit"
        )
    if name in RESERVED_NAMES:
        raise InvalidRequestError(f"Invalid warehouse name {name!r}: routes of the server have this name; use another")


def _choose_location(wiring: WarehouseWiring, new: NewWarehouse) -> str:
    """Return where the files of a new warehouse go; InvalidRequestError if that is below no root."""
    if not wiring.roots:
        raise InvalidRequestError(
            "This server has no folder for further warehouses: set DUCKICELAKE_WAREHOUSE_ROOTS, for example to "
            "s3://bucket/warehouses, beside the first warehouse and not in it"
        )
    location = new.location or f"{wiring.roots[0].rstrip('/')}/{new.name}"
    _check_below_roots(wiring, "location", location)
    return location.rstrip("/")


def _check_below_roots(wiring: WarehouseWiring, what: str, place: str) -> None:
    roots = [canonicalize(root) for root in wiring.roots]
    if canonicalize(place) in roots or not any(is_within(place, root) for root in roots):
        raise InvalidRequestError(
            f"Invalid {what} {place}: expected a folder below {' or '.join(wiring.roots)} "
            "(the server's DUCKICELAKE_WAREHOUSE_ROOTS)"
        )


def _register(
    services: Services, wiring: WarehouseWiring, new: NewWarehouse, schema: str, location: str
) -> WarehouseRow:
    """Add the row, and make the schema; a row in state `creating` of the same warehouse is taken over."""
    with services.database.transaction() as cursor:
        rows = registry.lock_registry(cursor)
        begun = next((row for row in rows if row.name == new.name and row.state == "creating"), None)
        if begun is not None and (begun.schema_name, begun.location) == (schema, location):
            return begun
        _check_free(services, cursor, rows, new.name, schema, location)
        facts = registry.read_schema_facts(cursor, schema)
        if facts.is_first:
            raise InvalidRequestError(f"Schema {schema} is that of the first warehouse: choose another lake")
        if new.adopted_schema is not None:
            _check_adoptable(services, wiring, schema, is_lake=facts.has_lake)
        elif facts.exists:
            raise AlreadyExistsError(
                f"The database has a schema {schema}: adopt the lake in it, or choose another name"
            )
        else:
            registry.create_schema(cursor, schema)
        return registry.insert_warehouse(cursor, new.name, schema, location, is_adopted=bool(new.adopted_schema))


def _check_free(
    services: Services, cursor: Transaction, rows: Iterable[WarehouseRow], name: str, schema: str, location: str
) -> None:
    """Raise an error if a name, schema or location is another warehouse's."""
    for row in rows:
        if row.name == name:
            raise AlreadyExistsError(f"Warehouse {name} exists, in state {row.state}")
        if row.schema_name == schema:
            raise AlreadyExistsError(f"Schema {schema} is that of warehouse {row.name}")
        if _overlap(row.location, location):
            raise InvalidRequestError(f"Invalid location {location}: it overlaps {row.location} of {row.name}")
    policy = services.policy
    for zone in (policy.warehouse, *policy.allowed, locations.read_data_path(cursor)):
        if _overlap(zone, location):
            raise InvalidRequestError(f"Invalid location {location}: it overlaps {zone} of the first warehouse")


def _overlap(one: str, other: str) -> bool:
    return is_within(one, other) or is_within(other, one)


def _check_adoptable(services: Services, wiring: WarehouseWiring, schema: str, *, is_lake: bool) -> None:
    """Raise InvalidRequestError unless the schema has a lake whose files are below the roots."""
    if not is_lake:
        raise InvalidRequestError(f"Schema {schema} has no DuckLake catalog to adopt")
    with SchemaDatabase(services.database, schema).reading() as cursor:
        _check_below_roots(wiring, "DATA_PATH", (read_options(cursor) or {}).get("data_path", ""))


def _unregister(services: Services, row: WarehouseRow) -> None:
    """Undo `_register` after a failure."""
    with services.database.transaction() as cursor:
        registry.delete_warehouse(cursor, row.name)
        if not row.is_adopted:
            registry.drop_schema(cursor, row.schema_name)


def _find_row(rows: Iterable[WarehouseRow], name: str) -> WarehouseRow:
    found = next((row for row in rows if row.name == name), None)
    if found is None:
        raise NoSuchWarehouseError(f"No such warehouse: {name}")
    return found
