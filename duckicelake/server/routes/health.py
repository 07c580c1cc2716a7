"""For those who run the server: is it alive, can it work, what does it do."""

from collections.abc import Callable

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from duckicelake.errors import Unavailable
from duckicelake.server.context import AppContext, AppServices
from duckicelake.server.errors import RESPONSES
from duckicelake.server.metrics import CONTENT_TYPE

router = APIRouter(tags=["operations"], responses=RESPONSES)


class Health(BaseModel):
    """The body of a healthy answer."""

    model_config = ConfigDict(frozen=True)

    status: str = "ok"


@router.get("/healthz")
async def get_health() -> Health:
    """Answer if the process does: restart it if not."""
    return Health()


@router.head("/healthz", include_in_schema=False)
async def head_health() -> Response:
    """For load balancers that ask with HEAD."""
    return Response()


@router.get("/readyz")
def get_readiness(services: AppServices) -> Health:
    """Answer 200 if Postgres and the object store do, else 503 naming the one that doesn't."""
    _require("database", services.database.check)
    _require("object store", services.store.check)
    return Health()


@router.get("/metrics", response_class=Response)
def get_metrics(context: AppContext) -> Response:
    """Metrics in the Prometheus text format."""
    return Response(context.metrics.render(), media_type=CONTENT_TYPE)


def _require(part: str, check: Callable[[], None]) -> None:
    try:
        check()
    except Unavailable as error:
        raise Unavailable(f"{part}: {error}") from error
