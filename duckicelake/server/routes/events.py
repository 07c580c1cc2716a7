"""The change feed: what changed in the lake, in order, as pages that may be waited for or as a stream without end.

POST takes the request of Iceberg's draft of an events endpoint (apache/iceberg#12584). The draft isn't part of the
specification yet, so the routes aren't advertised.
"""

import asyncio
import time
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from duckicelake.changelog.entries import LogPosition
from duckicelake.changelog.events import KINDS, Name
from duckicelake.changelog.feed import EventSelection
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, check_name, check_namespace
from duckicelake.server.feed.hub import FeedHub, FeedPage, FeedReader
from duckicelake.server.feed.streams import MEDIA_TYPE, SHUTDOWN_REASON, EventStream, FeedSubscriber
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictFastRoute
from duckicelake.server.http.scope import PREFIX, end_on_shutdown, find_caller, leave_slot, parse_parent
from duckicelake.server.routes.dependencies import AppContext, Body, ServerContext, describe_body, find_context

router = APIRouter(prefix=PREFIX, tags=["events"], responses=RESPONSES, route_class=StrictFastRoute)

_MAX_PAGE_EVENTS: Final = 1000
_MAX_SEARCHED_PAGES: Final = 20
"""That are looked through for an answer; it says where to go on, whether or not there was something in them."""


class EventsQuery(BaseModel):
    """The query's parameters."""

    model_config = ConfigDict(frozen=True)

    from_: str | None = Field(
        None,
        alias="from",
        description="what comes after this: a position, as 17.0, a DuckLake snapshot with all that it changed, as 17, "
        "or newest; none: all that is kept",
    )
    wait: float = Field(0, ge=0, le=300, description="seconds to wait for an event if there is none")
    limit: int = Field(100, ge=1, description=f"most events of an answer, up to {_MAX_PAGE_EVENTS}")
    namespace: str | None = Field(None, description="of this one, and of those below it; levels joined by %1F")
    table: str | None = Field(None, description="of this table or view of the namespace")
    kind: str | None = Field(None, description=f"of these kinds, joined by commas: {', '.join(sorted(KINDS))}")

    def selection(self) -> EventSelection:
        namespace = parse_parent(self.namespace)
        if self.table is not None and namespace is None:
            raise InvalidRequestError("The parameter table needs the parameter namespace, too")
        name = None if self.table is None else check_name(self.table, "table name")
        names = frozenset[Name]() if namespace is None else frozenset({(namespace, name)})
        return EventSelection(names, _check_kinds(self.kind.split(",") if self.kind else []))


class ObjectUuid(BaseModel):
    """A table or view by its UUID."""

    model_config = ConfigDict(frozen=True)

    uuid: str
    type: Literal["table", "view"]


class QueryEventsRequest(BaseModel):
    """The draft's request. Filters of our own there are none."""

    model_config = ConfigDict(frozen=True, alias_generator=lambda name: name.replace("_", "-"))

    continuation_token: str | None = None
    page_size: Annotated[int, Field(ge=1)] | None = None
    after_timestamp_ms: Annotated[int, Field(ge=0, le=253402300799999)] | None = None
    operation_types: tuple[str, ...] | None = None
    catalog_objects_by_name: tuple[Namespace, ...] | None = None
    catalog_objects_by_id: tuple[ObjectUuid, ...] | None = None
    object_types: tuple[Literal["namespace", "table", "view"], ...] | None = None
    custom_filters: dict[str, Any] | None = None

    def selection(self) -> EventSelection:
        if self.custom_filters:
            raise InvalidRequestError(f"custom-filters: there are none, so not {', '.join(self.custom_filters)} either")
        return EventSelection(
            names=frozenset(name for levels in self.catalog_objects_by_name or () for name in _list_names(levels)),
            kinds=_check_kinds(self.operation_types or ()),
            types=frozenset(self.object_types or ()),
            uuids=frozenset(identifier.uuid.lower() for identifier in self.catalog_objects_by_id or ()),
            since_ms=self.after_timestamp_ms or 0,
        )


class QueryEventsResponse(BaseModel):
    """The draft's answer; the token is a position, with which the next request goes on."""

    model_config = ConfigDict(frozen=True)

    continuation_token: str = Field(alias="continuation-token")
    highest_processed_timestamp_ms: int = Field(alias="highest-processed-timestamp-ms")
    events: tuple[dict[str, Any], ...]


