"""Routes of the management API: warehouses, and all that governs a server as one document."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from duckicelake.catalog import warehouse_options, warehouse_registry, warehouse_removal, warehouses
from duckicelake.catalog.context.page import slice_page
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.governance import apply_state, read_state
from duckicelake.catalog.governance_document import build_state, describe_state, parse_document
from duckicelake.catalog.warehouse_places import NewWarehouse
from duckicelake.catalog.warehouses import (
    FIRST_WAREHOUSE_NAME,
    Warehouse,
    WarehouseWiring,
    build_prefix,
    is_warehouse_name,
)
from duckicelake.errors import NoSuchWarehouseError, UnavailableError
from duckicelake.iceberg.model import SpecModel
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.routes.dependencies import (
    AppContext,
    AppServices,
    Body,
    KeyedServices,
    PageQuery,
    ServerContext,
    describe_body,
)
from duckicelake.server.routes.issuers import find_issuer_rules

router = APIRouter(prefix="/management/v1", tags=["management"], responses=RESPONSES, route_class=StrictRoute)
_PLACE: Final = "document"
T = TypeVar("T")


class ApplyGovernanceRequest(StrictRequest):
    """A document to apply.

    prune: drop what its sections lack. dry-run: answer with what would change, and change nothing.
    """

    document: dict[str, Any]
    prune: bool = False
    dry_run: bool = False


class AppliedGovernance(SpecModel):
    """What changed, or would."""

    changes: tuple[str, ...]


@router.get("/governance")
def export_governance(context: AppContext, services: AppServices) -> dict[str, Any]:
    """Return principals, groups, roles, issuers, warehouses and grants as one document, without secrets."""
    return describe_state(read_state(services, find_wiring(context)))


@router.post("/governance", openapi_extra=describe_body(ApplyGovernanceRequest))
def apply_governance(context: AppContext, services: AppServices, body: Body) -> AppliedGovernance:
    """Make principals, groups, roles, issuers, warehouses and grants as a document says."""
    request = parse_body(ApplyGovernanceRequest, body)
    wanted = build_state(parse_document(request.document, _PLACE), _PLACE)
    wanted = replace(wanted, issuer_rules=find_issuer_rules(context))
    changes = apply_state(services, find_wiring(context), wanted, prunes=request.prune, is_dry=request.dry_run)
    forget_warehouses(context)
    return AppliedGovernance(changes=tuple(changes))


class CreateWarehouseRequest(StrictRequest):
    """A warehouse to create.

    location: the folder of its files, below one of the server's roots; by default the name below the first root.
    adopted-schema: the Postgres schema of the DuckLake catalog that it is to serve; by default a new one is made.
    storage-profile: the profile whose store has its files; by default the store of the server's settings.
    database-url: of the Postgres database of its catalog, with login and password; by default the server's own.
    """

    name: Annotated[str, Field(min_length=1, max_length=48)]
    location: Annotated[str, Field(min_length=1, max_length=860)] | None = None
    adopted_schema: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    storage_profile: Annotated[str, Field(min_length=1, max_length=48)] | None = None
    database_url: Annotated[str, Field(min_length=1, max_length=2048)] | None = None


class MoveWarehouseRequest(StrictRequest):
    """By which URL the database of a warehouse is reached, with login and password."""

    database_url: Annotated[str, Field(min_length=1, max_length=2048)]


class RenameWarehouseRequest(StrictRequest):
    """The new name of a warehouse."""

    name: Annotated[str, Field(min_length=1, max_length=48)]


class ChangeOptionsRequest(StrictRequest):
    """Values by option; null: as it is by default."""

    options: dict[Annotated[str, Field(max_length=200)], Annotated[str, Field(max_length=1000)] | None]


class WarehouseOptions(SpecModel):
    """The options of a warehouse, by name."""

    model_config = ConfigDict(frozen=True)

    options: dict[str, str]


class WarehouseAnswer(SpecModel):
    """A warehouse.

    prefix: what stands behind `v1/` in its routes' paths. metadata-schema: DuckDB's METADATA_SCHEMA. database-url: of
    its catalog, without the password; none: the server's own database.
    """

    model_config = ConfigDict(frozen=True)

    warehouse_id: UUID
    name: str
    prefix: str
    metadata_schema: str
    location: str
    storage_profile: str | None = None
    database_url: str | None = None
    is_adopted: bool
    state: str
    created: datetime


class WarehouseList(SpecModel):
    """The warehouses beside the first, by name."""

    model_config = ConfigDict(frozen=True)

    warehouses: tuple[WarehouseAnswer, ...]
    next_page_token: str | None = None


class DroppedWarehouse(SpecModel):
    """What the catalog of a dropped warehouse had; its files are still there."""

    model_config = ConfigDict(frozen=True)

    tables: int
    views: int
    namespaces: int


@router.get("/warehouses")
def list_warehouses(services: AppServices, page: PageQuery) -> WarehouseList:
    """List the warehouses beside the first."""
    found = slice_page(warehouses.list_warehouses(services), page, lambda row: row.name)
    return WarehouseList(warehouses=tuple(map(describe_warehouse, found.items)), next_page_token=found.next_token)


@router.post("/warehouses", openapi_extra=describe_body(CreateWarehouseRequest))
async def create_warehouse(context: AppContext, services: KeyedServices, body: Body) -> WarehouseAnswer:
    """Create a warehouse with a new lake, or with one that another schema, or another database, holds."""
    request = parse_body(CreateWarehouseRequest, body)
    new = NewWarehouse(
        request.name, request.location, request.adopted_schema, request.storage_profile, request.database_url
    )
    created = await run_in_threadpool(warehouse_registry.create_warehouse, services, find_wiring(context), new)
    forget_warehouses(context)
    return describe_warehouse(created)


@router.get("/warehouses/{warehouse}")
def load_warehouse(services: AppServices, warehouse: str) -> WarehouseAnswer:
    """Load a warehouse."""
    return describe_warehouse(warehouses.find_warehouse(services, warehouse))


@router.post("/warehouses/{warehouse}/rename", openapi_extra=describe_body(RenameWarehouseRequest))
async def rename_warehouse(context: AppContext, services: KeyedServices, warehouse: str, body: Body) -> WarehouseAnswer:
    """Rename a warehouse; its schema and folder stay. The old name ends on all workers within a second."""
    new_name = parse_body(RenameWarehouseRequest, body).name
    renamed = await run_in_threadpool(warehouse_registry.rename_warehouse, services, warehouse, new_name)
    forget_warehouses(context)
    return describe_warehouse(renamed)


@router.post("/warehouses/{warehouse}/database", openapi_extra=describe_body(MoveWarehouseRequest))
async def move_warehouse(context: AppContext, services: KeyedServices, warehouse: str, body: Body) -> WarehouseAnswer:
    """Reach the database of a warehouse by another login, password or host; it must have the same catalog."""
    url, wiring = parse_body(MoveWarehouseRequest, body).database_url, find_wiring(context)
    moved = await run_in_threadpool(warehouse_registry.move_warehouse, services, wiring, warehouse, url)
    forget_warehouses(context)
    return describe_warehouse(moved)


@router.delete("/warehouses/{warehouse}")
async def drop_warehouse(
    context: AppContext,
    services: KeyedServices,
    warehouse: str,
    force: Annotated[bool, Query(description="drop a catalog that isn't empty, too")] = False,
    keep_lake: Annotated[bool, Query(alias="keep-lake", description="only stop serving it")] = False,
) -> DroppedWarehouse:
    """Drop a warehouse and its catalog, which must be empty; its files stay."""

    def drop() -> Any:
        wiring = find_wiring(context)
        return warehouse_removal.drop_warehouse(services, wiring, warehouse, forces=force, keeps_lake=keep_lake)

    contents = await run_in_threadpool(drop)
    forget_warehouses(context)
    return DroppedWarehouse(tables=contents.tables, views=contents.views, namespaces=contents.namespaces)


@router.get("/warehouses/{warehouse}/options")
async def read_options(context: AppContext, services: AppServices, warehouse: str) -> WarehouseOptions:
    """Read the options of a warehouse: its limits, policies of maintenance, how long what was dropped stays."""
    return WarehouseOptions(options=await _run_in(context, services, warehouse, warehouse_options.read_options))


@router.post("/warehouses/{warehouse}/options", openapi_extra=describe_body(ChangeOptionsRequest))
async def change_options(context: AppContext, services: KeyedServices, warehouse: str, body: Body) -> WarehouseOptions:
    """Change options of a warehouse, all or none; workers that run follow within a second."""
    changes, wiring = parse_body(ChangeOptionsRequest, body).options, find_wiring(context)

    def change(own: Services) -> dict[str, str]:
        return warehouse_options.change_options(own, changes, wiring.check_policies, wiring.roots)

    changed = await _run_in(context, services, warehouse, change)
    forget_warehouses(context)
    return WarehouseOptions(options=changed)


async def _run_in(context: ServerContext, services: Services, name: str, use: Callable[[Services], T]) -> T:
    """Run a use case in a warehouse by its name; in its catalog alone, where it can't be opened. NoSuchWarehouseError.

    services: of the request.
    """
    if name == FIRST_WAREHOUSE_NAME:
        return await run_in_threadpool(use, services)
    if context.others is None or not is_warehouse_name(name):
        raise NoSuchWarehouseError(f"No such warehouse: {name}")
    try:
        found = (await context.others.find_context(name)).services
    except UnavailableError:
        return await run_in_threadpool(_run_in_catalog, services, find_wiring(context), name, use)
    return await run_in_threadpool(use, replace(found, caller=services.caller, once=services.once))


def _run_in_catalog(services: Services, wiring: WarehouseWiring, name: str, use: Callable[[Services], T]) -> T:
    with warehouses.open_catalog(services, wiring, warehouses.find_warehouse(services, name)) as own:
        return use(own)


def describe_warehouse(row: Warehouse) -> WarehouseAnswer:
    """Describe a warehouse as the API and the commands do."""
    return WarehouseAnswer(
        warehouse_id=row.warehouse_id,
        name=row.name,
        prefix=build_prefix(row.name),
        metadata_schema=row.schema_name,
        location=row.location,
        storage_profile=row.profile,
        database_url=row.database_url,
        is_adopted=row.is_adopted,
        state=row.state,
        created=row.created,
    )


def find_wiring(context: ServerContext) -> WarehouseWiring:
    """Find how warehouses are made."""
    return WarehouseWiring() if context.others is None else context.others.wiring


def forget_warehouses(context: ServerContext) -> None:
    """Have the registry of warehouses read anew."""
    if context.others is not None:
        context.others.forget()
