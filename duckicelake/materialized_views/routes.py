"""The routes of materialized views: create, list, look at, schedule, refresh, drop."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from threading import BoundedSemaphore
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from duckicelake.catalog.context.privileges import Privilege
from duckicelake.catalog.context.services import Services
from duckicelake.errors import TooManyRequestsError
from duckicelake.iceberg.identifiers import Namespace, TableNameField, check_namespace
from duckicelake.iceberg.model import Long, SpecModel
from duckicelake.materialized_views import refreshes, views
from duckicelake.materialized_views.view_rows import MaterializedQuery, MaterializedView, Schedule
from duckicelake.server.auth.permissions import READ, WRITE, AnyToken, InPath, Need
from duckicelake.server.hooks import FeatureRoutes
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.routes.dependencies import (
    AppServices,
    Body,
    KeyedServices,
    NamespacePath,
    PageQuery,
    TablePath,
    describe_body,
)

_LAKE_PATH: Final = "/v1/materialized-views"
_LIST_PATH: Final = "/v1/namespaces/{namespace}/materialized-views"
_VIEW_PATH: Final = f"{_LIST_PATH}/{{table}}"
_REFRESH_PATH: Final = f"{_VIEW_PATH}/refresh"
Seconds = Annotated[int, Field(ge=10, le=366 * 24 * 3600)]
_MAX_REFRESHES: Final = 2
"""Refreshes that requests wait for at once; each has a process of its own, and its memory."""
_slots: Final = BoundedSemaphore(_MAX_REFRESHES)
router = APIRouter(tags=["materialized views"], responses=RESPONSES, route_class=StrictRoute)


class CreateMaterializedViewRequest(StrictRequest):
    """A materialized view to make. default_namespace: where tables are looked up that the query names without one.

    refresh_every: seconds. refresh_on_change: refresh once a source has changed. properties: of its table.
    replaces: a materialized view of the namespace that the client drops once this one is there: it can be no source.
    """

    name: TableNameField
    query: Annotated[str, Field(min_length=1, max_length=1024 * 1024)]
    default_namespace: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    refresh_every: Seconds | None = None
    refresh_on_change: bool = False
    properties: dict[str, str] = Field(default_factory=dict)
    replaces: TableNameField | None = None


class ScheduleRequest(StrictRequest):
    """When a view is refreshed by itself: every so many seconds, once a source has changed, both, or never."""

    refresh_every: Seconds | None = None
    refresh_on_change: bool = False


class RefreshRequest(StrictRequest):
    """How to refresh. whole: compute all of the contents, whatever has changed."""

    whole: bool = False


class SourceInfo(SpecModel):
    """A table or view that the last refresh read. name: full, as it was then. snapshot_id: Iceberg's."""

    type: str
    name: str
    uuid: str
    snapshot_id: Long | None = None
    version_id: Long | None = None


class MaterializedViewInfo(SpecModel):
    """A materialized view.

    Attributes:
        definer: with whose rights it reads.
        fresh_as_of: when the snapshot was the newest that its sources were read at.
        ducklake_snapshot_id: that snapshot.
        mode: of the last refresh: whole, incremental, or unchanged where nothing was to be written; reason: why so.
        error: why a refresh failed since; left out if none did.

    """

    namespace: tuple[str, ...]
    name: str
    query: str
    default_namespace: tuple[str, ...]
    definer: str
    created: datetime
    refresh_every: int | None = None
    refresh_on_change: bool
    fresh_as_of: datetime
    ducklake_snapshot_id: Long
    sources: tuple[SourceInfo, ...]
    refreshed: datetime
    refreshes: int
    mode: str
    reason: str
    rows_written: Long
    seconds: float
    error: str | None = None
    failed_at: datetime | None = None


class MaterializedViewList(SpecModel):
    """Materialized views, by name."""

    materialized_views: tuple[MaterializedViewInfo, ...]
    next_page_token: str | None = None


@router.get(_LAKE_PATH, response_model_exclude_none=True)
def list_all_materialized_views(services: AppServices, page: PageQuery) -> MaterializedViewList:
    """List the lake's materialized views that the caller may read."""
    return _list(services, None, page)


@router.get(_LIST_PATH, response_model_exclude_none=True)
def list_materialized_views(services: AppServices, namespace: NamespacePath, page: PageQuery) -> MaterializedViewList:
    """List a namespace's materialized views that the caller may read."""
    return _list(services, namespace, page)


