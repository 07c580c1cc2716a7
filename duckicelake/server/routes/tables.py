"""Routes of tables: list, create, load, commit, drop, rename, register; credentials and signatures."""

from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from duckicelake.catalog import delegation, dropped, tables
from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.model import SpecModel
from duckicelake.iceberg.reports import MetricsReport
from duckicelake.iceberg.rest import (
    CommitTableRequest,
    CreateTableRequest,
    RegisterTableRequest,
    RemoteSignRequest,
    RenameTableRequest,
)
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.headers import build_conditional_response
from duckicelake.server.http.route import FastRoute
from duckicelake.server.http.scope import PREFIX, TABLE_CHECK_KEY
from duckicelake.server.routes.dependencies import (
    AccessRequestHeader,
    AppContext,
    AppServices,
    Body,
    DroppedQuery,
    KeyedAdmission,
    KeyedServices,
    NamespacePath,
    PageQuery,
    ReferencedBy,
    TablePath,
    describe_body,
)

table_router = APIRouter(prefix=PREFIX, tags=["tables"], responses=RESPONSES)
TABLE = "/namespaces/{namespace}/tables/{table}"
table_post_router = APIRouter(prefix=PREFIX, tags=["tables"], responses=RESPONSES, route_class=FastRoute)
storage_router = APIRouter(prefix=PREFIX, tags=["storage"], responses=RESPONSES)


class TableName(BaseModel):
    """A table's full name."""

    model_config = ConfigDict(frozen=True)

    namespace: tuple[str, ...]
    name: str


class TableList(BaseModel):
    """One page of the tables of a namespace."""

    model_config = ConfigDict(frozen=True)

    identifiers: tuple[TableName, ...]
    next_page_token: str | None = Field(serialization_alias="next-page-token")


@table_router.get("/namespaces/{namespace}/tables")
def list_tables(
    services: AppServices, namespace: NamespacePath, page: PageQuery, is_dropped: DroppedQuery = False
) -> TableList:
    """List the tables of a namespace."""
    if is_dropped:
        found = dropped.list_dropped_names(services, "table", namespace, page)
    else:
        found = tables.list_tables(services, namespace, page)
    names = tuple(TableName(namespace=namespace, name=name) for name in found.items)
    return TableList(identifiers=names, next_page_token=found.next_token)


