"""Routes of the catalog: configuration, namespaces, transactions."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from duckicelake.catalog import dropped, namespace_rename, namespaces
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.search import MAX_TEXT_CHARS, SearchedObject, search_objects
from duckicelake.catalog.tables import commit_transaction
from duckicelake.catalog.warehouses import is_warehouse_name
from duckicelake.errors import NoSuchWarehouseError
from duckicelake.extras import is_installed
from duckicelake.iceberg.identifiers import Namespace, NamespaceField, parse_schema_name
from duckicelake.iceberg.model import SpecModel
from duckicelake.iceberg.rest import CommitTransactionRequest, CreateNamespaceRequest, UpdateNamespacePropertiesRequest
from duckicelake.lake.side_tables.idempotency import OUTCOME_LIFETIME
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import FastRoute, StrictRequest, StrictRoute
from duckicelake.server.http.scope import PREFIX
from duckicelake.server.routes.dependencies import (
    AppContext,
    AppServices,
    Body,
    DroppedQuery,
    KeyedAdmission,
    KeyedServices,
    NamespacePath,
    NamespaceQuery,
    PageQuery,
    ParentQuery,
    ServerContext,
    describe_body,
)

ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan/{plan-id}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan/{plan-id}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/tasks",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/unregister",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/sign",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
    "GET /v1/{prefix}/namespaces/{namespace}/views",
    "POST /v1/{prefix}/namespaces/{namespace}/views",
    "GET /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "POST /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "POST /v1/{prefix}/views/rename",
    "POST /v1/{prefix}/namespaces/{namespace}/register-view",
)
"""The specification's template text, `{prefix}` included, although the first warehouse has no prefix."""
_ENDPOINTS_WITHOUT_SCANS: Final = tuple(
    name for name in ENDPOINTS if not name.endswith(("/plan", "/{plan-id}", "/tasks"))
)
config_router = APIRouter(prefix=PREFIX, tags=["config"], responses=RESPONSES)
_JAVA_FILES = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
"""Which of Java's implementations reads S3; its default is Hadoop's."""
namespace_router = APIRouter(prefix=PREFIX, tags=["namespaces"], responses=RESPONSES)
search_router = APIRouter(prefix=PREFIX, tags=["search"], responses=RESPONSES, route_class=StrictRoute)
transaction_router = APIRouter(prefix=PREFIX, tags=["transactions"], responses=RESPONSES, route_class=FastRoute)


class CatalogConfig(BaseModel):
    """Properties that clients put below (`defaults`) and above (`overrides`) their own; routes they may call."""

    model_config = ConfigDict(frozen=True)

    defaults: dict[str, str] = {}
    overrides: dict[str, str] = {}
    endpoints: tuple[str, ...] = ENDPOINTS
    idempotency_key_lifetime: timedelta = Field(
        default=OUTCOME_LIFETIME, serialization_alias="idempotency-key-lifetime"
    )
    """Its presence is what makes clients send keys."""


@config_router.get("/config")
async def get_config(
    context: AppContext,
    warehouse: Annotated[str | None, Query(description="name or location of the warehouse; may be left out")] = None,
) -> CatalogConfig:
    """Read the configuration of a warehouse, and the prefix of its routes if it isn't the first."""
    if warehouse and warehouse.rstrip("/") not in context.warehouses:
        context = await _find_other(context, warehouse)
    services = context.services
    access, prefix = services.access.client, services.prefix.rstrip("/")
    return CatalogConfig(
        defaults={**access, **_JAVA_FILES} if access else {},
        overrides={"prefix": prefix} if prefix else {},
        endpoints=ENDPOINTS if is_installed("numpy") else _ENDPOINTS_WITHOUT_SCANS,
    )


async def _find_other(context: ServerContext, warehouse: str) -> ServerContext:
    """Find the context of another warehouse than the context's; NoSuchWarehouseError."""
    try:
        if context.others is not None and is_warehouse_name(warehouse):
            return await context.others.find_context(warehouse)
    except NoSuchWarehouseError:
        pass
    raise NoSuchWarehouseError(f"No such warehouse: {warehouse}; this server has {_join_names(context.warehouses)}")


def _join_names(names: frozenset[str]) -> str:
    return " or ".join(sorted(names))


class NamespaceList(BaseModel):
    """One page of namespaces, each as its full path."""

    model_config = ConfigDict(frozen=True)

    namespaces: tuple[tuple[str, ...], ...]
    next_page_token: str | None = Field(serialization_alias="next-page-token")


class NamespaceAnswer(BaseModel):
    """A namespace with all of its properties, and as `location` where its tables go."""

    model_config = ConfigDict(frozen=True)

    namespace: tuple[str, ...]
    properties: dict[str, str]


class UpdatedPropertiesAnswer(BaseModel):
    """Which keys were set, which were removed, and which of those to remove were not there."""

    model_config = ConfigDict(frozen=True)

    updated: tuple[str, ...]
    removed: tuple[str, ...]
    missing: tuple[str, ...]


