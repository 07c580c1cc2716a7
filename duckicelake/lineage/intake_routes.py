"""/api/v1/lineage…: receive events of other tools, by OpenLineage's API."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict

from duckicelake.errors import InvalidRequest
from duckicelake.lineage.events import intake
from duckicelake.lineage.events.received import OpenLineageEvent, OpenLineageEvents
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.middleware.body_limit import Body, WithinLineageQuota, describe_body
from duckicelake.server.routes.context import AppServices

router = APIRouter(tags=["lineage"], responses=RESPONSES)

RECEIVE = "/api/v1/lineage"

HostHeader = Annotated[str, Header(include_in_schema=False)]


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
    """With what no model knows; InvalidRequest for numbers that aren't JSON's, or too large."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"Invalid request: the body is not JSON: {error}") from error


def _build_received(services: AppServices, events: list[dict[str, Any]], host: str) -> Received:
    return Received(received=len(events), new=intake.receive_events(services, events, host))
