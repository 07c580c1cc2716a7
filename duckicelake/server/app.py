"""Build the ASGI app: the middleware around the routes, for each warehouse and for all."""

import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger

from duckicelake.catalog.context.hooks import load_rules
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.load_response import FreshnessChecks, LoadTableFastPath, build_freshness_checks
from duckicelake.catalog.warehouse_options import RequestLimits
from duckicelake.catalog.warehouses import FIRST_WAREHOUSE_NAME, Warehouse, WarehouseWiring
from duckicelake.errors import NotAuthenticatedError
from duckicelake.server.api import App, create_routes
from duckicelake.server.auth.authentication import Authentication
from duckicelake.server.fast_path import LoadTableResponder
from duckicelake.server.feed.hub import FeedHub, ReaderLimits
from duckicelake.server.http import errors
from duckicelake.server.http.route import FastRouter
from duckicelake.server.middleware.audit import AuditMiddleware, build_audit_log
from duckicelake.server.middleware.body_limit import BodyBudget, BodyLimitMiddleware, UnzipMiddleware
from duckicelake.server.middleware.cross_site import AllowedHosts, CrossSiteRules, RequireHttpsMiddleware
from duckicelake.server.middleware.quotas import Quota, Quotas, Rates
from duckicelake.server.middleware.requests import (
    DispatchMiddleware,
    LoginRequestCounter,
    RequestLog,
    RequestLogMiddleware,
    RequestSlots,
)
from duckicelake.server.middleware.traces import TracedMeter, TraceMiddleware, Tracer
from duckicelake.server.routes.dependencies import ServerContext, SettingValue
from duckicelake.server.routes.oauth import challenge_caller
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.server.telemetry.metrics import Metrics
from duckicelake.server.warehouses import WarehouseApp, WarehouseRouter, WarehouseThrottle

DEFAULT_BODY_BYTES = 64 * 1024 * 1024
DEFAULT_BODIES_BYTES = 512 * 1024 * 1024
_METHODS = ("GET", "HEAD", "POST", "DELETE")