@router.post(_LIST_PATH, openapi_extra=describe_body(CreateMaterializedViewRequest), response_model_exclude_none=True)
def create_materialized_view(services: KeyedServices, namespace: NamespacePath, body: Body) -> MaterializedViewInfo:
    """Make a materialized view of one SELECT in DuckDB's SQL, with its first contents. The caller is its definer."""
    request = parse_body(CreateMaterializedViewRequest, body)
    default = namespace if request.default_namespace is None else check_namespace(request.default_namespace)
    new = views.NewView(
        namespace,
        request.name,
        MaterializedQuery(request.query, default, {}),
        Schedule(request.refresh_every, request.refresh_on_change),
        request.properties,
        request.replaces,
    )
    with _take_slot():
        return build_info(views.create_view(services, new))


@router.get(_VIEW_PATH, response_model_exclude_none=True)
def load_materialized_view(services: AppServices, namespace: NamespacePath, table: TablePath) -> MaterializedViewInfo:
    """Say what a materialized view shows, how fresh it is, and what its last refresh did."""
    return build_info(refreshes.find_view(services, namespace, table))


@router.post(_VIEW_PATH, openapi_extra=describe_body(ScheduleRequest), response_model_exclude_none=True)
def schedule_materialized_view(
    services: KeyedServices, namespace: NamespacePath, table: TablePath, body: Body
) -> MaterializedViewInfo:
    """Set when a materialized view is refreshed by itself."""
    request = parse_body(ScheduleRequest, body)
    schedule = Schedule(request.refresh_every, request.refresh_on_change)
    return build_info(views.schedule_view(services, namespace, table, schedule))


@router.post(_REFRESH_PATH, openapi_extra=describe_body(RefreshRequest), response_model_exclude_none=True)
def refresh_materialized_view(
    services: AppServices, namespace: NamespacePath, table: TablePath, body: Body
) -> MaterializedViewInfo:
    """Bring a materialized view up to date; the answer comes when that is done."""
    request = parse_body(RefreshRequest, body)
    with _take_slot():
        return build_info(refreshes.refresh_view(services, namespace, table, is_whole=request.whole))


@router.delete(_VIEW_PATH, status_code=204)
def drop_materialized_view(
    services: KeyedServices,
    namespace: NamespacePath,
    table: TablePath,
    purge_requested: Annotated[bool, Query(alias="purgeRequested")] = False,
) -> Response:
    """Drop a materialized view and its table; undrop brings both back."""
    views.drop_view(services, namespace, table, purge=purge_requested)
    return Response(status_code=204)


def _list(services: Services, namespace: Namespace | None, page: PageQuery) -> MaterializedViewList:
    found = views.list_views(services, namespace, page)
    return MaterializedViewList(
        materialized_views=tuple(map(build_info, found.items)), next_page_token=found.next_token
    )


@contextmanager
def _take_slot() -> Iterator[None]:
    if not _slots.acquire(blocking=False):
        raise TooManyRequestsError(f"{_MAX_REFRESHES} refreshes run for requests of this worker: try again later")
    try:
        yield
    finally:
        _slots.release()


def build_info(view: MaterializedView) -> MaterializedViewInfo:
    """Build what clients see of a view."""
    last = view.last
    sources = (
        SourceInfo(
            type=source.kind,
            name=f"{source.schema_name}.{source.name}",
            uuid=source.uuid,
            snapshot_id=source.snapshot_id,
            version_id=source.version_id,
        )
        for source in last.sources
    )
    return MaterializedViewInfo(
        namespace=view.namespace,
        name=view.name,
        query=view.query.sql,
        default_namespace=view.query.namespace,
        definer=view.definer.name,
        created=view.created,
        refresh_every=view.schedule.every_seconds,
        refresh_on_change=view.schedule.on_change,
        fresh_as_of=last.fresh_as_of,
        ducklake_snapshot_id=last.snapshot_id,
        sources=tuple(sources),
        refreshed=view.refreshed,
        refreshes=view.refreshes,
        mode=last.mode,
        reason=last.reason,
        rows_written=last.rows_written,
        seconds=last.seconds,
        error=view.error,
        failed_at=view.failed_at,
    )


_READER: Final = InPath((READ,), Privilege.SELECT)
_WRITER: Final = InPath((WRITE,), Privilege.UPDATE)
_NEEDS: Final[Mapping[tuple[str, str], Need]] = {
    ("GET", _LAKE_PATH): AnyToken(),
    ("GET", _LIST_PATH): InPath((READ,)),
    ("POST", _LIST_PATH): InPath((WRITE,), Privilege.CREATE),
    ("GET", _VIEW_PATH): _READER,
    ("POST", _VIEW_PATH): InPath((WRITE,), Privilege.ALTER),
    ("POST", _REFRESH_PATH): _WRITER,
    ("DELETE", _VIEW_PATH): InPath((WRITE,), Privilege.DROP),
}
ROUTES: Final = FeatureRoutes((router,), _NEEDS, (CreateMaterializedViewRequest, ScheduleRequest, RefreshRequest))
