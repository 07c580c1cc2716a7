"""The app: routes, and around them the layers that every request passes."""

import sys
from collections.abc import Iterable
from functools import partial

from fastapi import FastAPI
from structlog.typing import FilteringBoundLogger

from duckicelake.catalog.services import Services
from duckicelake.server import errors
from duckicelake.server.access import Access
from duckicelake.server.bodies import BodyLimit
from duckicelake.server.context import Context
from duckicelake.server.logging import make_logger
from duckicelake.server.metrics import Metrics
from duckicelake.server.openapi import describe
from duckicelake.server.raw_paths import RawPaths
from duckicelake.server.routes import config, health, namespaces, tables, transactions, views

WAREHOUSE_NAME = "duckicelake"
DEFAULT_BODY_LIMIT = 64 * 1024 * 1024

API_VERSION = "1"


def create_app(
    services: Services,
    *,
    warehouses: Iterable[str] = (),
    max_body_bytes: int = DEFAULT_BODY_LIMIT,
    log: FilteringBoundLogger | None = None,
) -> FastAPI:
    """The catalog as an ASGI app that uses the services but does not close them.

    warehouses: what clients may call the warehouse besides `duckicelake` and its location. log: default is stderr.
    """
    app = routes_only()
    names = {WAREHOUSE_NAME, services.policy.warehouse, *warehouses}
    metrics = Metrics(services.database.statistics, services.cache.statistics)
    app.state.context = Context(services, metrics, frozenset(name.rstrip("/") for name in names))
    errors.install(app)
    app.add_middleware(BodyLimit, limit=max_body_bytes)
    app.add_middleware(Access, metrics=metrics, log=log or make_logger(sys.stderr))
    app.add_middleware(RawPaths)
    return app


def routes_only() -> FastAPI:
    """The routes with nothing behind them: enough to describe what is served."""
    app = FastAPI(
        title="duckicelake",
        version=API_VERSION,
        description="An Iceberg REST catalog whose truth is a DuckLake catalog in Postgres.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for module in (config, namespaces, tables, views, transactions, health):
        # Flat, not include_router: a request tries one list of patterns, and 405 can tell which methods a path takes.
        app.router.routes.extend(module.router.routes)
    app.openapi = partial(describe, app)  # type: ignore[method-assign]
    return app
