"""Drop warehouses beside the first, with their catalogs or without; their data files stay."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from time import monotonic, sleep
from typing import Final

from duckicelake.catalog import warehouse, warehouse_databases
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouses import (
    Warehouse,
    WarehouseWiring,
    close_warehouse,
    find_warehouse,
    open_warehouse,
)
from duckicelake.errors import ConflictError, UnavailableError, format_count
from duckicelake.lake.side_tables import warehouses as registry
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.warehouses import ACTIVE, LakeContents, WarehouseRow

_CLOSING_SECONDS: Final = 5.0
"""Seconds that a drop waits for servers that have the warehouse open; they look at the registry once a second."""


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
    try:
        own, has_store = _open_to_drop(services, wiring, row)
    except UnavailableError:
        if row.database_url is None or not keeps_lake:
            raise
        return _forget_warehouse(services, row, LakeContents(0, 0, 0))  # its database may be gone for good
    try:
        contents = _read_contents(own, row)
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
    has_lake = _has_lake(own, row)
    if has_lake:
        _wait_for_servers(own, row)
    marked: Iterable[str] = ()
    with own.database.transaction() as cursor:
        contents = LakeContents(0, 0, 0)
        if has_lake:
            contents = registry.lock_contents(cursor)
            marked = warehouse.folders(own) if has_marks else ()
        is_refused = not (contents.is_empty or forces or keeps_lake)
        if row.database_url is not None and not is_refused:
            warehouse_databases.vacate_in(own, cursor, row, keeps_lake=keeps_lake)
        elif not (is_refused or keeps_lake):
            registry.drop_schema(cursor, row.schema_name)
    if is_refused:
        with services.database.transaction() as cursor:
            registry.set_state(cursor, row.name, ACTIVE)
        raise _build_not_empty_error(row.name, contents)
    if has_marks and not has_lake:  # of a drop that ended before this one
        warehouse.release_gone(own, row.schema_name)
    warehouse.release(own, list(marked))  # before the row goes, so that a drop that is repeated finds the rest
    return _forget_warehouse(services, row, contents)


def _forget_warehouse(services: Services, row: WarehouseRow, contents: LakeContents) -> LakeContents:
    """Delete the row of a warehouse, as the last step of a drop."""
    with services.database.transaction() as cursor:
        registry.delete_warehouse(cursor, row.name)
        services.settle(cursor, [AuditedResource(f"warehouse {row.name}")], asdict(contents))
    return contents


def _has_lake(own: Services, row: WarehouseRow) -> bool:
    """Return whether the schema of a warehouse has its lake."""
    if row.database_url is not None and not warehouse_databases.is_occupied(own, row):
        return False
    with own.database.reading() as cursor:
        return registry.read_schema_facts(cursor, row.schema_name).has_lake


def _wait_for_servers(own: Services, row: Warehouse) -> None:
    """Wait until the servers that run have closed the warehouse, so that no background task meets half a lake."""
    until = monotonic() + _CLOSING_SECONDS
    with own.database.reading() as cursor:
        if not registry.read_schema_facts(cursor, row.schema_name).is_prepared:
            return
    server = warehouse.describe_server(own)
    while monotonic() < until:
        with own.database.statement() as cursor:
            if not server.has_others(cursor):
                return
        sleep(_CLOSING_SECONDS / 50)


def _read_contents(own: Services, row: WarehouseRow) -> LakeContents:
    if not _has_lake(own, row):
        return LakeContents(0, 0, 0)
    with own.database.reading() as cursor:
        return registry.read_contents(cursor)


def _build_not_empty_error(name: str, contents: LakeContents) -> ConflictError:
    return ConflictError(
        f"Warehouse {name} has {format_count(contents.tables, 'table')}, "
        f"{format_count(contents.views, 'view')} "
        f"and {format_count(contents.namespaces, 'namespace')}: drop them first, or force the drop, "
        "or keep the lake and only stop serving it"
    )
