"""Routes that Iceberg has not: restore, clone, expire and explain."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field, model_validator

from duckicelake.catalog import tables
from duckicelake.catalog.clone import CloneRequest
from duckicelake.catalog.expiry import expire_snapshots
from duckicelake.catalog.restore import restore_table
from duckicelake.catalog.scan_explanation import ExplainQuery, ScanExplanation, explain_table_scan
from duckicelake.iceberg.identifiers import TableNameField
from duckicelake.iceberg.model import Long, SpecModel
from duckicelake.iceberg.rest import TableIdentifier
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.headers import build_conditional_response
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.routes.dependencies import (
    AccessRequestHeader,
    AppServices,
    Body,
    KeyedServices,
    NamespacePath,
    TablePath,
    describe_body,
)

restore_router = APIRouter(prefix="/v1", tags=["tables"], responses=RESPONSES, route_class=StrictRoute)
clone_router = APIRouter(prefix="/v1", tags=["tables"], responses=RESPONSES, route_class=StrictRoute)
explain_router = APIRouter(prefix="/v1", tags=["planning"], responses=RESPONSES, route_class=StrictRoute)


class RestoreRequest(StrictRequest):
    """What a table shall be again. to: a snapshot's id, DuckLake's number, a time, a branch or tag, Delta's v7."""

    to: Annotated[str, Field(min_length=1, max_length=2000)]
    dry_run: bool = False


class RestoreAnswer(SpecModel):
    """What it does, or would do; snapshot ids are null where nothing was written. Files are data files."""

    model_config = ConfigDict(frozen=True)

    restored_from: int
    restored_over: int | None = None
    snapshot_id: int | None = None
    ducklake_snapshot_id: int | None = None
    files_added: int
    files_removed: int
    rows_added: int
    rows_removed: int
    changes_definition: bool


@restore_router.post("/namespaces/{namespace}/tables/{table}/restore", openapi_extra=describe_body(RestoreRequest))
def restore(services: KeyedServices, namespace: NamespacePath, table: TablePath, body: Body) -> RestoreAnswer:
    """Make main what it was at one of the table's snapshots, by a new one: rows, schema, partitioning and order."""
    request = parse_body(RestoreRequest, body)
    done = restore_table(services, namespace, table, request.to, is_dry_run=request.dry_run)
    return RestoreAnswer(
        restored_from=done.restored_from,
        restored_over=done.restored_over,
        snapshot_id=done.snapshot_id,
        ducklake_snapshot_id=done.ducklake_id,
        files_added=done.files_added,
        files_removed=done.files_removed,
        rows_added=done.rows_added,
        rows_removed=done.rows_removed,
        changes_definition=done.changes_definition,
    )


class CloneTableRequest(StrictRequest):
    """A table to make of another's files; at: a snapshot's id, DuckLake's number, a time, a branch or tag."""

    name: TableNameField
    source: TableIdentifier
    at: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    with_history: bool = False


class ExpireRequest(StrictRequest):
    """Which snapshots shall leave: those from before a moment, but for so many of each branch."""

    older_than_ms: Long
    retain_last: Annotated[int, Field(ge=1)] = 1
    dry_run: bool = False


class ExpireAnswer(SpecModel):
    """How many left, or would leave, and how many there are then.

    keeps_files: the table says `gc.enabled=false`. refs: branches and tags that left, or would, as they were too old.
    """

    snapshots: int
    left: int
    keeps_files: bool
    refs: tuple[str, ...] = ()


@clone_router.post("/namespaces/{namespace}/clone", openapi_extra=describe_body(CloneTableRequest))
def clone_table(services: KeyedServices, namespace: NamespacePath, wish: AccessRequestHeader, body: Body) -> Response:
    """Make a table of another's files, without copying any; both then go on by themselves."""
    request = parse_body(CloneTableRequest, body)
    source = CloneRequest((request.source.namespace, request.source.name), request.at, request.with_history)
    loaded = tables.clone_table(services, namespace, request.name, source, wish)
    return build_conditional_response(loaded.body, loaded.etag)


@clone_router.post("/namespaces/{namespace}/tables/{table}/expire", openapi_extra=describe_body(ExpireRequest))
def expire(services: KeyedServices, namespace: NamespacePath, table: TablePath, body: Body) -> ExpireAnswer:
    """Let old snapshots leave a table's history; files that no table needs go with DuckDB's next cleanup."""
    request = parse_body(ExpireRequest, body)
    done = expire_snapshots(
        services, namespace, table, request.older_than_ms, request.retain_last, is_dry_run=request.dry_run
    )
    return ExpireAnswer(snapshots=done.snapshots, left=done.left, keeps_files=done.keeps_files, refs=done.refs)


class ExplainRequest(StrictRequest):
    """A scan to explain. where: in SQL; filter: as plans have it; at: as of a clone, main's newest without it."""

    where: Annotated[str, Field(max_length=100_000)] | None = None
    filter: Any = None
    at: Annotated[str, Field(min_length=1, max_length=2000)] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> "ExplainRequest":
        if self.where is not None and self.filter is not None:
            raise ValueError("where and filter both say what is read: send one")
        return self


@explain_router.post("/namespaces/{namespace}/tables/{table}/explain", openapi_extra=describe_body(ExplainRequest))
def explain(services: AppServices, namespace: NamespacePath, table: TablePath, body: Body) -> ScanExplanation:
    """Explain what a filter would read of a table: files, bytes and rows, per partition, and what prunes."""
    request = parse_body(ExplainRequest, body)
    wanted = True if request.filter is None else request.filter
    return explain_table_scan(services, namespace, table, ExplainQuery(request.where, wanted, request.at))
