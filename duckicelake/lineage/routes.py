"""The HTTP API of lineage: the graph, its page, and events of other tools; who may use which route."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import orjson
from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict

from duckicelake.catalog.warehouses import FIRST_WAREHOUSE_NAME
from duckicelake.errors import InvalidRequestError
from duckicelake.lineage.events import intake
from duckicelake.lineage.events.received import OpenLineageEvent, OpenLineageEvents
from duckicelake.lineage.graph import export as lineage_export
from duckicelake.lineage.graph import traversal as lineage
from duckicelake.lineage.graph.model import MAX_DEPTH, MAX_NODES
from duckicelake.lineage.graph.responses import (
    LineageDatasets,
    LineageGraph,
    LineageRunDetails,
    build_graph_response,
    build_node_response,
    build_run_response,
)
from duckicelake.lineage.graph.traversal import GraphQuery
from duckicelake.lineage.marquez.routes import router as marquez_router
from duckicelake.server.auth.permissions import AnyToken, Need, Public
from duckicelake.server.hooks import FeatureRoutes
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRoute
from duckicelake.server.http.scope import find_caller
from duckicelake.server.routes.dependencies import AppServices, Body, describe_body, find_context

intake_router = APIRouter(tags=["lineage"], responses=RESPONSES)

RECEIVE = "/api/v1/lineage"

HostHeader = Annotated[str, Header(include_in_schema=False)]


async def spend_lineage_quota(request: Request) -> None:
    """Answer 429 before the body is read, if the principal has sent an hour's worth of lineage; else count it."""
    context = find_context(request.scope)
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
"""The dependency of endpoints that receive events; it must be their first."""


class Received(BaseModel):
    """How many events were sent, and how many of them weren't there yet."""

    model_config = ConfigDict(frozen=True)

    received: int
    new: int


@intake_router.post(RECEIVE, openapi_extra=describe_body(OpenLineageEvent))
def receive_lineage(_: WithinLineageQuota, services: AppServices, body: Body, host: HostHeader = "") -> Received:
    """Take an event of OpenLineage: of a run, a job or a dataset."""
    parse_body(OpenLineageEvent, body)
    return _build_received(services, [_read_as_sent(body)], host)


@intake_router.post(f"{RECEIVE}/batch", openapi_extra=describe_body(OpenLineageEvents))
def receive_lineage_batch(_: WithinLineageQuota, services: AppServices, body: Body, host: HostHeader = "") -> Received:
    """Take a list of events of OpenLineage, all or none."""
    parse_body(OpenLineageEvents, body)
    return _build_received(services, _read_as_sent(body), host)


def _read_as_sent(body: bytes) -> Any:
    """Parse a body with its unknown keys; InvalidRequestError for numbers that aren't JSON's, or too large."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"Invalid request: the body is not JSON: {error}") from error


def _build_received(services: AppServices, events: list[dict[str, Any]], host: str) -> Received:
    return Received(received=len(events), new=intake.receive_events(services, events, host))


router = APIRouter(tags=["lineage"], responses=RESPONSES, route_class=StrictRoute)
page_router = APIRouter(include_in_schema=False)


async def _build_question(
    node: Annotated[str, Query(description="ns.table, ns.table#column, or the id of a dataset", max_length=10_000)],
    direction: Annotated[Literal["upstream", "downstream", "both"], Query()] = "both",
    depth: Annotated[int, Query(ge=1, le=MAX_DEPTH, description="edges from the node, at most")] = 5,
    at: Annotated[datetime | None, Query(description="as of this time (UTC, unless it says otherwise)")] = None,
    columns: Annotated[bool, Query(description="with the edges between fields")] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_NODES, description="nodes, at most")] = 200,
) -> GraphQuery:
    time = at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at
    return GraphQuery(node, direction, depth, time, columns, limit)


Asked = Annotated[GraphQuery, Depends(_build_question)]


@router.get("/lineage/v1/graph")
def get_lineage_graph(services: AppServices, asked: Asked) -> LineageGraph:
    """Return what a table or a column comes from and what comes from it, with the runs behind each edge."""
    found = lineage.read_graph(services.database, services.caller.principal, asked)
    return build_graph_response(found, asked.direction, asked.depth, asked.at)


@router.get("/lineage/v1/export", response_class=Response)
def export_lineage(
    services: AppServices, asked: Asked, format_: Annotated[lineage_export.Format, Query(alias="format")] = "ndjson"
) -> Response:
    """Return the same graph for Graphviz or Mermaid, or the events of its runs as lines of OpenLineage."""
    body = lineage_export.export_graph(services.database, services.caller.principal, asked, format_)
    return Response(body, media_type=lineage_export.MEDIA_TYPES[format_])


@router.get("/lineage/v1/datasets")
def search_lineage(
    services: AppServices,
    search: Annotated[str, Query(description="what a name holds", max_length=1000)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> LineageDatasets:
    """List datasets of which a name holds the text, the lake's own first."""
    found = lineage.search_datasets(services.database, services.caller.principal, search, limit)
    return LineageDatasets(datasets=tuple(map(build_node_response, found)))


