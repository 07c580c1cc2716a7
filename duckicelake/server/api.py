"""The routes of the API, and the OpenAPI document that describes them."""

import json
from collections.abc import Awaitable
from functools import cache, partial
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake import __version__
from duckicelake.catalog.jobs import BeginJob, EndJob, RenewJob
from duckicelake.catalog.maintenance import FindOrphans
from duckicelake.iceberg.reports import MetricsReport
from duckicelake.iceberg.rest import (
    CommitTableRequest,
    CommitTransactionRequest,
    CommitViewRequest,
    CreateNamespaceRequest,
    CreateTableRequest,
    CreateViewRequest,
    FetchScanTasksRequest,
    PlanTableScanRequest,
    RegisterViewRequest,
    RemoteSignRequest,
    RenameTableRequest,
    UpdateNamespacePropertiesRequest,
)
from duckicelake.server.hooks import list_needs, load_routes
from duckicelake.server.http.route import FastRouter
from duckicelake.server.http.scope import keep_raw_path
from duckicelake.server.routes import (
    catalog,
    dropped,
    events,
    grants,
    history,
    issuers,
    management,
    oauth,
    operations,
    own_tokens,
    pipeline,
    plans,
    policies,
    principals,
    rows,
    storage_profiles,
    table_operations,
    tables,
    upkeep,
    views,
)
from duckicelake.server.routes.catalog import RenameNamespaceBody
from duckicelake.server.routes.dependencies import guard_routes
from duckicelake.server.routes.dropped import UndropBody
from duckicelake.server.routes.events import QueryEventsRequest
from duckicelake.server.routes.grants import ChangeGrantsRequest
from duckicelake.server.routes.issuers import CreateIssuerRequest
from duckicelake.server.routes.management import (
    ApplyGovernanceRequest,
    ChangeOptionsRequest,
    CreateWarehouseRequest,
    MoveWarehouseRequest,
    RenameWarehouseRequest,
)
from duckicelake.server.routes.policies import ChangeTagsRequest, NewPolicyRequest
from duckicelake.server.routes.storage_profiles import CreateStorageProfileRequest
from duckicelake.server.routes.table_operations import CloneTableRequest, ExpireRequest, ExplainRequest, RestoreRequest
from duckicelake.server.routes.tables import RegisterRequest
from duckicelake.server.routes.upkeep import DeleteOrphansRequest
from duckicelake.server.warehouses import WarehouseRouter

REQUEST_MODELS: tuple[type[BaseModel], ...] = (
    *own_tokens.REQUEST_MODELS,
    NewPolicyRequest,
    *principals.REQUEST_MODELS,
    CreateIssuerRequest,
    ApplyGovernanceRequest,
    BeginJob,
    ChangeGrantsRequest,
    ChangeOptionsRequest,
    ChangeTagsRequest,
    CloneTableRequest,
    CommitTableRequest,
    CommitTransactionRequest,
    CommitViewRequest,
    CreateNamespaceRequest,
    CreateStorageProfileRequest,
    CreateTableRequest,
    CreateViewRequest,
    CreateWarehouseRequest,
    DeleteOrphansRequest,
    EndJob,
    ExpireRequest,
    ExplainRequest,
    FetchScanTasksRequest,
    FindOrphans,
    MetricsReport,
    PlanTableScanRequest,
    QueryEventsRequest,
    RegisterRequest,
    RegisterViewRequest,
    RemoteSignRequest,
    RenameTableRequest,
    MoveWarehouseRequest,
    RenameWarehouseRequest,
    RenewJob,
    RenameNamespaceBody,
    RestoreRequest,
    UndropBody,
    UpdateNamespacePropertiesRequest,
)
"""Bodies that endpoints parse in their own thread, which FastAPI therefore does not see."""


def render_document(app: FastAPI) -> str:
    """Render the document for `openapi/duckicelake.json`."""
    return json.dumps(describe_app(app), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def describe_app(app: FastAPI) -> dict[str, Any]:
    """Build the OpenAPI document, the same on every machine."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    models = (*REQUEST_MODELS, *(model for feature in load_routes() for model in feature.request_models))
    _, definitions = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    document["components"]["schemas"].update(definitions["$defs"])
    return document


class App(FastAPI):
    """FastAPI behind middleware that passes a request on or answers it without FastAPI.

    Middleware, routes and path parameters see the path undecoded.
    """

    layers: ASGIApp | None = None
    fast_router: FastRouter | None = None
    warehouses: WarehouseRouter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keep_raw_path(scope)
        await (self.layers or self.behind_layers)(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """Leave out Starlette's answer to bugs, which is no JSON; RequestLogMiddleware, outermost, answers."""
        stack = super().build_middleware_stack()
        assert isinstance(stack, ServerErrorMiddleware)
        return stack.app

    def behind_layers(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        route = None if self.fast_router is None else self.fast_router.find(scope)
        app = self.call_fastapi if route is None else route
        return app(scope, receive, send)

    def call_fastapi(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return super().__call__(scope, receive, send)


def create_routes() -> App:
    """Create the routes without services, which is enough to describe what is served."""
    app = App(
        title="duckicelake",
        version=__version__,
        description="An Iceberg REST catalog whose truth is a DuckLake catalog in Postgres.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    routers = (
        tables.table_post_router,
        rows.row_post_router,
        plans.plan_router,
        plans.plan_id_router,
        oauth.router,
        oauth.login_router,
        oauth.resource_router,
        catalog.config_router,
        catalog.namespace_router,
        catalog.search_router,
        catalog.rename_router,
        tables.table_router,
        dropped.router,
        table_operations.restore_router,
        table_operations.clone_router,
        table_operations.explain_router,
        rows.row_router,
        rows.flush_router,
        tables.storage_router,
        views.router,
        catalog.transaction_router,
        events.router,
        history.router,
        upkeep.router,
        pipeline.job_router,
        pipeline.maintenance_router,
        management.router,
        storage_profiles.router,
        grants.router,
        policies.router,
        principals.router,
        issuers.router,
        own_tokens.router,
        *(router for feature in load_routes() for router in feature.routers),
        operations.health_router,
        operations.page_router,
    )
    for router in routers:
        # Flat, not include_router: a request tries one list of patterns, what is asked most often first, and 405 can
        # name the methods of a path.
        app.router.routes.extend(router.routes)
    app.router.routes[:] = guard_routes(app.router.routes, list_needs())
    app.openapi = cache(partial(describe_app, app))  # type: ignore[method-assign]
    return app
