"""/lineage/v1/…: the lineage graph, as far as the caller may read it."""

from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response

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
from duckicelake.server.http.errors import RESPONSES
from duckicelake.server.http.route import StrictRoute
from duckicelake.server.routes.dependencies import AppServices
from duckicelake.server.routes.operations import IfNoneMatch, load_assets

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
    """Tell what a table or a column comes from and what comes from it, with the runs behind each edge."""
    found = lineage.read_graph(services.database, services.caller.principal, asked)
    return build_graph_response(found, asked.direction, asked.depth, asked.at)


@router.get("/lineage/v1/export", response_class=Response)
def export_lineage(
    services: AppServices, asked: Asked, format_: Annotated[lineage_export.Format, Query(alias="format")] = "ndjson"
) -> Response:
    """Give the same graph for Graphviz or Mermaid, or the events of its runs as lines of OpenLineage."""
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
    """Tell what a run read and wrote, and what it said."""
    return build_run_response(lineage.read_run(services.database, services.caller.principal, run))


@router.get("/lineage/v1/facets/{facet}.json", response_class=Response)
def get_lineage_facet(facet: str) -> Response:
    """Give the JSON schema of a facet that is this catalog's own."""
    return Response(lineage_export.read_schema(facet), media_type="application/schema+json")


@page_router.api_route("/ui/lineage", methods=["GET", "HEAD"])
async def get_lineage_page(if_none_match: IfNoneMatch = None) -> Response:
    """Answer with the page that draws lineage."""
    return load_assets()["lineage.html"].answer(if_none_match)
