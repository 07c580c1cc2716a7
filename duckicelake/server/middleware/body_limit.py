"""Limit the size, time and memory of request bodies, and read them for endpoints."""

import asyncio
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duckicelake.server.http.paths import PUBLIC_BODY_PATHS

SMALL_BODY_BYTES: Final = 64 * 1024
"""Bytes of a body that are always taken: small requests are answered while large ones fill the budget."""
_PUBLIC_BODY_SECONDS: Final = 5.0
"""Seconds in which a body without a login must arrive: a form of a few hundred bytes."""


class BodyBudget:
    """Count the bytes of bodies, unpacked, of requests under way; for one event loop."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self, size: int, *, held: int) -> None:
        """Take so many bytes more for a request that has taken `held`; HTTP 429 where they would be too many."""
        if self.used + size > self.limit and held + size > SMALL_BODY_BYTES:
            message = (
                f"The bodies of requests under way fill the {self.limit} bytes that DUCKICELAKE_MAX_BODIES_BYTES gives "
                "them; nothing was done, try again"
            )
            raise HTTPException(429, message, {"Retry-After": "1", "Connection": "close"})
        self.used += size

    def leave(self, size: int) -> None:
        """Return the bytes of a request that has ended."""
        self.used -= size


class BodyLimitMiddleware:
    """Raise HTTP 413 when a body larger than `limit` bytes is read, announced or streamed alike.

    One that takes longer than `seconds` to arrive raises HTTP 408, one that is too much beside the others HTTP 429.
    """

    def __init__(
        self, app: ASGIApp, limit: int, seconds: float | None = None, budget: BodyBudget | None = None
    ) -> None:
        self._app = app
        self._limit = limit
        self._seconds = seconds
        self._budget = budget or BodyBudget(limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seconds = self._seconds
        if seconds is not None and scope["path"] in PUBLIC_BODY_PATHS:
            seconds = min(seconds, _PUBLIC_BODY_SECONDS)
        body = _LimitedBody(receive, self._limit, _read_content_length(scope), seconds, self._budget)
        try:
            await self._app(scope, body.receive, send)
        finally:
            self._budget.leave(body.received)


class _LimitedBody:
    """Receive a body within its limits of bytes and seconds."""

    def __init__(self, receive: Receive, limit: int, announced: int, seconds: float | None, budget: BodyBudget) -> None:
        self._receive = receive
        self._limit = limit
        self._announced = announced
        self._seconds = seconds
        self._budget = budget
        self._deadline: float | None = None
        self._is_complete = False
        self.received = 0

    async def receive(self) -> Message:
        if self._announced > self._limit:
            raise self._too_large()
        if self._deadline is None and self._seconds is not None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
        if self._is_complete:
            return await self._receive()
        message = await _receive_in_time(self._receive, self._deadline, self._seconds)
        self._is_complete = not message.get("more_body", False)
        self._take(len(message.get("body", b"")))
        return message

    def _take(self, size: int) -> None:
        if self.received + size > self._limit:
            raise self._too_large()
        self._budget.take(size, held=self.received)
        self.received += size

    def _too_large(self) -> HTTPException:
        detail = f"The body is larger than {self._limit} bytes, which is what DUCKICELAKE_MAX_BODY_BYTES allows"
        return HTTPException(413, detail, {"Connection": "close"})


async def _receive_in_time(receive: Receive, deadline: float | None, seconds: float | None) -> Message:
    try:
        async with asyncio.timeout_at(deadline):
            return await receive()
    except TimeoutError:
        detail = f"The body didn't arrive within {seconds:g} seconds; nothing was done"
        raise HTTPException(408, detail, {"Connection": "close"}) from None


def _read_content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
