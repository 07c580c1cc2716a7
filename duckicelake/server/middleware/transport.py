"""Undecoded paths, HTTPS only, bodies unzipped."""

import re
import zlib
from collections.abc import Awaitable
from typing import Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duckicelake.server.http.errors import build_error_response
from duckicelake.server.http.paths import EXEMPT_PATHS

_HOST_PATTERN: Final = re.compile(rb"[A-Za-z0-9.:\[\]-]+")
_GZIP_ENCODINGS: Final = frozenset({b"gzip", b"x-gzip"})
_IDENTITY_ENCODINGS: Final = frozenset({b"", b"identity"})
_PIECE_BYTES: Final = 1024 * 1024
_UNZIP_THREADS: Final = 2
"""That unpack at a time, apart from those that answer requests; the event loop does it only where it is soon done."""
_INLINE_BYTES: Final = 256
"""Bytes that unpack to 256 KiB at most."""
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS


class RawPathMiddleware:
    """ASGI middleware: routes and path parameters see the path undecoded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        raw = scope.get("raw_path")
        if raw is not None:
            scope["path"] = raw.decode("latin-1")
        return self._app(scope, receive, send)


class RequireHttpsMiddleware:
    """ASGI middleware: GET and HEAD over http are redirected to https, all else is refused. Probes may ask without."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["scheme"] == "https" or scope["path"] in EXEMPT_PATHS:
            await self._app(scope, receive, send)
            return
        await _build_https_refusal(scope)(scope, receive, send)


def _build_https_refusal(scope: Scope) -> ASGIApp:
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    if scope["method"] in {"GET", "HEAD"} and _HOST_PATTERN.fullmatch(host):
        query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
        return RedirectResponse(f"https://{host.decode()}{scope['path']}{query}", 308)
    message = (
        "This server is spoken to over https alone; nothing was done, and what was sent went over the wire in the clear"
    )
    return build_error_response(403, "ForbiddenException", message)


class UnzipMiddleware:
    """ASGI middleware: reading a body of any other Content-Encoding raises HTTP 415, of a broken gzip HTTP 400.

    It hands on small pieces, so that what is around the app can stop one that grows too large.
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
