"""Build the ASGI app: routes, the middleware around them, and the OpenAPI document."""

import json
import sys
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from duckicelake.catalog.context.hooks import load_rules
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.jobs import BeginJob, EndJob, RenewJob
from duckicelake.catalog.load_response import LoadTableFastPath, build_freshness_checks
from duckicelake.catalog.maintenance import FindOrphans
from duckicelake.iceberg.reports import MetricsReport
from duckicelake.iceberg.rest import (
    CommitTableRequest,
    CommitTransactionRequest,
    CommitViewRequest,
    CreateNamespaceRequest,
    CreateTableRequest,
    CreateViewRequest,
    RegisterTableRequest,
    RegisterViewRequest,
    RemoteSignRequest,
    RenameTableRequest,
    UpdateNamespacePropertiesRequest,
)
from duckicelake.iceberg.scan_requests import FetchScanTasksRequest, PlanTableScanRequest
from duckicelake.server.auth.authentication import Authentication
from duckicelake.server.fast_path import LoadTableResponder
from duckicelake.server.feed.hub import FeedHub, ReaderLimits
from duckicelake.server.hooks import list_needs, load_routes
from duckicelake.server.http import errors
from duckicelake.server.http.route import FastRouter
from duckicelake.server.http.scope import keep_raw_path
from duckicelake.server.middleware.audit import AuditMiddleware, build_audit_log
from duckicelake.server.middleware.body_limit import BodyBudget, BodyLimitMiddleware, UnzipMiddleware
from duckicelake.server.middleware.cross_site import AllowedHosts, CrossSiteRules, RequireHttpsMiddleware
from duckicelake.server.middleware.quotas import Quotas, Rates
from duckicelake.server.middleware.requests import (
    DispatchMiddleware,
    LoginRequestCounter,
    RequestLog,
    RequestLogMiddleware,
    RequestSlots,
)
from duckicelake.server.middleware.traces import TracedMeter, TraceMiddleware, Tracer
from duckicelake.server.routes import (
    catalog,
    dropped,
    events,
    history,
    oauth,
    operations,
    pipeline,
    plans,
    rows,
    table_operations,
    tables,
    views,
)
from duckicelake.server.routes.dependencies import ServerContext, guard_routes
from duckicelake.server.routes.dropped import UndropBody
from duckicelake.server.routes.events import QueryEventsRequest
from duckicelake.server.routes.table_operations import CloneTableRequest, ExpireRequest, ExplainRequest, RestoreRequest
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.server.telemetry.metrics import Metrics