@router.get("/lineage/v1/runs/{run}")
def get_lineage_run(services: AppServices, run: UUID) -> LineageRunDetails:
    """Return what a run read and wrote, and its events."""
    return build_run_response(lineage.read_run(services.database, services.caller.principal, run))


@router.get("/lineage/v1/facets/{facet}.json", response_class=Response)
def get_lineage_facet(facet: str) -> Response:
    """Return the JSON schema of a facet that is this catalog's own."""
    return Response(lineage_export.read_schema(facet), media_type="application/schema+json")


@page_router.api_route("/ui/lineage", methods=["GET", "HEAD"])
async def get_lineage_page(request: Request) -> Response:
    """Redirect to the console's page that draws the lineage of the first warehouse."""
    query = request.scope["query_string"].decode("latin-1")
    return RedirectResponse(f"w/{FIRST_WAREHOUSE_NAME}/lineage{'?' if query else ''}{query}")


_NEEDS: Final[Mapping[tuple[str, str], Need]] = {
    ("GET", "/ui/lineage"): Public(),
    ("HEAD", "/ui/lineage"): Public(),
    ("GET", "/lineage/v1/graph"): AnyToken(),
    ("GET", "/lineage/v1/export"): AnyToken(),
    ("GET", "/lineage/v1/datasets"): AnyToken(),
    ("GET", "/lineage/v1/runs/{run}"): AnyToken(),
    ("GET", "/lineage/v1/facets/{facet}.json"): Public(),
    ("POST", "/api/v1/lineage"): AnyToken(),
    ("POST", "/api/v1/lineage/batch"): AnyToken(),
    ("GET", "/api/v1/namespaces"): AnyToken(),
    ("GET", "/api/v1/namespaces/{space}/datasets"): AnyToken(),
    ("GET", "/api/v1/namespaces/{space}/datasets/{dataset}"): AnyToken(),
    ("GET", "/api/v1/namespaces/{space}/datasets/{dataset}/versions"): AnyToken(),
    ("GET", "/api/v1/jobs"): AnyToken(),
    ("GET", "/api/v1/namespaces/{space}/jobs"): AnyToken(),
    ("GET", "/api/v1/namespaces/{space}/jobs/{job}"): AnyToken(),
    ("GET", "/api/v1/namespaces/{space}/jobs/{job}/runs"): AnyToken(),
    ("GET", "/api/v1/jobs/runs/{run}"): AnyToken(),
    ("GET", "/api/v1/jobs/runs/{run}/facets"): AnyToken(),
    ("GET", "/api/v1/lineage"): AnyToken(),
    ("GET", "/api/v1/lineage/"): AnyToken(),
    ("GET", "/api/v1/column-lineage"): AnyToken(),
    ("GET", "/api/v1/events/lineage"): AnyToken(),
    ("GET", "/api/v1/search"): AnyToken(),
    ("GET", "/api/v1/search/"): AnyToken(),
    ("GET", "/api/v1/tags"): AnyToken(),
    ("GET", "/api/v1/stats/lineage-events"): AnyToken(),
    ("GET", "/api/v1/stats/{counted}"): AnyToken(),
}
"""Permissions of routes. Answers contain only what the reader may see. Of a received event, each dataset is checked."""

ROUTES: Final = FeatureRoutes(
    (router, intake_router, marquez_router, page_router),
    _NEEDS,
    (OpenLineageEvent, OpenLineageEvents),
)
