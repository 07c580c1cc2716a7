"""Limit the size, time and memory of request bodies, and unpack them."""

import asyncio
import zlib
from typing import Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duckicelake.server.http.scope import PUBLIC_BODY_PATHS

SMALL_BODY_BYTES: Final = 64 * 1024
"""Bytes of a body that are always taken: small requests are answered while large ones fill the budget."""
_PUBLIC_BODY_SECONDS: Final = 5.0
"""Seconds in which a body without a login must arrive: a form of a few hundred bytes."""
_GZIP_ENCODINGS: Final = frozenset({b"gzip", b"x-gzip"})
_IDENTITY_ENCODINGS: Final = frozenset({b"", b"identity"})
_PIECE_BYTES: Final = 1024 * 1024
_UNZIP_THREADS: Final = 2
"""That unpack at a time, apart from those that answer requests; the event loop does it only where it is soon done."""
_INLINE_BYTES: Final = 256
"""Bytes that unpack to 256 KiB at most."""
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS


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


class UnzipMiddleware:
    """Unpack gzip in small pieces, so that a limit can stop a body that grows too large.

    A body of any other Content-Encoding raises HTTP 415 when it is read, a broken gzip HTTP 400.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._limiter = CapacityLimiter(_UNZIP_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        encoding = _read_encoding(scope) if scope["type"] == "http" else b""
        if encoding in _GZIP_ENCODINGS:
            receive = _GzipBody(receive, self._limiter).receive
        elif encoding not in _IDENTITY_ENCODINGS:
            receive = _build_refusal(encoding)
        await self._app(scope, receive, send)


def _read_encoding(scope: Scope) -> bytes:
    return b",".join(value for name, value in scope["headers"] if name == b"content-encoding").strip().lower()


def _build_refusal(encoding: bytes) -> Receive:
    async def refuse() -> Message:
        name = encoding.decode("latin-1")
        detail = f"Content-Encoding {name} isn't read by this server: send the body with gzip, or without encoding"
        raise HTTPException(415, detail, {"Accept-Encoding": "gzip"})

    return refuse


class _GzipBody:
    """Receives in another's place; a body may be several gzips after each other (RFC 1952)."""

    def __init__(self, receive: Receive, limiter: CapacityLimiter) -> None:
        self._receive = receive
        self._limiter = limiter
        self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        self._left = b""
        self._may_hold_more = False
        self._is_sent = self._is_over = False

    async def receive(self) -> Message:
        if self._is_over:
            return await self._receive()
        while not (piece := await self._next_piece()) and not self._is_sent:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            self._left += message.get("body", b"")
            self._is_sent = not message.get("more_body", False)
        self._is_over = not piece
        if self._is_over and not self._member.eof:
            raise _build_gzip_error("it ends too early")
        return {"type": "http.request", "body": piece, "more_body": not self._is_over}

    async def _next_piece(self) -> bytes:
        """Unpack the next piece without blocking the event loop."""
        if len(self._left) <= _INLINE_BYTES and not self._may_hold_more:
            return self._piece()
        return await run_sync(self._piece, limiter=self._limiter)

    def _piece(self) -> bytes:
        """Find what is next, if enough has arrived."""
        while self._left or self._may_hold_more:
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
            try:
                piece = self._member.decompress(self._left, _PIECE_BYTES)
            except zlib.error as error:
                raise _build_gzip_error(str(error)) from None
            self._left = self._member.unconsumed_tail or self._member.unused_data
            self._may_hold_more = len(piece) == _PIECE_BYTES and not self._member.eof
            if piece:
                return piece
        return b""


def _build_gzip_error(why: str) -> HTTPException:
    return HTTPException(400, f"The body is no gzip, though its Content-Encoding says so: {why}")
