"""The route that answers what happened to a table's rows."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Annotated, Final
from uuid import uuid4

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from duckicelake.errors import InvalidRequestError, UnsupportedError
from duckicelake.query.routes import QUERY_HEADER, begin_answer
from duckicelake.query.service import find_limits, find_processes
from duckicelake.row_changes.answers import ChangesAnswer, ChangesOrder, open_changes
from duckicelake.server.auth.permissions import AnyToken
from duckicelake.server.hooks import FeatureRoutes
from duckicelake.server.http.errors import RESPONSES
from duckicelake.server.http.route import StrictRoute
from duckicelake.server.routes.dependencies import AppServices, NamespacePath, TablePath

_PATH: Final = "/v1/namespaces/{namespace}/tables/{table}/changes"
TABLE_HEADER: Final = "Duckicelake-Table"
BEGIN_HEADER: Final = "Duckicelake-From"
END_HEADER: Final = "Duckicelake-To"
SEEN_HEADER: Final = "Duckicelake-Seen"
_FORMATS: Final[Mapping[str, tuple[str, str]]] = {
    "application/vnd.apache.arrow.stream": ("arrow", "application/vnd.apache.arrow.stream"),
    "application/x-ndjson": ("json", "application/x-ndjson"),
    "application/json": ("json", "application/x-ndjson"),
    "*/*": ("json", "application/x-ndjson"),
}
"""By what a request accepts: the format, and the answer's content type."""
_PLACE: Final = "DuckLake's number of a snapshot, Iceberg's id, a time in ISO form, a branch or tag"
router = APIRouter(tags=["row changes"], responses=RESPONSES, route_class=StrictRoute)


@router.get(_PATH, response_class=StreamingResponse)
async def list_row_changes(
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    request: Request,
    since: Annotated[
        str | None, Query(alias="from", description=f"behind what changes begin: a position, or {_PLACE}")
    ] = None,
    until: Annotated[str | None, Query(alias="to", description=f"the last snapshot: {_PLACE}")] = None,
    columns: Annotated[str | None, Query(description="columns of the answer, joined by commas")] = None,
    key: Annotated[str | None, Query(description="columns that identify a row, joined by commas")] = None,
    where: Annotated[
        str | None,
        Query(
            max_length=100_000,
            description="a condition that its rows meet, in SQL or as an expression of the REST specification",
        ),
    ] = None,
    table_uuid: Annotated[
        str | None, Query(alias="table-uuid", description="refuse any other table of that name")
    ] = None,
    limit: Annotated[int | None, Query(ge=1, description="most rows of the answer")] = None,
    accept: Annotated[str, Header()] = "*/*",
) -> Response:
    """List the rows that main's snapshots inserted, deleted and updated, as Arrow's stream or lines of JSON.

    The last line, or the metadata of Arrow's last batch, says the position at which the answer ends, for `from` of the
    next request, and whether that is the snapshot of `to`. An answer without it was cut.
    """
    limits = find_limits(services)
    if limits.processes == 0:
        raise UnsupportedError("queries", "This server runs no queries: DUCKICELAKE_QUERY_PROCESSES is 0")
    format_, content_type = _choose_format(accept)
    order = ChangesOrder(
        change_id=uuid4(),
        namespace=namespace,
        table=table,
        table_uuid=table_uuid,
        since=since,
        until=until,
        columns=_split(columns),
        key=_split(key),
        where=where,
        format=format_,
        rows=limits.rows if limit is None else min(limit, limits.rows),
        seconds=limits.seconds,
    )
    stack = AsyncExitStack()
    answer = await begin_answer(stack, open_changes(services, find_processes(limits), order), request)
    headers = {
        QUERY_HEADER: str(order.change_id),
        TABLE_HEADER: answer.table_uuid,
        BEGIN_HEADER: str(answer.begin),
        END_HEADER: str(answer.upto),
        SEEN_HEADER: str(answer.seen),
        "Cache-Control": "no-store",
    }
    return StreamingResponse(_stream(stack, answer), headers=headers, media_type=content_type)


async def _stream(stack: AsyncExitStack, answer: ChangesAnswer) -> AsyncIterator[memoryview]:
    """Yield the pieces; an answer that isn't read to its end ends its queries."""
    async with stack:
        async for piece in answer.pieces:
            yield piece


def _split(names: str | None) -> tuple[str, ...]:
    """Split names of columns. Raises InvalidRequestError."""
    found = () if names is None else tuple(names.split(","))
    if "" in found or len(set(found)) < len(found):
        raise InvalidRequestError(f"Invalid columns {names!r}: expected different names joined by commas")
    return found


def _choose_format(accept: str) -> tuple[str, str]:
    """Choose by Accept: the first that is known. Raises InvalidRequestError."""
    for wanted in accept.split(","):
        found = _FORMATS.get(wanted.partition(";")[0].strip().lower())
        if found is not None:
            return found
    raise InvalidRequestError(f"Invalid Accept {accept[:100]!r}: expected one of {', '.join(_FORMATS)}")


ROUTES: Final = FeatureRoutes((router,), {("GET", _PATH): AnyToken()})
"""The use case looks at the table itself: policies may leave the caller a part of it."""