REQUEST_MODELS: tuple[type[BaseModel], ...] = (
    BeginJob,
    CloneTableRequest,
    CommitTableRequest,
    CommitTransactionRequest,
    CommitViewRequest,
    CreateNamespaceRequest,
    CreateTableRequest,
    CreateViewRequest,
    EndJob,
    ExpireRequest,
    ExplainRequest,
    FetchScanTasksRequest,
    FindOrphans,
    MetricsReport,
    PlanTableScanRequest,
    QueryEventsRequest,
    RegisterTableRequest,
    RegisterViewRequest,
    RemoteSignRequest,
    RenameTableRequest,
    RenewJob,
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


WAREHOUSE_NAME = "duckicelake"
DEFAULT_BODY_BYTES = 64 * 1024 * 1024
DEFAULT_BODIES_BYTES = 512 * 1024 * 1024
_METHODS = ("GET", "HEAD", "POST", "DELETE")

API_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Edge:
    """Limits of what the server takes from clients.

    Attributes:
        cors_origins: Origins of web pages that may read responses; empty turns CORS off.
        hosts: Names under which a server without logins answers; None allows any.
        rows: How many rows a principal may send.
        readers: How many readers may wait for changes.
        shared: The folder of what the workers of a server share; None for a single worker.

    """

    max_body_bytes: int = DEFAULT_BODY_BYTES
    max_bodies_bytes: int = DEFAULT_BODIES_BYTES
    body_seconds: float = 60.0
    max_requests: int = 256
    cors_origins: tuple[str, ...] = ()
    require_https: bool = False
    hosts: AllowedHosts | None = None
    rows: Rates = field(default_factory=Rates)
    readers: ReaderLimits = field(default_factory=ReaderLimits)
    shared: Path | None = None


class App(FastAPI):
    """FastAPI behind middleware that passes a request on or answers it without FastAPI.

    Middleware, routes and path parameters see the path undecoded.
    """

    layers: ASGIApp | None = None
    fast_router: FastRouter | None = None

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


def create_app(
    services: Services,
    *,
    warehouses: Iterable[str] = (),
    edge: Edge | None = None,
    log: FilteringBoundLogger | None = None,
    authentication: Authentication | None = None,
    metrics_public: bool = False,
    tracer: Tracer | None = None,
) -> App:
    """Create the catalog's ASGI app. It uses the services, but does not close them.

    warehouses: what clients may call the warehouse besides `duckicelake` and its location. log: default is stderr.
    authentication: how callers prove who they are; None is off. metrics_public: /metrics needs no token.
    tracer: makes spans of requests and of what they do.
    """
    app = create_routes()
    load_rules()  # they import DuckDB, which the first commit should not wait for
    edge, log = edge or Edge(), log or make_logger(sys.stderr)
    services = replace(services, publish_audit=build_audit_log(log))
    names = {WAREHOUSE_NAME, services.policy.warehouse, *warehouses}
    database, cache, reads, scans = services.database, services.cache, services.reads, services.scans
    metrics = Metrics(database.statistics, cache.statistics, reads.statistics, scans.statistics)
    services = services.with_meter(metrics if tracer is None else TracedMeter(metrics, tracer))
    known = frozenset(name.rstrip("/") for name in names)
    quotas = Quotas.of(edge.rows, time.monotonic, edge.shared)
    feed = FeedHub(services, metrics, edge.readers, lambda error: log.warning("change-feed", error=str(error)))
    context = ServerContext(
        services, metrics, known, feed, authentication, metrics_public=metrics_public, quotas=quotas
    )
    app.state.context = context
    errors.install_error_handlers(app)
    _add_layers(app, edge, services, metrics, log, authentication, tracer)
    return app


def _add_layers(
    app: App,
    edge: Edge,
    services: Services,
    metrics: Metrics,
    log: FilteringBoundLogger,
    authentication: Authentication | None,
    tracer: Tracer | None,
) -> None:
    """Put the middleware around the app, from the innermost to the outermost."""
    slots, register = RequestSlots(edge.max_requests), RequestLog(metrics, log)
    loads = LoadTableFastPath(services, build_freshness_checks(services))
    layer: ASGIApp = AuditMiddleware(app.behind_layers, services=services)
    budget = BodyBudget(max(edge.max_bodies_bytes, edge.max_body_bytes))
    layer = BodyLimitMiddleware(layer, limit=edge.max_body_bytes, seconds=edge.body_seconds, budget=budget)
    layer = UnzipMiddleware(layer)
    routes = {"GET": _find_route(app, "load_table"), "HEAD": _find_route(app, "table_exists")}
    responder = LoadTableResponder(
        layer, app.call_fastapi, routes, loads, authentication, slots, register, is_cacheable=tracer is None
    )
    sites = CrossSiteRules(hosts=edge.hosts, origins=edge.cors_origins) if authentication is None else None
    layer = DispatchMiddleware(layer, responder.choose_app, slots, metrics, LoginRequestCounter(), sites)
    if edge.cors_origins:
        layer = CORSMiddleware(
            layer,
            allow_origins=edge.cors_origins,
            allow_methods=_METHODS,
            allow_headers=["*"],
            expose_headers=["ETag", "X-Request-Id"],
        )
    if edge.require_https:
        layer = RequireHttpsMiddleware(layer)
    if tracer is not None:
        layer = TraceMiddleware(layer, tracer=tracer)
    layer = RequestLogMiddleware(layer, register=register)
    app.layers, app.fast_router = layer, FastRouter(app)


def _find_route(app: App, name: str) -> Route:
    return next(route for route in app.router.routes if isinstance(route, Route) and route.name == name)


def create_routes() -> App:
    """Create the routes without services, which is enough to describe what is served."""
    app = App(
        title="duckicelake",
        version=API_VERSION,
        description="An Iceberg REST catalog whose truth is a DuckLake catalog in Postgres.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    routers = (
        tables.table_post_router,
        rows.row_post_router,
        plans.plan_router,
        oauth.router,
        catalog.config_router,
        catalog.namespace_router,
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
        pipeline.job_router,
        pipeline.maintenance_router,
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
