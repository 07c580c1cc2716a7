"""What the upkeep of tables is decided by. Iceberg knows nothing of these routes, so they aren't advertised."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from duckicelake.catalog import maintenance
from duckicelake.catalog.maintenance import FindOrphans, TableStatistics
from duckicelake.server.context import AppServices
from duckicelake.server.errors import RESPONSES
from duckicelake.server.limits.bodies import Body, takes
from duckicelake.server.own_routes import OwnRoute
from duckicelake.server.paths import NamespacePath, NamespaceQuery, PageQuery, TablePath
from duckicelake.server.validation import parse_body

router = APIRouter(prefix="/pipeline/v1", tags=["pipeline"], responses=RESPONSES, route_class=OwnRoute)


class StatisticsList(BaseModel):
    """One page of tables."""

    model_config = ConfigDict(frozen=True)

    tables: tuple[TableStatistics, ...]
    next_page_token: str | None = Field(serialization_alias="next-page-token")


class Orphans(BaseModel):
    """Locations of files that nobody needs, as they were asked for."""

    model_config = ConfigDict(frozen=True)

    files: tuple[str, ...]


@router.get("/tables")
def list_statistics(
    services: AppServices,
    page: PageQuery,
    namespace: NamespaceQuery,
    table: Annotated[str | None, Query(description="this one of the namespace")] = None,
) -> StatisticsList:
    """List tables that the caller may read, of a namespace and those below it, with what decides about their upkeep."""
    found = maintenance.table_statistics(services, page, namespace, table)
    return StatisticsList(tables=found.items, next_page_token=found.next_token)


@router.post("/namespaces/{namespace}/tables/{table}/orphans", openapi_extra=takes(FindOrphans))
def find_orphans(services: AppServices, namespace: NamespacePath, table: TablePath, body: Body) -> Orphans:
    """Tell which of some files below a table's location nobody needs."""
    request = parse_body(FindOrphans, body)
    return Orphans(files=maintenance.find_orphans(services, namespace, table, request.files))
