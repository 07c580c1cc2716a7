"""/api/v1/lineage…: receive events of other tools, by OpenLineage's API."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Header, HTTPException, Request
from pydantic import BaseModel, ConfigDict

from duckicelake.errors import InvalidRequestError
from duckicelake.lineage.events import intake
from duckicelake.lineage.events.received import OpenLineageEvent, OpenLineageEvents
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.scope import find_caller
from duckicelake.server.routes.dependencies import AppServices, Body, ServerContext, describe_body

router = APIRouter(tags=["lineage"], responses=RESPONSES)

RECEIVE = "/api/v1/lineage"

HostHeader = Annotated[str, Header(include_in_schema=False)]


async def spend_lineage_quota(request: Request) -> None:
    """Answer 429 before the body is read, if the principal has sent an hour's worth of lineage; else count it."""
    context: ServerContext = request.app.state.context
    principal, quota = find_caller(request.scope).principal.name, context.quotas.lineage
    wait = quota.wait(principal)
    if wait:
        detail = (
            "You have sent as many bytes of lineage as DUCKICELAKE_LINEAGE_BYTES_PER_HOUR allows: come again in "
            f"{wait} s; nothing was kept"
        )
        raise HTTPException(429, detail, {"Retry-After": str(wait), "Connection": "close"})
    quota.spend(principal, len(await request.body()))


WithinLineageQuota = Annotated[None, Depends(spend_lineage_quota)]
"""For endpoints that take events of lineage: the first that they depend on."""


class Received(BaseModel):
    """How many events were sent, and how many of them weren't there yet."""

    model_config = ConfigDict(frozen=True)

    received: int
    new: int


@router.post(RECEIVE, openapi_extra=describe_body(OpenLineageEvent))
def receive_lineage(_: WithinLineageQuota, services: AppServices, body: Body, host: HostHeader = "") -> Received:
    """Take an event of OpenLineage: of a run, a job or a dataset."""
    parse_body(OpenLineageEvent, body)
    return _build_received(services, [_read_as_sent(body)], host)


@router.post(f"{RECEIVE}/batch", openapi_extra=describe_body(OpenLineageEvents))
def receive_lineage_batch(_: WithinLineageQuota, services: AppServices, body: Body, host: HostHeader = "") -> Received:
    """Take a list of events of OpenLineage, all or none."""
    parse_body(OpenLineageEvents, body)
    return _build_received(services, _read_as_sent(body), host)


def _read_as_sent(body: bytes) -> Any:
    """With what no model knows; InvalidRequestError for numbers that aren't JSON's, or too large."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"Invalid request: the body is not JSON: {error}") from error


def _build_received(services: AppServices, events: list[dict[str, Any]], host: str) -> Received:
    return Received(received=len(events), new=intake.receive_events(services, events, host))
