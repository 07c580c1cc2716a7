"""Clones of tables, and the expiry of what tables share. Iceberg knows nothing of these routes: none is advertised."""

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from duckicelake.catalog import tables
from duckicelake.catalog.clone import CloneRequest
from duckicelake.catalog.expiry import expire_snapshots
from duckicelake.iceberg.model import Long, SpecModel
from duckicelake.iceberg.names import TableNameField
from duckicelake.iceberg.rest import TableIdentifier
from duckicelake.server.caching import conditional
from duckicelake.server.delegation import AccessWish
from duckicelake.server.errors import RESPONSES
from duckicelake.server.idempotency import KeyedServices
from duckicelake.server.limits.bodies import Body, takes
from duckicelake.server.own_routes import OwnRequest, OwnRoute
from duckicelake.server.paths import NamespacePath, TablePath
from duckicelake.server.validation import parse_body

router = APIRouter(prefix="/v1", tags=["tables"], responses=RESPONSES, route_class=OwnRoute)


class CloneTableRequest(OwnRequest):
    """A table to make of another's files; at: a snapshot's id, DuckLake's number, a time, a branch or tag."""

    name: TableNameField
    source: TableIdentifier
    at: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    with_history: bool = False


class ExpireRequest(OwnRequest):
    """Which snapshots shall leave: those from before a moment, but for so many of each branch."""

    older_than_ms: Long
    retain_last: Annotated[int, Field(ge=1)] = 1
    dry_run: bool = False


class ExpireAnswer(SpecModel):
    """How many left, or would leave, and how many there are then; keeps_files: the table says `gc.enabled=false`."""

    snapshots: int
    left: int
    keeps_files: bool


@router.post("/namespaces/{namespace}/clone", openapi_extra=takes(CloneTableRequest))
def clone_table(services: KeyedServices, namespace: NamespacePath, wish: AccessWish, body: Body) -> Response:
    """Make a table of another's files, without copying any; both then go on by themselves."""
    request = parse_body(CloneTableRequest, body)
    source = CloneRequest((request.source.namespace, request.source.name), request.at, request.with_history)
    loaded = tables.clone_table(services, namespace, request.name, source, wish)
    return conditional(loaded.body, loaded.etag)


@router.post("/namespaces/{namespace}/tables/{table}/expire", openapi_extra=takes(ExpireRequest))
def expire(services: KeyedServices, namespace: NamespacePath, table: TablePath, body: Body) -> ExpireAnswer:
    """Let old snapshots leave a table's history; files that no table needs go with DuckDB's next cleanup."""
    request = parse_body(ExpireRequest, body)
    done = expire_snapshots(
        services, namespace, table, request.older_than_ms, request.retain_last, is_dry_run=request.dry_run
    )
    return ExpireAnswer(snapshots=done.snapshots, left=done.left, keeps_files=done.keeps_files)