@namespace_router.get("/namespaces")
def list_namespaces(
    services: AppServices, parent: ParentQuery, page: PageQuery, is_dropped: DroppedQuery = False
) -> NamespaceList:
    """List the top level, or the direct children of `parent`; of what was dropped, all that is below."""
    if is_dropped:
        found = dropped.list_dropped_namespaces(services, parent, page)
    else:
        found = namespaces.list_namespaces(services, parent, page)
    return NamespaceList(namespaces=found.items, next_page_token=found.next_token)


@namespace_router.post("/namespaces", openapi_extra=describe_body(CreateNamespaceRequest))
def create_namespace(admit: KeyedAdmission, body: Body) -> NamespaceAnswer:
    """Create a namespace, with properties if wanted."""
    request = parse_body(CreateNamespaceRequest, body)
    services = admit(request)
    properties = namespaces.create_namespace(services, request.namespace, request.properties)
    return _build_answer(services, request.namespace, properties)


@namespace_router.get("/namespaces/{namespace}")
def load_namespace(services: AppServices, namespace: NamespacePath) -> NamespaceAnswer:
    """Load a namespace's properties."""
    return _build_answer(services, namespace, namespaces.load_namespace(services, namespace))


@namespace_router.head("/namespaces/{namespace}", status_code=204)
def namespace_exists(services: AppServices, namespace: NamespacePath) -> Response:
    """Answer 204 if the namespace exists."""
    namespaces.load_namespace(services, namespace)
    return Response(status_code=204)


@namespace_router.delete("/namespaces/{namespace}", status_code=204)
def drop_namespace(services: KeyedServices, namespace: NamespacePath) -> Response:
    """Drop an empty namespace."""
    namespaces.drop_namespace(services, namespace)
    return Response(status_code=204)


@namespace_router.post(
    "/namespaces/{namespace}/properties", openapi_extra=describe_body(UpdateNamespacePropertiesRequest)
)
def update_properties(services: KeyedServices, namespace: NamespacePath, body: Body) -> UpdatedPropertiesAnswer:
    """Set and remove properties in one step."""
    request = parse_body(UpdateNamespacePropertiesRequest, body)
    result = namespaces.update_namespace(services, namespace, request.removals, request.updates)
    return UpdatedPropertiesAnswer(updated=result.updated, removed=result.removed, missing=result.missing)


def _build_answer(services: Services, namespace: Namespace, properties: Mapping[str, str]) -> NamespaceAnswer:
    return NamespaceAnswer(namespace=namespace, properties=namespaces.with_location(services, namespace, properties))


@transaction_router.post("/transactions/commit", status_code=204, openapi_extra=describe_body(CommitTransactionRequest))
def commit(admit: KeyedAdmission, body: Body) -> Response:
    """Commit to several tables, to all of them or to none."""
    request = parse_body(CommitTransactionRequest, body)
    commit_transaction(admit(request), request)
    return Response(status_code=204)


rename_router = APIRouter(prefix=PREFIX, tags=["namespaces"], responses=RESPONSES, route_class=StrictRoute)


class RenameNamespaceBody(StrictRequest):
    """destination: the namespace's new name, in full; its parents need not exist."""

    destination: NamespaceField


class StaleView(SpecModel):
    """A view whose query names tables by the old name, and finds them no more."""

    namespace: tuple[str, ...]
    name: str


class RenameNamespaceAnswer(SpecModel):
    """What moved in which DuckLake snapshot. stale_views: those that the caller may read; they keep their text."""

    namespace: tuple[str, ...]
    ducklake_snapshot_id: int
    namespaces: int
    tables: int
    views: int
    stale_views: tuple[StaleView, ...]


@rename_router.post("/namespaces/{namespace}/rename", openapi_extra=describe_body(RenameNamespaceBody))
def rename_namespace(services: KeyedServices, namespace: NamespacePath, body: Body) -> RenameNamespaceAnswer:
    """Rename a namespace, or move it below another, with all namespaces, tables and views in it, in one step."""
    destination = parse_body(RenameNamespaceBody, body).destination
    done = namespace_rename.rename_namespace(services, namespace, destination)
    return RenameNamespaceAnswer(
        namespace=destination,
        ducklake_snapshot_id=done.snapshot_id,
        namespaces=done.namespaces,
        tables=done.tables,
        views=done.views,
        stale_views=tuple(
            StaleView(namespace=parse_schema_name(schema), name=name) for schema, name in done.stale_views
        ),
    )


class SearchAnswer(SpecModel):
    """One page of what holds a text, by full name."""

    objects: tuple[SearchedObject, ...]
    next_page_token: str | None = None


@search_router.get("/search")
def search(
    services: AppServices,
    page: PageQuery,
    namespace: NamespaceQuery,
    q: Annotated[str, Query(description=f"a part of a word, in any case, of at most {MAX_TEXT_CHARS} characters")],
) -> SearchAnswer:
    """Find a text in names, columns and comments of namespaces, tables and views, of those that the caller may see."""
    found = search_objects(services, q, namespace, page)
    return SearchAnswer(objects=found.items, next_page_token=found.next_token)
