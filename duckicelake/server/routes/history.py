"""The history of the lake and what is in it. Iceberg knows nothing of these routes, so they aren't advertised."""

from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query

from duckicelake.catalog.history import KINDS, Asked, HistoryPage, history
from duckicelake.server.context import AppServices
from duckicelake.server.endpoints import PREFIX
from duckicelake.server.errors import RESPONSES
from duckicelake.server.own_routes import OwnRoute
from duckicelake.server.paths import NamespacePath, TablePath, ViewPath

router = APIRouter(prefix=PREFIX, tags=["history"], responses=RESPONSES, route_class=OwnRoute)

LARGEST_PAGE: Final = 1000


async def _asked(
    limit: Annotated[int, Query(ge=1, description=f"most entries of an answer, up to {LARGEST_PAGE}")] = 100,
    before: Annotated[str | None, Query(description="only what came before this position, as next-before says")] = None,
    kind: Annotated[str | None, Query(description=f"of these kinds, joined by commas: {', '.join(KINDS)}")] = None,
    since: Annotated[datetime | None, Query(description="not before this time")] = None,
    until: Annotated[datetime | None, Query(description="before this time")] = None,
    principal: Annotated[str | None, Query(description="by this one")] = None,
    engine: Annotated[str | None, Query(description="by what calls itself so, or partly so: spark, duckdb")] = None,
    source: Annotated[str | None, Query(description="rest, pipeline or duckdb")] = None,
) -> Asked:
    return Asked(min(limit, LARGEST_PAGE), before, kind, since, until, principal, engine, source)


AskedQuery = Annotated[Asked, Depends(_asked)]


@router.get("/history")
def lake_history(services: AppServices, asked: AskedQuery) -> HistoryPage:
    """List what changed in the lake, of what the caller may read: newest first."""
    return history(services, asked)


@router.get("/namespaces/{namespace}/history")
def namespace_history(services: AppServices, namespace: NamespacePath, asked: AskedQuery) -> HistoryPage:
    """List what changed in a namespace and below it, newest first."""
    return history(services, asked, namespace)


@router.get("/namespaces/{namespace}/tables/{table}/history")
def table_history(services: AppServices, namespace: NamespacePath, table: TablePath, asked: AskedQuery) -> HistoryPage:
    """List what changed in a table, under all names that it had; of one that was dropped, too. Newest first."""
    return history(services, asked, namespace, table)


@router.get("/namespaces/{namespace}/views/{view}/history")
def view_history(services: AppServices, namespace: NamespacePath, view: ViewPath, asked: AskedQuery) -> HistoryPage:
    """List what changed in a view, under all names that it had; of one that was dropped, too. Newest first."""
    return history(services, asked, namespace, view)
