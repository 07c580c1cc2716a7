"""Health, metrics and the web pages of the server."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel, ConfigDict

from duckicelake.errors import NotFoundError
from duckicelake.server.http.errors import RESPONSES
from duckicelake.server.http.pages import PageAsset, read_assets
from duckicelake.server.routes.dependencies import AppContext
from duckicelake.server.telemetry.metrics import CONTENT_TYPE

ASSETS_FOLDER: Final = Path(str(files("duckicelake.server"))) / "ui"
health_router = APIRouter(tags=["operations"], responses=RESPONSES)
page_router = APIRouter(include_in_schema=False)
_METHODS = ["GET", "HEAD"]
IfNoneMatch = Annotated[str | None, Header()]


@cache
def load_assets() -> Mapping[str, PageAsset]:
    """Read the files of the web pages, by name."""
    return read_assets(ASSETS_FOLDER)


class Health(BaseModel):
    """The body of a healthy answer."""

    model_config = ConfigDict(frozen=True)

    status: str = "ok"


@health_router.get("/healthz")
async def get_health() -> Health:
    """Answer if the process does: restart it if not."""
    return Health()


@health_router.head("/healthz", include_in_schema=False)
async def head_health() -> Response:
    """Answer load balancers that ask with HEAD."""
    return Response()


@health_router.get("/readyz")
async def get_readiness(context: AppContext) -> Health:
    """Answer 200 if Postgres and the object store do, else 503 naming the one that doesn't."""
    services = context.services
    await context.readiness.require({"database": services.database.check, "object store": services.store.check})
    return Health()


@health_router.get("/metrics", response_class=Response)
def get_metrics(context: AppContext) -> Response:
    """Return metrics in the Prometheus text format."""
    return Response(context.metrics.render(), media_type=CONTENT_TYPE)


@page_router.api_route("/", methods=_METHODS)
async def get_index(if_none_match: IfNoneMatch = None) -> Response:
    """Answer whoever opens the server's address with what there is to see."""
    return load_assets()["index.html"].answer(if_none_match)


@page_router.api_route("/ui/assets/{asset}", methods=_METHODS)
async def get_asset(asset: str, if_none_match: IfNoneMatch = None) -> Response:
    """Answer with what a page consists of."""
    found = load_assets().get(asset)
    if found is None:
        raise NotFoundError(f"No page of this server has a file '{asset}'")
    return found.answer(if_none_match)
