"""Server-sent events (WHATWG HTML, section 9.2): an answer that goes on until its reader, token or server ends.

Its events have their positions as ids, with which a reader that lost the connection comes again (`Last-Event-ID`). The
last one says why the server ended it. A reader that is slow makes nothing wait: what it hasn't taken stays in memory
for all, and in Postgres.
"""

import asyncio
import random
import time
from contextlib import suppress
from typing import Final

import orjson
from fastapi import Response
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from duckicelake.catalog.context.caller import ANY_PRINCIPAL, Principal
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.changelog.entries import LogPosition
from duckicelake.changelog.feed import EventSelection, EventView, find_view
from duckicelake.errors import CatalogError, InvalidTokenError, NotAuthenticatedError
from duckicelake.server.auth.authentication import Authentication, hash_authorization
from duckicelake.server.feed.hub import FeedHub, FeedPage, FeedReader
from duckicelake.server.http.scope import end_on_shutdown, leave_slot
from duckicelake.server.telemetry.metrics import Metrics

MEDIA_TYPE: Final = "text/event-stream"
_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would keep events until it has many
)
_QUIET_SECONDS: Final = 15.0
"""Seconds after which a comment is sent, so that proxies keep the connection."""
_MIN_RETRY_MS: Final = 500
_MAX_RETRY_MS: Final = 3000
"""Milliseconds until readers come again that lost the connection: not all at once."""

GONE_REASON: Final = "gone"
SHUTDOWN_REASON: Final = "shutdown"


class FeedSubscriber:
    """A reader's selection of events, limited by what its current token allows."""

    def __init__(
        self,
        authentication: Authentication | None,
        authorization: str | None,
        principal: Principal,
        selection: EventSelection,
        rights: RightsCache | None,
    ) -> None:
        self.name = principal.name
        self._rights = rights
        self._authentication = authentication
        self._authorization = authorization
        self._digest = hash_authorization((authorization or "").encode("latin-1"))
        self._principal = principal
        self._selection = selection
        self._view = find_view(principal.grants, selection, principal.rights)

    async def view(self) -> EventView:
        """Return the view that token and grants allow now.

        Raises InvalidTokenError, NotAuthenticatedError, UnavailableError.
        """
        principal: Principal = ANY_PRINCIPAL
        if self._authentication is not None:
            found = self._authentication.find_known(self._digest)
            principal = found or await self._authentication.principal(self._authorization)
        if self._rights is not None:
            known = self._rights.find_known(principal)
            principal = await run_in_threadpool(self._rights.bind, principal) if known is None else known
        if principal is not self._principal:
            self._principal = principal
            self._view = find_view(principal.grants, self._selection, principal.rights)
        return self._view


class EventStream(Response):
    """Stream the events after a position."""

    def __init__(self, hub: FeedHub, metrics: Metrics, asker: FeedSubscriber, after: LogPosition) -> None:
        super().__init__()
        self._hub = hub
        self._metrics = metrics
        self._asker = asker
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._hub.reader(self._asker.name) as reader:
            leave_slot(scope)
            end_on_shutdown(scope, lambda: reader.end(SHUTDOWN_REASON))
            watch = asyncio.create_task(_end_when_gone(receive, reader))
            try:
                await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
                await self._send_pages(reader, send)
            finally:
                watch.cancel()
                with suppress(asyncio.CancelledError):
                    await watch

    async def _send_pages(self, reader: FeedReader, send: Send) -> None:
        retry = random.randint(_MIN_RETRY_MS, _MAX_RETRY_MS)  # noqa: S311 - no secret
        await _send(send, b"retry: %d\nid: %b\n\n" % (retry, self._id))
        sent_at = time.monotonic()
        while True:
            reader.news.clear()
            page = await self._next(reader)
            if page is None:
                break
            if page.events or time.monotonic() - sent_at >= _QUIET_SECONDS:
                self._after = page.position
                # An id without data is no event, but where to come again: past events that the view leaves out.
                await _send(send, page.frames or b":\nid: %b\n\n" % self._id)
                self._metrics.feed_events(len(page.events))
                sent_at = time.monotonic()
            self._after = page.position
            if page.is_last:
                await reader.news.wait()
        end = orjson.dumps({"reason": reader.over, "position": str(self._after)})
        await send({"type": "http.response.body", "body": b"event: end\nid: %b\ndata: %b\n\n" % (self._id, end)})

    async def _next(self, reader: FeedReader) -> FeedPage | None:
        """Return the next page; None once the reader has a reason to end."""
        if reader.over is None:
            try:
                return await self._hub.page(await self._asker.view(), self._after)
            except (InvalidTokenError, NotAuthenticatedError):
                reader.end("token")
            except CatalogError:
                reader.end("unavailable")
        return None

    @property
    def _id(self) -> bytes:
        return str(self._after).encode()


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _end_when_gone(receive: Receive, reader: FeedReader) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.end(GONE_REASON)
