"""The registry of warehouses beside the first: create, adopt, rename and drop them.

The schema of the first warehouse holds the registry.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import count
from time import monotonic, sleep
from typing import Final
from uuid import UUID

from duckicelake.catalog import warehouse
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.storage_profiles import find_profile
from duckicelake.catalog.warehouses import (
    RESERVED_NAMES,
    Warehouse,
    WarehouseWiring,
    close_warehouse,
    find_warehouse,
    is_warehouse_name,
    list_warehouses,
    open_warehouse,
)
from duckicelake.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidRequestError,
    NoSuchWarehouseError,
    StartupError,
    UnavailableError,
)
from duckicelake.lake.setup.format import read_options
from duckicelake.lake.side_tables import locations
from duckicelake.lake.side_tables import warehouses as registry
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.storage_profiles import ProfileRow
from duckicelake.lake.side_tables.warehouses import ACTIVE, LakeContents, WarehouseRow, pick_row
from duckicelake.postgres.database import SchemaDatabase
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.policy import canonicalize, is_within

_SCHEMA_PREFIX: Final = "warehouse_"
_MAX_SCHEMA_BYTES: Final = 63
_CLOSING_SECONDS: Final = 5.0
"""Seconds that a drop waits for servers that have the warehouse open; they look at the registry once a second."""


@dataclass(frozen=True, slots=True)
class NewWarehouse:
    """A warehouse to create.

    Attributes:
        location: the folder of its files; None: the name below the first root.
        profile: the name of its storage profile; None: the store of the settings.
        adopted_schema: the schema of the lake to adopt; None: a new lake in a new schema.

    """

    name: str
    location: str | None = None
    adopted_schema: str | None = None
    profile: str | None = None


def create_warehouse(services: Services, wiring: WarehouseWiring, new: NewWarehouse) -> WarehouseRow:
    """Create a warehouse with a new lake, or with one that is in the database; a creation left halfway is completed.

    Raises AlreadyExistsError, and InvalidRequestError for a name, location or lake that can't be taken.
    """
    return services.run_once(lambda: _create(services, wiring, new), lambda result: _find_by_id(services, result))


def _create(services: Services, wiring: WarehouseWiring, new: NewWarehouse) -> WarehouseRow:
    check_name(new.name)
    profile = None if new.profile is None else find_profile(services, new.profile)
    roots = wiring.roots if profile is None else (profile.spec.root,)
    if new.location is not None:
        _check_below_roots(roots, "location", new.location)
    row = _register(services, roots, new, profile)
    try:
        own = open_warehouse(services, wiring, row)
        try:
            _prepare_new(own)
        finally:
            close_warehouse(services, own)
    except BaseException:
        _unregister(services, row)
        raise
    with services.database.transaction() as cursor:
        created = registry.set_state(cursor, row.name, ACTIVE)
        services.settle(cursor, [AuditedResource(f"warehouse {row.name}")], str(row.warehouse_id))
    return created


def _prepare_new(own: Services) -> None:
    try:
        warehouse.prepare_lake(own, creates=True)
        own.database.gate.require_open()
    except (StartupError, UnavailableError) as error:
        if isinstance(error, UnavailableError) and own.database.gate.reason is None:
            raise
        raise InvalidRequestError(f"The warehouse can't be made: {error}") from error


def rename_warehouse(services: Services, name: str, new_name: str) -> WarehouseRow:
    """Rename a warehouse; its id, schema and folder stay.

    Raises NoSuchWarehouseError, AlreadyExistsError, InvalidRequestError for a name that no warehouse may have, and
    ConflictError for a warehouse that is being created or dropped.
    """
    return services.run_once(lambda: _rename(services, name, new_name), lambda result: _find_by_id(services, result))


def _rename(services: Services, name: str, new_name: str) -> WarehouseRow:
    check_name(new_name)
    with services.database.transaction() as cursor:
        rows = registry.lock_registry(cursor)
        row = pick_row(rows, name)
        _check_name_free(rows, new_name)
        if not row.is_active:
            raise ConflictError(f"Warehouse {name} is in state {row.state}: complete that first")
        renamed = registry.rename_warehouse(cursor, row.warehouse_id, new_name)
        services.settle(
            cursor,
            [AuditedResource(f"warehouse {name}", detail={"to": f"warehouse {new_name}"})],
            str(row.warehouse_id),
        )
    return renamed


def drop_warehouse(
    services: Services, wiring: WarehouseWiring, name: str, *, forces: bool = False, keeps_lake: bool = False
) -> LakeContents:
    """Drop a warehouse with its catalog; its data files stay. Return what the lake had.

    forces: drop a lake that has tables, views or namespaces, too. keeps_lake: only stop serving it; the lake stays in
    its schema, and can be adopted again.

    Raises ConflictError if the lake isn't empty and neither is given, and NoSuchWarehouseError.
    """
    return services.run_once(
        lambda: _drop(services, wiring, name, forces=forces, keeps_lake=keeps_lake),
        lambda result: LakeContents(**result),
    )


def _drop(services: Services, wiring: WarehouseWiring, name: str, *, forces: bool, keeps_lake: bool) -> LakeContents:
    row = find_warehouse(services, name)
    own, has_store = _open_to_drop(services, wiring, row)
    try:
        contents = _read_contents(services, own, row)
        if not (contents.is_empty or forces or keeps_lake):
            raise _build_not_empty_error(name, contents)
        with services.database.transaction() as cursor:
            registry.set_state(cursor, name, "dropping")
        has_marks = has_store and not keeps_lake
        return _drop_registered(services, own, row, forces=forces, keeps_lake=keeps_lake, has_marks=has_marks)
    finally:
        close_warehouse(services, own)


def _open_to_drop(services: Services, wiring: WarehouseWiring, row: WarehouseRow) -> tuple[Services, bool]:
    """Open a warehouse, and say whether with its store, which isn't there if its storage profile can't be used."""
    try:
        return open_warehouse(services, wiring, row), True
    except UnavailableError:
        if row.profile_id is None:
            raise
        return open_warehouse(services, WarehouseWiring(), replace(row, profile_id=None)), False


def _drop_registered(
    services: Services, own: Services, row: WarehouseRow, *, forces: bool, keeps_lake: bool, has_marks: bool
) -> LakeContents:
    """Drop a warehouse in state `dropping`; if its lake has got something meanwhile, make it active again.

    has_marks: delete its markers from its folders.
    """
    _wait_for_servers(services, own, row)
    marked: Iterable[str] = ()
    with own.database.transaction() as cursor:
        contents = LakeContents(0, 0, 0)
        if registry.read_schema_facts(cursor, row.schema_name).has_lake:
            contents = registry.lock_contents(cursor)
            marked = warehouse.folders(own) if has_marks else ()
        is_refused = not (contents.is_empty or forces or keeps_lake)
        if not (is_refused or keeps_lake):
            registry.drop_schema(cursor, row.schema_name)
    with services.database.transaction() as cursor:
        if is_refused:
            registry.set_state(cursor, row.name, ACTIVE)
        else:
            registry.delete_warehouse(cursor, row.name)
            services.settle(cursor, [AuditedResource(f"warehouse {row.name}")], asdict(contents))
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


def check_name(name: str) -> None:
    """Raise InvalidRequestError for a name that no warehouse may have."""
    if not is_warehouse_name(name):
        raise InvalidRequestError(
            f"Invalid warehouse name {name!r}: expected up to 48 lower-case letters, digits, _ and -, "
            "the first a letter or digit"
        )
    if name in RESERVED_NAMES:
        raise InvalidRequestError(f"Invalid warehouse name {name!r}: routes of the server have this name; use another")


def _choose_location(roots: tuple[str, ...], rows: Iterable[WarehouseRow], new: NewWarehouse) -> str:
    """Return where the files of a new warehouse go; InvalidRequestError if there is no root.

    By default that is the name below the first root; with a number, if a warehouse that has been renamed is there.
    """
    if not roots:
        raise InvalidRequestError(
            "This server has no folder for further warehouses: set DUCKICELAKE_WAREHOUSE_ROOTS, for example to "
            "s3://bucket/warehouses, beside the first warehouse and not in it"
        )
    if new.location is not None:
        return new.location.rstrip("/")
    folder = f"{roots[0].rstrip('/')}/{new.name}"
    taken = [canonicalize(row.location) for row in rows]
    return next(place for place in _number(folder, "-") if canonicalize(place) not in taken)


def _choose_schema(rows: Iterable[WarehouseRow], new: NewWarehouse) -> str:
    """Return the schema of a new warehouse; with a number, if a renamed warehouse has that of the name."""
    taken = {row.schema_name for row in rows}
    default = next(schema for schema in _number(f"{_SCHEMA_PREFIX}{new.name}", "_") if schema not in taken)
    schema = new.adopted_schema or default
    if len(schema.encode()) > _MAX_SCHEMA_BYTES:
        raise InvalidRequestError(f"Invalid schema {schema!r}: expected at most {_MAX_SCHEMA_BYTES} bytes")
    return schema


def _number(name: str, separator: str) -> Iterator[str]:
    """Iterate over a name, and then the name with 2, 3 and so on."""
    yield name
    for number in count(2):
        yield f"{name}{separator}{number}"


def _check_below_roots(roots: tuple[str, ...], what: str, place: str) -> None:
    canonical = [canonicalize(root) for root in roots]
    if canonicalize(place) in canonical or not any(is_within(place, root) for root in canonical):
        raise InvalidRequestError(
            f"Invalid {what} {place}: expected a folder below {' or '.join(roots)} "
            "(the server's DUCKICELAKE_WAREHOUSE_ROOTS, or the root of the storage profile)"
        )


def _register(
    services: Services, roots: tuple[str, ...], new: NewWarehouse, profile: ProfileRow | None
) -> WarehouseRow:
    """Add the row, and make the schema; a row in state `creating` of the same warehouse is taken over."""
    with services.database.transaction() as cursor:
        rows = registry.lock_registry(cursor)
        begun = next((row for row in rows if row.name == new.name and row.state == "creating"), None)
        if begun is not None and _is_same(begun, new):
            return begun
        _check_name_free(rows, new.name)
        schema, location = _choose_schema(rows, new), _choose_location(roots, rows, new)
        _check_free(services, cursor, rows, schema, location)
        facts = registry.read_schema_facts(cursor, schema)
        if facts.is_first:
            raise InvalidRequestError(f"Schema {schema} is that of the first warehouse: choose another lake")
        if new.adopted_schema is not None:
            _check_adoptable(services, roots, schema, is_lake=facts.has_lake)
        elif facts.exists:
            raise AlreadyExistsError(
                f"The database has a schema {schema}: adopt the lake in it, or choose another name"
            )
        else:
            registry.create_schema(cursor, schema)
        return registry.insert_warehouse(
            cursor,
            new.name,
            schema,
            location,
            is_adopted=bool(new.adopted_schema),
            profile_id=None if profile is None else profile.profile_id,
        )


def _is_same(begun: WarehouseRow, new: NewWarehouse) -> bool:
    """Return whether a creation left halfway is of the same warehouse; what isn't given is as it was chosen then."""
    return (
        begun.is_adopted == (new.adopted_schema is not None)
        and new.profile == begun.profile
        and new.adopted_schema in {None, begun.schema_name}
        and (new.location is None or new.location.rstrip("/") == begun.location)
    )


