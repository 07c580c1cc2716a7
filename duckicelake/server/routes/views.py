"""Routes of views."""

from fastapi import APIRouter, Response

from duckicelake.catalog import dropped, views
from duckicelake.iceberg.rest import CommitViewRequest, CreateViewRequest, RegisterViewRequest, RenameTableRequest
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.headers import build_conditional_response
from duckicelake.server.http.scope import PREFIX
from duckicelake.server.routes.dependencies import (
    AppServices,
    Body,
    DroppedQuery,
    KeyedAdmission,
    KeyedServices,
    NamespacePath,
    PageQuery,
    ReferencedBy,
    ViewPath,
    describe_body,
)
from duckicelake.server.routes.tables import TableList, TableName

router = APIRouter(prefix=PREFIX, tags=["views"], responses=RESPONSES)

VIEW = "/namespaces/{namespace}/views/{view}"


@router.get("/namespaces/{namespace}/views")
def list_views(
    services: AppServices, namespace: NamespacePath, page: PageQuery, is_dropped: DroppedQuery = False
) -> TableList:
    """List the views of a namespace."""
    if is_dropped:
        found = dropped.list_dropped_names(services, "view", namespace, page)
    else:
        found = views.list_views(services, namespace, page)
    names = tuple(TableName(namespace=namespace, name=name) for name in found.items)
    return TableList(identifiers=names, next_page_token=found.next_token)


@router.post("/namespaces/{namespace}/views", openapi_extra=describe_body(CreateViewRequest))
def create_view(services: KeyedServices, namespace: NamespacePath, body: Body) -> Response:
    """Create a view."""
    return _build_response(views.create_view(services, namespace, parse_body(CreateViewRequest, body)))


@router.post("/namespaces/{namespace}/register-view", openapi_extra=describe_body(RegisterViewRequest))
def register_view(services: KeyedServices, namespace: NamespacePath, body: Body) -> Response:
    """Make a view of a metadata file that exists."""
    return _build_response(views.register_view(services, namespace, parse_body(RegisterViewRequest, body)))


@router.get(VIEW, dependencies=[ReferencedBy])
def load_view(services: AppServices, namespace: NamespacePath, view: ViewPath) -> Response:
    """Load a view's metadata."""
    return _build_response(views.load_view(services, namespace, view))


@router.head(VIEW, status_code=204)
def view_exists(services: AppServices, namespace: NamespacePath, view: ViewPath) -> Response:
    """Answer 204 if the view exists."""
    views.view_exists(services, namespace, view)
    return Response(status_code=204)


@router.post(VIEW, openapi_extra=describe_body(CommitViewRequest))
def commit_view(services: KeyedServices, namespace: NamespacePath, view: ViewPath, body: Body) -> Response:
    """Commit updates if the requirements hold."""
    return _build_response(views.commit_view(services, namespace, view, parse_body(CommitViewRequest, body)))


@router.delete(VIEW, status_code=204)
def drop_view(services: KeyedServices, namespace: NamespacePath, view: ViewPath) -> Response:
    """Drop a view."""
    views.drop_view(services, namespace, view)
    return Response(status_code=204)


@router.post("/views/rename", status_code=204, openapi_extra=describe_body(RenameTableRequest))
def rename_view(admit: KeyedAdmission, body: Body) -> Response:
    """Rename a view, or move it to another namespace."""
    request = parse_body(RenameTableRequest, body)
    views.rename_view(admit(request), request)
    return Response(status_code=204)


def _build_response(answer: bytes) -> Response:
    return build_conditional_response(answer, None)
