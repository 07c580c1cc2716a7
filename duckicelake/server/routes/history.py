"""Routes of the history of the lake and what is in it, and of what changed between two snapshots of a table."""

from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query

from duckicelake.catalog.diff import TableComparison, diff_table
from duckicelake.catalog.snapshot_list import SnapshotPage, list_snapshots
from duckicelake.changelog.history import KINDS, HistoryPage, HistoryQuery, read_history
from duckicelake.server.http.errors import RESPONSES
from duckicelake.server.http.route import StrictRoute
from duckicelake.server.http.scope import PREFIX
from duckicelake.server.routes.dependencies import AppServices, NamespacePath, TablePath, ViewPath

router = APIRouter(prefix=PREFIX, tags=["history"], responses=RESPONSES, route_class=StrictRoute)

MAX_PAGE_ENTRIES: Final = 1000
MAX_LISTED_FILES: Final = 10_000
_STATE_HELP: Final = "a snapshot's id, DuckLake's number, a time, a branch or tag"


async def _parse_query(
    limit: Annotated[int, Query(ge=1, description=f"most entries of an answer, up to {MAX_PAGE_ENTRIES}")] = 100,
    before: Annotated[str | None, Query(description="only what came before this position, as next-before says")] = None,
    kind: Annotated[str | None, Query(description=f"of these kinds, joined by commas: {', '.join(KINDS)}")] = None,
    since: Annotated[datetime | None, Query(description="not before this time")] = None,
    until: Annotated[datetime | None, Query(description="before this time")] = None,
    principal: Annotated[str | None, Query(description="by this one")] = None,
    engine: Annotated[str | None, Query(description="by what calls itself so, or partly so: spark, duckdb")] = None,
    source: Annotated[str | None, Query(description="rest, pipeline or duckdb")] = None,
) -> HistoryQuery:
    return HistoryQuery(min(limit, MAX_PAGE_ENTRIES), before, kind, since, until, principal, engine, source)


AskedQuery = Annotated[HistoryQuery, Depends(_parse_query)]


@router.get("/history")
def lake_history(services: AppServices, asked: AskedQuery) -> HistoryPage:
    """List what changed in the lake, of what the caller may read: newest first."""
    return read_history(services, asked)


@router.get("/namespaces/{namespace}/history")
def namespace_history(services: AppServices, namespace: NamespacePath, asked: AskedQuery) -> HistoryPage:
    """List what changed in a namespace and below it, newest first."""
    return read_history(services, asked, namespace)


@router.get("/namespaces/{namespace}/tables/{table}/history")
def table_history(services: AppServices, namespace: NamespacePath, table: TablePath, asked: AskedQuery) -> HistoryPage:
    """List what changed in a table, under all names that it had; of one that was dropped, too. Newest first."""
    return read_history(services, asked, namespace, table)


@router.get("/namespaces/{namespace}/tables/{table}/snapshots")
def table_snapshots(
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    limit: Annotated[int, Query(ge=1, description=f"most snapshots of an answer, up to {MAX_PAGE_ENTRIES}")] = 100,
    before: Annotated[int | None, Query(description="only those before this snapshot, as next-before says")] = None,
) -> SnapshotPage:
    """List a table's snapshots, newest first, a page at a time: a load has all of them at once."""
    return list_snapshots(services, namespace, table, min(limit, MAX_PAGE_ENTRIES), before)


@router.get("/namespaces/{namespace}/tables/{table}/diff")
def diff(
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    since: Annotated[
        str | None, Query(alias="from", max_length=2000, description=f"{_STATE_HELP}; without it, the parent of to")
    ] = None,
    until: Annotated[
        str | None, Query(alias="to", max_length=2000, description=f"{_STATE_HELP}; without it, main as it is")
    ] = None,
    limit: Annotated[
        int, Query(ge=0, description=f"most files that are listed, up to {MAX_LISTED_FILES}; all are counted")
    ] = 1000,
) -> TableComparison:
    """Compare a table at two snapshots: rows and files that came and went, columns, partition spec, sort order."""
    return diff_table(services, namespace, table, since, until, min(limit, MAX_LISTED_FILES))


@router.get("/namespaces/{namespace}/views/{view}/history")
def view_history(services: AppServices, namespace: NamespacePath, view: ViewPath, asked: AskedQuery) -> HistoryPage:
    """List what changed in a view, under all names that it had; of one that was dropped, too. Newest first."""
    return read_history(services, asked, namespace, view)