AcceptHeader = Annotated[
    str | None, Header(alias="Accept", description=f"{MEDIA_TYPE}: a stream of server-sent events")
]
LastEventHeader = Annotated[
    str | None, Header(alias="Last-Event-ID", description="of a stream: counts instead of `from`")
]


@router.get("/events", response_model=QueryEventsResponse)
async def read_events(
    request: Request,
    context: AppContext,
    query: Annotated[EventsQuery, Query()],
    accept: AcceptHeader = None,
    last_event_id: LastEventHeader = None,
) -> Response:
    """List what changed after a position, in namespaces that the caller may read: a page, or a stream."""
    selection, begin = query.selection(), query.from_
    is_stream = MEDIA_TYPE in (accept or "")
    if is_stream:
        begin = last_event_id or begin
    asker = _build_subscriber(request, selection)
    after = await context.feed.begin(begin)
    if is_stream:
        return EventStream(context.feed, context.metrics, asker, after)
    return _build_answer(await _wait_for_page(request, asker, after, min(query.limit, _MAX_PAGE_EVENTS), query.wait))


@router.post("/events", openapi_extra=describe_body(QueryEventsRequest), response_model=QueryEventsResponse)
async def query_events(request: Request, context: AppContext, body: Body) -> Response:
    """List what changed after the token: a page in the form of Iceberg's draft, without updates and requirements."""
    asked = parse_body(QueryEventsRequest, body)
    after = await context.feed.begin(asked.continuation_token)
    limit = min(asked.page_size or _MAX_PAGE_EVENTS, _MAX_PAGE_EVENTS)
    return _build_answer(await _wait_for_page(request, _build_subscriber(request, asked.selection()), after, limit, 0))


async def _wait_for_page(
    request: Request, asker: FeedSubscriber, after: LogPosition, limit: int, wait: float
) -> FeedPage:
    """Find the next page with an event; else return the last one that was searched."""
    hub = _get_context(request).feed
    page = await _search_page(hub, asker, after, limit)
    if page.events or not page.is_last or not wait:
        return page
    until = time.monotonic() + wait
    with hub.reader(asker.name) as reader:
        leave_slot(request.scope)
        end_on_shutdown(request.scope, lambda: reader.end(SHUTDOWN_REASON))
        while page.is_last and not page.events and await _has_news(reader, until):
            reader.news.clear()
            page = await _search_page(hub, asker, page.position, limit)
            if await request.is_disconnected():
                break
    return page


async def _search_page(hub: FeedHub, asker: FeedSubscriber, after: LogPosition, limit: int) -> FeedPage:
    for _ in range(_MAX_SEARCHED_PAGES):
        page = await hub.page(await asker.view(), after, limit)
        if page.events or page.is_last:
            break
        after = page.position
    return page


async def _has_news(reader: FeedReader, until: float) -> bool:
    try:
        async with asyncio.timeout(until - time.monotonic()):
            await reader.news.wait()
    except TimeoutError:
        return False
    return reader.over is None


def _build_answer(page: FeedPage) -> Response:
    token = orjson.dumps(str(page.position))
    events = b",".join(event.json for event in page.events)
    head = b'{"continuation-token":%b,"highest-processed-timestamp-ms":%d,"events":[' % (token, page.at_ms)
    return Response(head + events + b"]}", media_type="application/json")


def _get_context(request: Request) -> ServerContext:
    return find_context(request.scope)


def _build_subscriber(request: Request, selection: EventSelection) -> FeedSubscriber:
    authorization = request.headers.get("authorization")
    context, principal = _get_context(request), find_caller(request.scope).principal
    return FeedSubscriber(context.authentication, authorization, principal, selection, context.services.rights)


def _list_names(levels: Namespace) -> list[Name]:
    """List what may have this name: a namespace with its content, and a table or view."""
    check_namespace(levels)
    return [(levels, None), *([(levels[:-1], levels[-1])] if levels[1:] else [])]


def _check_kinds(kinds: list[str] | tuple[str, ...]) -> frozenset[str]:
    for kind in kinds:
        if kind not in KINDS and not kind.startswith("x-"):  # as which catalogs may have types of their own
            raise InvalidRequestError(f"Invalid kind of event {kind!r}: expected {', '.join(sorted(KINDS))}")
    return frozenset(kinds)
