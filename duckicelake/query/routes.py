"""The routes that run queries, list them and cancel them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from threading import BoundedSemaphore
from typing import Annotated, Final, TypeVar
from uuid import UUID, uuid4

from fastapi import APIRouter, Header, Request
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from duckicelake.catalog.context.privileges import Privilege
from duckicelake.errors import InvalidRequestError, TooManyRequestsError, UnsupportedError
from duckicelake.iceberg.identifiers import TableNameField, check_namespace
from duckicelake.query import registry
from duckicelake.query.processes import QueryLimits
from duckicelake.query.queries import QueryAnswer, QueryOrder, explain_query, run_query
from duckicelake.query.registry import QueryList, QueryStatus
from duckicelake.query.saved_results import SavedResult, SaveOrder, save_result
from duckicelake.query.service import find_limits, find_processes
from duckicelake.server.auth.permissions import WRITE, AnyToken, InPath, Need
from duckicelake.server.hooks import FeatureRoutes
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.routes.dependencies import AppServices, Body, KeyedServices, NamespacePath, describe_body

T = TypeVar("T")
_PATH: Final = "/sql/v1/query"
_LIST_PATH: Final = "/sql/v1/queries"
_QUERY_PATH: Final = "/sql/v1/queries/{query_id}"
_RESULTS_PATH: Final = "/v1/namespaces/{namespace}/query-results"
_MAX_SAVES: Final = 2
"""Results that requests of a worker save at once; each has a thread that waits for it."""
_slots: Final = BoundedSemaphore(_MAX_SAVES)
QUERY_HEADER: Final = "Duckicelake-Query"
SNAPSHOT_HEADER: Final = "Duckicelake-Snapshot"
_NO_STORE: Final = {"Cache-Control": "no-store"}
FORMATS: Final[Mapping[str, tuple[str, str]]] = {
    "application/vnd.apache.arrow.stream": ("arrow", "application/vnd.apache.arrow.stream"),
    "text/csv": ("csv", "text/csv; charset=utf-8"),
    "application/x-ndjson": ("json", "application/x-ndjson"),
    "application/json": ("json", "application/x-ndjson"),
    "*/*": ("json", "application/x-ndjson"),
}
"""By what a request accepts: the format, and the answer's content type."""
router = APIRouter(tags=["query"], responses=RESPONSES, route_class=StrictRoute)


class QueryRequest(StrictRequest):
    """A query in DuckDB's SQL. at: DuckLake's number, a time, a branch or tag. limit: most rows of the answer.

    query_id: by which the query is listed and cancelled; chosen by the server if it is left out.
    """

    sql: Annotated[str, Field(min_length=1)]
    namespace: Annotated[tuple[str, ...], Field(min_length=1)] = ("main",)
    at: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    limit: Annotated[int, Field(ge=0)] | None = None
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    explain: bool = False
    query_id: UUID | None = None


class SaveResultRequest(StrictRequest):
    """A table to make of the result of a query in DuckDB's SQL.

    default_namespace: where tables are looked up that the query names without one; the path's if it is left out. at,
    query_id: as of a query. properties: of the table. dry_run: say which table it would be, and make none.
    """

    name: TableNameField
    sql: Annotated[str, Field(min_length=1)]
    default_namespace: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    at: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    properties: dict[str, str] = Field(default_factory=dict)
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    query_id: UUID | None = None
    dry_run: bool = False


@router.post(_PATH, openapi_extra=describe_body(QueryRequest), response_class=StreamingResponse)
async def query(
    services: AppServices, body: Body, request: Request, accept: Annotated[str, Header()] = "*/*"
) -> Response:
    """Run one SELECT over tables that the caller may read, all at one snapshot; the rows come as they are computed.

    The format is Arrow's stream, CSV or JSON lines, by `Accept`. The query ends when the client goes away. With
    `explain`, the answer is the plan, and what it reads of each table, as a JSON object.
    """
    limits = find_limits(services)
    check_has_processes(limits)
    parsed = parse_body(QueryRequest, body)
    format_, content_type = _choose_format(accept)
    order = _build_order(parsed, limits, format_)
    if order.is_explain:
        plan = await explain_query(services, find_processes(limits), order)
        return Response(plan.model_dump_json(by_alias=True), headers=_NO_STORE, media_type="application/json")
    stack = AsyncExitStack()
    answer = await begin_answer(stack, run_query(services, find_processes(limits), order), request)
    headers = {
        QUERY_HEADER: str(order.query_id),
        SNAPSHOT_HEADER: str(answer.snapshot_id),
        **_NO_STORE,
    }
    return StreamingResponse(_stream(stack, answer), headers=headers, media_type=content_type)