def _check_name_free(rows: Iterable[WarehouseRow], name: str) -> None:
    found = next((row for row in rows if row.name == name), None)
    if found is not None:
        raise AlreadyExistsError(f"Warehouse {name} exists, in state {found.state}")


def _check_free(
    services: Services, cursor: Transaction, rows: Iterable[WarehouseRow], schema: str, location: str
) -> None:
    """Raise an error if a schema or location is another warehouse's."""
    for row in rows:
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


def _check_adoptable(services: Services, roots: tuple[str, ...], schema: str, *, is_lake: bool) -> None:
    """Raise InvalidRequestError unless the schema has a lake whose files are below the roots."""
    if not is_lake:
        raise InvalidRequestError(f"Schema {schema} has no DuckLake catalog to adopt")
    with SchemaDatabase(services.database, schema).reading() as cursor:
        _check_below_roots(roots, "DATA_PATH", (read_options(cursor) or {}).get("data_path", ""))


def _unregister(services: Services, row: WarehouseRow) -> None:
    """Undo `_register` after a failure."""
    with services.database.transaction() as cursor:
        registry.delete_warehouse(cursor, row.name)
        if not row.is_adopted:
            registry.drop_schema(cursor, row.schema_name)


def _find_by_id(services: Services, warehouse_id: str) -> WarehouseRow:
    """Find the warehouse that an earlier request was about, whatever its name is now."""
    found = next((row for row in list_warehouses(services) if row.warehouse_id == UUID(warehouse_id)), None)
    if found is None:
        raise NoSuchWarehouseError("The warehouse of the earlier request with this Idempotency-Key is gone")
    return found
