"""The registry of warehouses beside the first: create, adopt, rename and move them.

The schema of the first warehouse holds the registry.
"""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID, uuid4

from duckicelake.catalog import warehouse, warehouse_databases
from duckicelake.catalog.context.secret_keys import SecretKeys
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.issuers import rotate_issuers
from duckicelake.catalog.storage_profiles import find_profile, rotate_profiles
from duckicelake.catalog.warehouse_databases import WarehouseDatabases
from duckicelake.catalog.warehouse_places import (
    NewWarehouse,
    check_adopted_place,
    check_below_roots,
    check_name,
    check_name_free,
    check_place_free,
    check_schema_free,
    choose_location,
    choose_schema,
)
from duckicelake.catalog.warehouses import (
    WarehouseWiring,
    close_warehouse,
    confine_services,
    find_warehouse,
    list_warehouses,
    open_warehouse,
)
from duckicelake.errors import (
    AlreadyExistsError,
    CatalogError,
    ConflictError,
    InvalidRequestError,
    NoSuchWarehouseError,
    StartupError,
    UnavailableError,
)
from duckicelake.lake.setup.format import read_options
from duckicelake.lake.side_tables import warehouses as registry
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.storage_profiles import ProfileRow
from duckicelake.lake.side_tables.warehouses import ACTIVE, WarehouseRow, pick_row
from duckicelake.postgres.other_databases import strip_password
from duckicelake.postgres.queries import Transaction
from duckicelake.postgres.shared_pools import SchemaDatabase


def create_warehouse(services: Services, wiring: WarehouseWiring, new: NewWarehouse) -> WarehouseRow:
    """Create a warehouse with a new lake, or with one that is in the database; a creation left halfway is completed.

    Raises AlreadyExistsError, and InvalidRequestError for a name, location or lake that can't be taken.
    """
    return services.run_once(lambda: _create(services, wiring, new), lambda result: _find_by_id(services, result))


def _create(services: Services, wiring: WarehouseWiring, new: NewWarehouse) -> WarehouseRow:
    check_name(new.name)
    profile = None if new.profile is None else find_profile(services, new.profile)
    roots = wiring.roots if profile is None else (profile.spec.root,)
    row, is_new = _register(services, wiring.databases, roots, new, profile)
    try:
        _build_lake(services, wiring, roots, row)
    except _HalfwayError:
        raise
    except BaseException:
        if is_new or row.database_url is None:
            _unregister(services, row)
        raise
    with services.database.transaction() as cursor:
        created = registry.set_state(cursor, row.name, ACTIVE)
        services.settle(cursor, [AuditedResource(f"warehouse {row.name}")], str(row.warehouse_id))
    return created


def _build_lake(services: Services, wiring: WarehouseWiring, roots: tuple[str, ...], row: WarehouseRow) -> None:
    """Make the lake of a registered warehouse; of one in another database that fails, leave nothing there."""
    own = open_warehouse(services, wiring, row)
    try:
        if row.database_url is None:
            _prepare_new(own)
        else:
            _build_elsewhere(services, own, roots, row)
    finally:
        close_warehouse(services, own)


def _build_elsewhere(services: Services, own: Services, roots: tuple[str, ...], row: WarehouseRow) -> None:
    def check_lake(options: Mapping[str, str] | None) -> None:
        with services.database.transaction() as cursor:
            others = [other for other in registry.lock_registry(cursor) if other.warehouse_id != row.warehouse_id]
            data_path = check_adopted_place(services, cursor, others, roots, options)
            registry.set_data_path(cursor, row.warehouse_id, data_path)
            found.append(replace(row, data_path=data_path))

    found = [row]
    try:
        warehouse_databases.occupy_schema(own, row, check_lake)
        own = confine_services(own, found[-1])
        _prepare_new(own)
        warehouse_databases.claim_lake(own)
    except BaseException as error:
        try:
            warehouse_databases.vacate_schema(own, row, keeps_lake=row.is_adopted)
            if not row.is_adopted:
                warehouse.release_gone(own, row.schema_name)
        except CatalogError as problem:
            raise _HalfwayError(
                f"Warehouse {row.name} is in state creating: create or drop it again; {error}"
            ) from problem
        raise