@table_router.get(TABLE, dependencies=[ReferencedBy])
def load_table(
    request: Request,
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    wish: AccessRequestHeader,
    snapshots: Annotated[
        Literal["all", "refs", "brief"],
        Query(description="refs: only what branches and tags name; brief: those, and no logs"),
    ] = "all",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Load a table's metadata; 304 if the client's copy is the current one."""
    loaded = tables.load_table(services, namespace, table, snapshots, wish, request.scope.get(TABLE_CHECK_KEY))
    services.reads.note_load(services.caller, namespace, table, is_lookup="snapshots" in request.query_params)
    return build_conditional_response(
        loaded.body, loaded.etag, None if wish and if_none_match == "*" else if_none_match
    )


@table_router.head(TABLE, status_code=204)
def table_exists(services: AppServices, namespace: NamespacePath, table: TablePath) -> Response:
    """Answer 204 if the table exists."""
    tables.table_exists(services, namespace, table)
    return Response(status_code=204)


@table_router.delete(TABLE, status_code=204)
def drop_table(
    services: KeyedServices,
    namespace: NamespacePath,
    table: TablePath,
    purge: Annotated[bool, Query(alias="purgeRequested", description="delete its files as well")] = False,
) -> Response:
    """Drop a table."""
    tables.drop_table(services, namespace, table, purge)
    return Response(status_code=204)


@table_router.post("/tables/rename", status_code=204, openapi_extra=describe_body(RenameTableRequest))
def rename_table(admit: KeyedAdmission, body: Body) -> Response:
    """Rename a table, or move it to another namespace."""
    request = parse_body(RenameTableRequest, body)
    tables.rename_table(admit(request), request)
    return Response(status_code=204)


class RegisterRequest(RegisterTableRequest):
    """A table to register. dry-run: read all of it, answer with what there is, and register nothing."""

    dry_run: bool = False


class RegistrationCheck(SpecModel):
    """What a registration would register; files are those of all snapshots."""

    model_config = ConfigDict(frozen=True)

    metadata_location: str
    table_uuid: str
    format_version: int
    snapshots: int
    files: int


@table_router.post("/namespaces/{namespace}/register", openapi_extra=describe_body(RegisterRequest))
def register_table(
    services: KeyedServices, namespace: NamespacePath, wish: AccessRequestHeader, body: Body
) -> Response:
    """Make a table of a metadata.json that another catalog wrote."""
    request = parse_body(RegisterRequest, body)
    if request.dry_run:
        return build_conditional_response(_check_registration(services, namespace, request), None)
    loaded = tables.register_table(services, namespace, request, wish)
    return build_conditional_response(loaded.body, loaded.etag)


def _check_registration(services: Services, namespace: Namespace, request: RegisterRequest) -> bytes:
    found = tables.check_registration(services, namespace, request)
    answer = RegistrationCheck(
        metadata_location=request.metadata_location,
        table_uuid=str(found.metadata.table_uuid),
        format_version=found.metadata.format_version,
        snapshots=len(found.metadata.snapshots),
        files=len(found.paths),
    )
    return orjson.dumps(answer.model_dump(mode="json", by_alias=True))


@table_router.post(f"{TABLE}/unregister")
def unregister_table(services: KeyedServices, namespace: NamespacePath, table: TablePath) -> Response:
    """Give a table up to another catalog; its files stay."""
    return build_conditional_response(tables.unregister_table(services, namespace, table), None)


@table_post_router.post(TABLE, openapi_extra=describe_body(CommitTableRequest))
def commit_table(services: KeyedServices, namespace: NamespacePath, table: TablePath, body: Body) -> Response:
    """Commit updates if the requirements hold."""
    committed = tables.commit_table(services, namespace, table, parse_body(CommitTableRequest, body))
    return build_conditional_response(committed.body, committed.etag)


@table_post_router.post(f"{TABLE}/metrics", status_code=204, openapi_extra=describe_body(MetricsReport))
def report_metrics(
    context: AppContext, services: AppServices, namespace: NamespacePath, table: TablePath, body: Body
) -> Response:
    """Take an engine's report of a scan or a commit, count it, and remember what was read."""
    report = parse_body(MetricsReport, body)
    tables.table_exists(services, namespace, table)
    services.reads.note_report(services.caller, namespace, table, report)
    context.metrics.report_received(report.report_type)
    return Response(status_code=204)


@table_post_router.post("/namespaces/{namespace}/tables", openapi_extra=describe_body(CreateTableRequest))
def create_table(services: KeyedServices, namespace: NamespacePath, wish: AccessRequestHeader, body: Body) -> Response:
    """Create a table, or stage its creation for a later commit."""
    loaded = tables.create_table(services, namespace, parse_body(CreateTableRequest, body), wish)
    return build_conditional_response(loaded.body, loaded.etag)


@storage_router.get(f"{TABLE}/credentials", dependencies=[ReferencedBy])
def load_credentials(
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    prefix: Annotated[str | None, Query(description="only the credentials for this prefix")] = None,
) -> Response:
    """Give keys for a table's files, as far as the caller may read or write it."""
    answer = delegation.load_credentials(services, namespace, table, prefix)
    return Response(answer, headers={"Cache-Control": "no-store"}, media_type="application/json")


@storage_router.post(f"{TABLE}/sign", openapi_extra=describe_body(RemoteSignRequest))
def sign_request(services: AppServices, namespace: NamespacePath, table: TablePath, body: Body) -> Response:
    """Sign a request to the object store, if it touches nothing but the table's files."""
    signed = delegation.sign(
        services, namespace, table, delegation.parse_sign_request(parse_body(RemoteSignRequest, body))
    )
    answer = {"uri": signed.uri, "headers": {name: [value] for name, value in signed.headers.items()}}
    headers = {"Cache-Control": "private" if signed.is_reusable else "no-cache"}
    return Response(orjson.dumps(answer), headers=headers, media_type="application/json")
