"""Route by which a namespace is renamed."""

from fastapi import APIRouter

from duckicelake.catalog import namespace_rename
from duckicelake.iceberg.identifiers import NamespaceField, parse_schema_name
from duckicelake.iceberg.model import SpecModel
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.http.scope import PREFIX
from duckicelake.server.routes.dependencies import Body, KeyedServices, NamespacePath, describe_body

router = APIRouter(prefix=PREFIX, tags=["namespaces"], responses=RESPONSES, route_class=StrictRoute)


class RenameNamespaceBody(StrictRequest):
    """destination: the namespace's new name, in full; its parents need not exist."""

    destination: NamespaceField


class StaleView(SpecModel):
    """A view whose query names tables by the old name, and finds them no more."""

    namespace: tuple[str, ...]
    name: str


class RenameNamespaceAnswer(SpecModel):
    """What moved in which DuckLake snapshot. stale_views: those that the caller may read; they keep their text."""

    namespace: tuple[str, ...]
    ducklake_snapshot_id: int
    namespaces: int
    tables: int
    views: int
    stale_views: tuple[StaleView, ...]


@router.post("/namespaces/{namespace}/rename", openapi_extra=describe_body(RenameNamespaceBody))
def rename_namespace(services: KeyedServices, namespace: NamespacePath, body: Body) -> RenameNamespaceAnswer:
    """Rename a namespace, or move it below another, with all namespaces, tables and views in it, in one step."""
    destination = parse_body(RenameNamespaceBody, body).destination
    done = namespace_rename.rename_namespace(services, namespace, destination)
    return RenameNamespaceAnswer(
        namespace=destination,
        ducklake_snapshot_id=done.snapshot_id,
        namespaces=done.namespaces,
        tables=done.tables,
        views=done.views,
        stale_views=tuple(
            StaleView(namespace=parse_schema_name(schema), name=name) for schema, name in done.stale_views
        ),
    )
