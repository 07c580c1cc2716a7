"""Tables: list, load, test, drop, rename, take over, give up; `table_posts` has what is asked most often."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from duckicelake.catalog import tables
from duckicelake.iceberg.rest import RegisterTableRequest, RenameTableRequest
from duckicelake.server.caching import conditional
from duckicelake.server.context import AppServices
from duckicelake.server.delegation import AccessWish
from duckicelake.server.endpoints import PREFIX
from duckicelake.server.errors import RESPONSES
from duckicelake.server.idempotency import KeyedAdmission, KeyedServices
from duckicelake.server.limits.bodies import Body, takes
from duckicelake.server.paths import NamespacePath, PageQuery, TablePath
from duckicelake.server.validation import parse_body

router = APIRouter(prefix=PREFIX, tags=["tables"], responses=RESPONSES)

TABLE = "/namespaces/{namespace}/tables/{table}"


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


@router.get("/namespaces/{namespace}/tables")
def list_tables(services: AppServices, namespace: NamespacePath, page: PageQuery) -> TableList:
    """List the tables of a namespace."""
    found = tables.list_tables(services, namespace, page)
    names = tuple(TableName(namespace=namespace, name=name) for name in found.items)
    return TableList(identifiers=names, next_page_token=found.next_token)


@router.get(TABLE)
def load_table(
    request: Request,
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    wish: AccessWish,
    snapshots: Annotated[Literal["all", "refs"], Query(description="refs: only what branches and tags name")] = "all",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Load a table's metadata; 304 if the client's copy is the current one."""
    loaded = tables.load_table(services, namespace, table, snapshots, wish)
    services.reads.note_load(services.caller, namespace, table, is_lookup="snapshots" in request.query_params)
    return conditional(loaded.body, loaded.etag, None if wish and if_none_match == "*" else if_none_match)


@router.head(TABLE, status_code=204)
def table_exists(services: AppServices, namespace: NamespacePath, table: TablePath) -> Response:
    """Answer 204 if the table exists."""
    tables.table_exists(services, namespace, table)
    return Response(status_code=204)


@router.delete(TABLE, status_code=204)
def drop_table(
    services: KeyedServices,
    namespace: NamespacePath,
    table: TablePath,
    purge: Annotated[bool, Query(alias="purgeRequested", description="delete its files as well")] = False,
) -> Response:
    """Drop a table."""
    tables.drop_table(services, namespace, table, purge)
    return Response(status_code=204)


@router.post("/tables/rename", status_code=204, openapi_extra=takes(RenameTableRequest))
def rename_table(admit: KeyedAdmission, body: Body) -> Response:
    """Rename a table, or move it to another namespace."""
    request = parse_body(RenameTableRequest, body)
    tables.rename_table(admit(request), request)
    return Response(status_code=204)


@router.post("/namespaces/{namespace}/register", openapi_extra=takes(RegisterTableRequest))
def register_table(services: KeyedServices, namespace: NamespacePath, wish: AccessWish, body: Body) -> Response:
    """Make a table of a metadata.json that another catalog wrote."""
    loaded = tables.register_table(services, namespace, parse_body(RegisterTableRequest, body), wish)
    return conditional(loaded.body, loaded.etag)


@router.post(f"{TABLE}/unregister")
def unregister_table(services: KeyedServices, namespace: NamespacePath, table: TablePath) -> Response:
    """Give a table up to another catalog; its files stay."""
    return conditional(tables.unregister_table(services, namespace, table), None)