@dataclass(frozen=True, slots=True)
class Edge:
    """Limits of what the server takes from clients.

    Attributes:
        cors_origins: Origins of web pages that may read responses; empty turns CORS off.
        hosts: Names under which a server without logins answers; None allows any.
        rows: How many rows a principal may send.
        readers: How many readers may wait for changes.
        shared: The folder of what the workers of a server share; None for a single worker.
        open_warehouses: How many warehouses beside the first may be open in this worker.

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
    open_warehouses: int = 8
    warehouse_idle_seconds: float = 300.0


def create_app(
    services: Services,
    *,
    warehouses: Iterable[str] = (),
    edge: Edge | None = None,
    log: FilteringBoundLogger | None = None,
    authentication: Authentication | None = None,
    metrics_public: bool = False,
    tracer: Tracer | None = None,
    wiring: WarehouseWiring | None = None,
    makes_lineage: bool = True,
    settings: Iterable[SettingValue] = (),
) -> App:
    """Create the catalog's ASGI app. It uses the services, but does not close them; `app.warehouses` is to be closed.

    warehouses: what clients may call the warehouse besides `duckicelake` and its location. log: default is stderr.
    authentication: how callers prove who they are; None is off. metrics_public: /metrics needs no token.
    tracer: makes spans of requests and of what they do. wiring: how warehouses beside the first are made.
    makes_lineage: whether events of lineage are made, which `doctor` then expects. settings: what the server runs with,
    secrets hidden.
    """
    app = create_routes()
    load_rules()  # they import DuckDB, which the first commit should not wait for
    edge, log = edge or Edge(), log or make_logger(sys.stderr)
    rights = services.rights or RightsCache.of_first(services.database)
    services = replace(services, publish_audit=build_audit_log(log), rights=rights)
    names = {FIRST_WAREHOUSE_NAME, services.policy.warehouse, *warehouses}
    database, cache, reads, scans = services.database, services.cache, services.reads, services.scans
    outside = dict if rights.outside is None else rights.outside.statistics
    metrics = Metrics(database.statistics, cache.statistics, reads.statistics, scans.statistics, outside)
    services = services.with_meter(metrics if tracer is None else TracedMeter(metrics, tracer))
    known = frozenset(name.rstrip("/") for name in names)
    slots, register = RequestSlots(edge.max_requests), RequestLog(metrics, log)
    layers = _AppLayers(app, edge, log, metrics, slots, register, authentication, tracer)
    context = ServerContext(
        services,
        metrics,
        known,
        layers.open_feed(services),
        authentication,
        metrics_public=metrics_public,
        quotas=Quotas.of(edge.rows, time.monotonic, edge.shared),
        makes_lineage=makes_lineage,
        settings=tuple(settings),
    )
    app.warehouses = layers.build_router(context, wiring or WarehouseWiring())
    app.state.context = replace(context, others=app.warehouses)
    errors.install_error_handlers(app)
    app.add_exception_handler(NotAuthenticatedError, challenge_caller)
    app.layers, app.fast_router = layers.add_outer(app.warehouses), FastRouter(app)
    return app


@dataclass(frozen=True, slots=True)
class _AppLayers:
    """Put middleware around the app: inner layers for each warehouse, outer ones that see requests for all."""

    app: App
    edge: Edge
    log: FilteringBoundLogger
    metrics: Metrics
    slots: RequestSlots
    register: RequestLog
    authentication: Authentication | None
    tracer: Tracer | None
    strangers: LoginRequestCounter = field(default_factory=LoginRequestCounter)

    def build_router(self, context: ServerContext, wiring: WarehouseWiring) -> WarehouseRouter:
        """Build the router to the first warehouse and to others. context: the first one's."""
        edge, budget = self.edge, BodyBudget(max(self.edge.max_bodies_bytes, self.edge.max_body_bytes))
        first, _ = self._add_inner(context, budget)
        shared = build_freshness_checks(context.services)

        def build(row: Warehouse, services: Services, resources: ExitStack) -> WarehouseApp:
            limits = RequestLimits.parse(row.options)
            shared_folder = _make_shared_folder(edge.shared, row)
            own = replace(
                self.app.state.context,
                services=services,
                warehouses=frozenset({row.name, row.location}),
                feed=self.open_feed(services),
                authentication=self.authentication and self.authentication.in_warehouse(row.name),
                quotas=Quotas.of(edge.rows, time.monotonic, shared_folder),
            )
            layers, responder = self._add_inner(own, budget, shared, has_limits=limits.are_set)
            rate = Quota.of(limits.per_second or 0, "warehouse", time.monotonic, shared_folder)
            throttle = WarehouseThrottle(limits.at_once, rate)
            return WarehouseApp(row, own, layers, responder, resources, throttle)

        most = edge.open_warehouses, edge.warehouse_idle_seconds
        log = self.log

        def note_failure(name: str, error: Exception) -> None:
            log.warning("a warehouse failed to close", warehouse=name, error=str(error))

        return WarehouseRouter(
            first,
            context.services,
            wiring,
            build,
            *most,
            self.metrics.warehouses_open,
            note_failure,
            self.metrics.warehouse_refused,
        )

    def _add_inner(
        self,
        context: ServerContext,
        budget: BodyBudget,
        shared: FreshnessChecks | None = None,
        *,
        has_limits: bool = False,
    ) -> tuple[ASGIApp, LoadTableResponder]:
        """Put the middleware of one warehouse around the routes, from the innermost to the outermost.

        shared: whose connection the warehouses beside the first share. has_limits: each request must be counted.
        """
        app, edge, services = self.app, self.edge, context.services
        loads = LoadTableFastPath(services, build_freshness_checks(services, shared))
        layer: ASGIApp = AuditMiddleware(app.behind_layers, services=services)
        layer = BodyLimitMiddleware(layer, limit=edge.max_body_bytes, seconds=edge.body_seconds, budget=budget)
        layer = UnzipMiddleware(layer)
        routes = {"GET": _find_route(app, "load_table"), "HEAD": _find_route(app, "table_exists")}
        responder = LoadTableResponder(
            layer,
            app.call_fastapi,
            routes,
            loads,
            context.authentication,
            self.slots,
            self.register,
            is_cacheable=self.tracer is None and not has_limits,
            warehouse=services.warehouse,
        )
        is_open = self.authentication is None
        sites = CrossSiteRules(hosts=edge.hosts, origins=edge.cors_origins) if is_open else None
        choose = responder.choose_app
        return DispatchMiddleware(layer, choose, self.slots, self.metrics, self.strangers, sites), responder

    def add_outer(self, layer: ASGIApp) -> ASGIApp:
        """Put the middleware around the router, from the innermost to the outermost."""
        if self.edge.cors_origins:
            layer = CORSMiddleware(
                layer,
                allow_origins=self.edge.cors_origins,
                allow_methods=_METHODS,
                allow_headers=["*"],
                expose_headers=["ETag", "X-Request-Id"],
            )
        if self.edge.require_https:
            layer = RequireHttpsMiddleware(layer)
        if self.tracer is not None:
            layer = TraceMiddleware(layer, tracer=self.tracer)
        return RequestLogMiddleware(layer, register=self.register)

    def open_feed(self, services: Services) -> FeedHub:
        log = self.log
        return FeedHub(
            services, self.metrics, self.edge.readers, lambda error: log.warning("change-feed", error=str(error))
        )


def _make_shared_folder(shared: Path | None, row: Warehouse) -> Path | None:
    """Make the folder of the quotas that workers share for a warehouse; one that is made again has another."""
    if shared is None:
        return None
    folder = shared / f"warehouse-{row.warehouse_id}"
    folder.mkdir(exist_ok=True)
    return folder


def _find_route(app: App, name: str) -> Route:
    return next(route for route in app.router.routes if isinstance(route, Route) and route.name == name)
