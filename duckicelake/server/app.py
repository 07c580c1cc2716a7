"""The app: routes, and around them the layers that every request passes."""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from duckicelake.catalog.loads.quick import QuickLoads
from duckicelake.catalog.loads.shared_checks import SharedChecks
from duckicelake.catalog.services import Services
from duckicelake.server import errors
from duckicelake.server.access import Access, Register
from duckicelake.server.auditing import Audit, journal_of
from duckicelake.server.context import Context
from duckicelake.server.cross_site import CrossSite
from duckicelake.server.feed.hub import FeedHub, ReaderLimits
from duckicelake.server.guard import guarded
from duckicelake.server.hosts import AllowedHosts
from duckicelake.server.https import RequireHttps
from duckicelake.server.identity.auth import Authentication
from duckicelake.server.limits.bodies import BodyLimit
from duckicelake.server.limits.body_budget import BodyBudget
from duckicelake.server.limits.encodings import Unzipped
from duckicelake.server.limits.load import LoadLimit, Slots
from duckicelake.server.limits.quotas import Quotas, Rates
from duckicelake.server.limits.strangers import Strangers
from duckicelake.server.openapi import describe
from duckicelake.server.quick.loads import Loads
from duckicelake.server.quick.short_way import ShortWay
from duckicelake.server.raw_paths import RawPaths
from duckicelake.server.routes import (
    clones,
    config,
    events,
    flush,
    health,
    history,
    lineage,
    maintenance,
    marquez,
    namespaces,
    oauth,
    openlineage,
    pipeline,
    restore,
    row_posts,
    rows,
    storage,
    table_posts,
    tables,
    transactions,
    ui,
    views,
)
from duckicelake.server.telemetry.logging import make_logger
from duckicelake.server.telemetry.metrics import Metrics
from duckicelake.server.telemetry.tracing import TracedMeter, Tracer, TraceRequests

WAREHOUSE_NAME = "duckicelake"
DEFAULT_BODY_LIMIT = 64 * 1024 * 1024
DEFAULT_BODIES_LIMIT = 512 * 1024 * 1024
_METHODS = ("GET", "HEAD", "POST", "DELETE")

API_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Edge:
    """What the server takes of clients. cors_origins: pages that browsers let read answers; none, and CORS is off.

    hosts: under which names it answers without logins; None: under any, for an app that knows no address of its own.

    rows: how much of rows one principal may send. readers: how many may wait for changes. shared: the folder in which
    the workers of a server keep what they share; None: there is but one.
    """

    max_body_bytes: int = DEFAULT_BODY_LIMIT
    max_bodies_bytes: int = DEFAULT_BODIES_LIMIT
    body_seconds: float = 60.0
    max_requests: int = 256
    cors_origins: tuple[str, ...] = ()
    require_https: bool = False
    hosts: AllowedHosts | None = None
    rows: Rates = field(default_factory=Rates)
    readers: ReaderLimits = field(default_factory=ReaderLimits)
    shared: Path | None = None


class App(FastAPI):
    """FastAPI behind layers of ours: those that let a request through, or answer it, need none of what it does."""

    layers: ASGIApp | None = None
    short_way: ShortWay | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.layers or self.behind_layers)(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """Without Starlette's own answer to bugs, which is no JSON: they rise to the outermost layer (`Access`)."""
        stack = super().build_middleware_stack()
        assert isinstance(stack, ServerErrorMiddleware)
        return stack.app

    async def behind_layers(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.short_way is None or not await self.short_way.answers(scope, receive, send):
            await super().__call__(scope, receive, send)


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
    """The catalog as an ASGI app that uses the services but does not close them.

    warehouses: what clients may call the warehouse besides `duckicelake` and its location. log: default is stderr.
    authentication: how callers prove who they are; None: nobody is asked. metrics_public: whoever may read /metrics.
    tracer: makes spans of requests and of what they do.
    """
    app = routes_only()
    edge, log = edge or Edge(), log or make_logger(sys.stderr)
    services = replace(services, journal=journal_of(log))
    names = {WAREHOUSE_NAME, services.policy.warehouse, *warehouses}
    metrics = Metrics(services.database.statistics, services.cache.statistics, services.reads.statistics)
    services = services.measured_by(metrics if tracer is None else TracedMeter(metrics, tracer))
    known = frozenset(name.rstrip("/") for name in names)
    quotas = Quotas.of(edge.rows, time.monotonic, edge.shared)
    feed = FeedHub(services, metrics, edge.readers, lambda error: log.warning("change-feed", error=str(error)))
    context = Context(services, metrics, known, feed, authentication, metrics_public=metrics_public, quotas=quotas)
    app.state.context = context
    errors.install(app)
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
    """What a request passes before it comes to the app: given from the innermost to the outermost."""
    slots, register = Slots(edge.max_requests), Register(metrics, log)
    loads = QuickLoads(services, SharedChecks(services.database.freshness_line(), services.meter))
    layer: ASGIApp = Audit(app.behind_layers, services=services)
    budget = BodyBudget(max(edge.max_bodies_bytes, edge.max_body_bytes))
    layer = BodyLimit(layer, limit=edge.max_body_bytes, seconds=edge.body_seconds, budget=budget)
    layer = Unzipped(layer)
    routes = {"GET": _route(app, "load_table"), "HEAD": _route(app, "table_exists")}
    layer = Loads(layer, routes, loads, authentication, slots, register, may_repeat=tracer is None)
    layer = LoadLimit(layer, slots=slots, metrics=metrics, strangers=Strangers())
    if authentication is None:
        layer = CrossSite(layer, hosts=edge.hosts, origins=edge.cors_origins)
    if edge.cors_origins:
        layer = CORSMiddleware(
            layer,
            allow_origins=edge.cors_origins,
            allow_methods=_METHODS,
            allow_headers=["*"],
            expose_headers=["ETag", "X-Request-Id"],
        )
    if edge.require_https:
        layer = RequireHttps(layer)
    if tracer is not None:
        layer = TraceRequests(layer, tracer=tracer)
    layer = Access(layer, register=register)
    app.layers, app.short_way = RawPaths(layer), ShortWay(app)


def _route(app: App, name: str) -> Route:
    return next(route for route in app.router.routes if isinstance(route, Route) and route.name == name)


def routes_only() -> App:
    """The routes with nothing behind them: enough to describe what is served."""
    app = App(
        title="duckicelake",
        version=API_VERSION,
        description="An Iceberg REST catalog whose truth is a DuckLake catalog in Postgres.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    of_tables = (namespaces, tables, restore, clones, rows, flush, storage)
    others = (views, transactions, events, history, pipeline, maintenance, lineage, openlineage, marquez, health, ui)
    modules = (table_posts, row_posts, oauth, config, *of_tables, *others)
    for module in modules:
        # Flat, not include_router: a request tries one list of patterns, what is asked most often first, and 405 can
        # tell which methods a path takes.
        app.router.routes.extend(module.router.routes)
    app.router.routes[:] = guarded(app.router.routes)
    app.openapi = cache(partial(describe, app))  # type: ignore[method-assign]
    return app