@router.get(_LIST_PATH)
def list_queries(services: AppServices) -> QueryList:
    """List the caller's queries of the last ten minutes, or everyone's for an administrator; the newest first."""
    return QueryList(queries=registry.list_queries(services))


@router.get(_QUERY_PATH)
def load_query(services: AppServices, query_id: UUID) -> QueryStatus:
    """Say how far a query is."""
    return registry.find_query(services, query_id)


@router.delete(_QUERY_PATH, status_code=204)
def cancel_query(services: AppServices, query_id: UUID) -> None:
    """Cancel a query, whichever worker of the server runs it; its client gets a 409. One that has ended stays ended."""
    registry.cancel_query(services, query_id)


@router.post(_RESULTS_PATH, openapi_extra=describe_body(SaveResultRequest), response_model_exclude_none=True)
def save_query_result(services: KeyedServices, namespace: NamespacePath, body: Body) -> SavedResult:
    """Make a table of the result of one SELECT, in one commit; the answer comes when that is done.

    The query reads what the caller may, at one snapshot. A client that goes away doesn't end it.
    """
    limits = find_limits(services)
    check_has_processes(limits)
    request = parse_body(SaveResultRequest, body)
    query = QueryRequest(
        sql=request.sql,
        namespace=namespace if request.default_namespace is None else request.default_namespace,
        at=request.at,
        timeout_seconds=request.timeout_seconds,
        query_id=request.query_id,
    )
    order = SaveOrder(
        _build_order(query, limits, "arrow"), namespace, request.name, request.properties, request.dry_run
    )
    if not _slots.acquire(blocking=False):
        raise TooManyRequestsError(f"{_MAX_SAVES} results are saved for requests of this worker: try again later")
    try:
        return save_result(services, order)
    finally:
        _slots.release()


def check_has_processes(limits: QueryLimits) -> None:
    """Raise UnsupportedError if the server runs no queries."""
    if limits.processes == 0:
        raise UnsupportedError("queries", "This server runs no queries: DUCKICELAKE_QUERY_PROCESSES is 0")


async def begin_answer(stack: AsyncExitStack, running: AbstractAsyncContextManager[T], request: Request) -> T:
    """Wait for the begin of the answer; a client that goes away meanwhile ends its query."""
    begun = asyncio.ensure_future(stack.enter_async_context(running))
    gone = asyncio.ensure_future(_wait_until_gone(request))
    try:
        await asyncio.wait({begun, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            begun.cancel()
        return await begun
    finally:
        gone.cancel()


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _stream(stack: AsyncExitStack, answer: QueryAnswer) -> AsyncIterator[memoryview]:
    """Yield the pieces; an answer that isn't read to its end ends its query."""
    async with stack:
        async for piece in answer.pieces:
            yield piece


def _build_order(request: QueryRequest, limits: QueryLimits, format_: str) -> QueryOrder:
    return QueryOrder(
        query_id=request.query_id or uuid4(),
        sql=request.sql,
        namespace=check_namespace(request.namespace),
        at=request.at,
        format=format_,
        rows=limits.rows if request.limit is None else min(request.limit, limits.rows),
        seconds=limits.seconds if request.timeout_seconds is None else min(request.timeout_seconds, limits.seconds),
        is_explain=request.explain,
    )


def _choose_format(accept: str) -> tuple[str, str]:
    """Choose by Accept: the first that is known. Raises InvalidRequestError."""
    for wanted in accept.split(","):
        found = FORMATS.get(wanted.partition(";")[0].strip().lower())
        if found is not None:
            return found
    raise InvalidRequestError(f"Invalid Accept {accept[:100]!r}: expected one of {', '.join(FORMATS)}")


_NEEDS: Final[Mapping[tuple[str, str], Need]] = {
    **{route: AnyToken() for route in (("POST", _PATH), ("GET", _LIST_PATH))},
    **{route: AnyToken() for route in (("GET", _QUERY_PATH), ("DELETE", _QUERY_PATH))},
    ("POST", _RESULTS_PATH): InPath((WRITE,), Privilege.CREATE),
}
"""The use case looks at each table that is read, and at who owns each query."""
ROUTES: Final = FeatureRoutes((router,), _NEEDS, (QueryRequest, SaveResultRequest))
