"""For those who run the server: is it alive, can it work, what does it do."""

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from duckicelake.server.context import AppContext
from duckicelake.server.errors import RESPONSES
from duckicelake.server.telemetry.metrics import CONTENT_TYPE

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
async def get_readiness(context: AppContext) -> Health:
    """Answer 200 if Postgres and the object store do, else 503 naming the one that doesn't."""
    services = context.services
    await context.readiness.require({"database": services.database.check, "object store": services.store.check})
    return Health()


@router.get("/metrics", response_class=Response)
def get_metrics(context: AppContext) -> Response:
    """Metrics in the Prometheus text format."""
    return Response(context.metrics.render(), media_type=CONTENT_TYPE)