class _HalfwayError(UnavailableError):
    """A creation failed, and what there is of it in another database could not be dropped."""


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
        check_name_free(rows, new_name)
        if not row.is_active:
            raise ConflictError(f"Warehouse {name} is in state {row.state}: complete that first")
        renamed = registry.rename_warehouse(cursor, row.warehouse_id, new_name)
        services.settle(
            cursor,
            [AuditedResource(f"warehouse {name}", detail={"to": f"warehouse {new_name}"})],
            str(row.warehouse_id),
        )
    return renamed


def move_warehouse(services: Services, wiring: WarehouseWiring, name: str, url: str) -> WarehouseRow:
    """Reach the database of a warehouse by another URL, as another login or host has the same lake.

    Raises NoSuchWarehouseError, InvalidRequestError, ConflictError if it has another lake, UnavailableError.
    """
    return services.run_once(lambda: _move(services, wiring, name, url), lambda result: _find_by_id(services, result))


def _move(services: Services, wiring: WarehouseWiring, name: str, url: str) -> WarehouseRow:
    row = find_warehouse(services, name)
    address = warehouse_databases.move_database(services, wiring.databases, row, url)
    with services.database.transaction() as cursor:
        registry.lock_registry(cursor)
        registry.set_database(cursor, row.warehouse_id, address)
        resource = AuditedResource(f"warehouse {name}", detail={"database-url": address.url})
        services.settle(cursor, [resource], str(row.warehouse_id))
    return _find_by_id(services, str(row.warehouse_id))


def adopt_data_path(services: Services, wiring: WarehouseWiring, name: str) -> list[str]:
    """Take the DATA_PATH that the lake of a warehouse has now for the registry; return what changed, as sentences.

    Raises NoSuchWarehouseError, InvalidRequestError for one that isn't below the roots, or is another warehouse's.
    """
    row = find_warehouse(services, name)
    own = open_warehouse(services, wiring, row)
    try:
        with own.database.reading() as own_cursor:
            options = read_options(own_cursor) or {}
    finally:
        close_warehouse(services, own)
    if own.policy.holds(options.get("data_path", "")):
        return []
    roots = wiring.roots if row.profile is None else (find_profile(services, row.profile).spec.root,)
    with services.database.transaction() as cursor:
        others = [other for other in registry.lock_registry(cursor) if other.warehouse_id != row.warehouse_id]
        data_path = check_adopted_place(services, cursor, others, roots, options)
        registry.set_data_path(cursor, row.warehouse_id, data_path)
        services.settle(cursor, [AuditedResource(f"warehouse {name}", detail={"data-path": data_path})])
    return [f"DuckLake's files of warehouse {name} are in {data_path} from now on."]


def rotate_secrets(services: Services, keys: SecretKeys) -> int:
    """Write the keys of storage profiles, secrets of issuers and URLs of databases anew, encrypted with the first key.

    Return how many there are. Raises UnavailableError.
    """
    with services.database.transaction() as cursor:
        count = rotate_profiles(cursor, keys) + rotate_issuers(cursor, keys)
        rows = [row for row in registry.lock_registry(cursor) if row.database_secret is not None]
        for row in rows:
            registry.set_database(cursor, row.warehouse_id, warehouse_databases.seal_anew(row, keys))
        count += len(rows)
        services.settle(cursor, [AuditedResource("storage-profiles", detail={"secrets": count})])
    return count


def _register(
    services: Services,
    databases: WarehouseDatabases,
    roots: tuple[str, ...],
    new: NewWarehouse,
    profile: ProfileRow | None,
) -> tuple[WarehouseRow, bool]:
    """Add the row, and make the schema if it is in this database; return the row, and whether it is new.

    A row in state `creating` of the same warehouse is taken over.
    """
    warehouse_id = uuid4()
    address = None if new.database_url is None else databases.seal(warehouse_id, new.database_url)
    with services.database.transaction() as cursor:
        rows = registry.lock_registry(cursor)
        begun = next((row for row in rows if row.name == new.name and row.state == "creating"), None)
        if begun is not None and _is_same(begun, new):
            return _take_over(cursor, databases, begun, new), False
        check_name_free(rows, new.name)
        beside = [row for row in rows if row.database_url == (address and address.url)]
        schema, location, data_path = choose_schema(beside, new), choose_location(roots, rows, new), None
        check_schema_free(beside, schema)
        check_below_roots(services, roots, "location", location)
        check_place_free(services, cursor, rows, "location", location)
        if address is None and new.adopted_schema is None:
            _make_schema(cursor, schema)
        elif address is None:
            options = _read_lake(services, cursor, schema)
            data_path = check_adopted_place(services, cursor, rows, roots, options)
        row = registry.insert_warehouse(
            cursor,
            new.name,
            schema,
            location,
            is_adopted=new.adopted_schema is not None,
            profile_id=None if profile is None else profile.profile_id,
            warehouse_id=warehouse_id,
            database=address,
            data_path=data_path,
        )
        return row, True


def _take_over(
    cursor: Transaction, databases: WarehouseDatabases, begun: WarehouseRow, new: NewWarehouse
) -> WarehouseRow:
    """Return a creation left halfway, with the password of now."""
    if new.database_url is None:
        return begun
    address = databases.seal(begun.warehouse_id, new.database_url)
    registry.set_database(cursor, begun.warehouse_id, address)
    return replace(begun, database_url=address.url, database_secret=address.secret)


def _make_schema(cursor: Transaction, schema: str) -> None:
    """Make the schema of a warehouse in the first one's database."""
    facts = registry.read_schema_facts(cursor, schema)
    if facts.exists:
        raise AlreadyExistsError(f"The database has a schema {schema}: adopt the lake in it, or choose another name")
    registry.create_schema(cursor, schema)


def _read_lake(services: Services, cursor: Transaction, schema: str) -> Mapping[str, str] | None:
    """Read the options of a lake to adopt in the first one's database; InvalidRequestError if there is none."""
    facts = registry.read_schema_facts(cursor, schema)
    if facts.is_first:
        raise InvalidRequestError(f"Schema {schema} is that of the first warehouse: choose another lake")
    if not facts.has_lake:
        raise InvalidRequestError(f"Schema {schema} has no DuckLake catalog to adopt")
    with SchemaDatabase(services.database, schema).reading() as own:
        return read_options(own)


def _is_same(begun: WarehouseRow, new: NewWarehouse) -> bool:
    """Return whether a creation left halfway is of the same warehouse; what isn't given is as it was chosen then."""
    return (
        begun.is_adopted == (new.adopted_schema is not None)
        and new.profile == begun.profile
        and new.adopted_schema in {None, begun.schema_name}
        and (new.location is None or new.location.rstrip("/") == begun.location)
        and begun.database_url == (None if new.database_url is None else strip_password(new.database_url))
    )


def _unregister(services: Services, row: WarehouseRow) -> None:
    """Undo `_register` after a failure."""
    with services.database.transaction() as cursor:
        registry.delete_warehouse(cursor, row.name)
        if not row.is_adopted and row.database_url is None:
            registry.drop_schema(cursor, row.schema_name)


def _find_by_id(services: Services, warehouse_id: str) -> WarehouseRow:
    """Find the warehouse that an earlier request was about, whatever its name is now."""
    found = next((row for row in list_warehouses(services) if row.warehouse_id == UUID(warehouse_id)), None)
    if found is None:
        raise NoSuchWarehouseError("The warehouse of the earlier request with this Idempotency-Key is gone")
    return found
