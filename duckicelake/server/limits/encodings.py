"""Request bodies that were sent with gzip, as OpenLineage's clients and log shippers can: read as what they were."""

import zlib
from typing import Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_GZIP: Final = frozenset({b"gzip", b"x-gzip"})
_AS_IT_IS: Final = frozenset({b"", b"identity"})
_PIECE: Final = 1024 * 1024
_THREADS: Final = 2
"""That unpack at a time, apart from those that answer requests; the event loop does it only where it is soon done."""
_SOON: Final = 256
"""Bytes that unpack to 256 KiB at most."""
_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS


class Unzipped:
    """ASGI middleware: reading a body of any other Content-Encoding raises HTTP 415, of a broken gzip HTTP 400.

    It hands on small pieces, so that what is around the app can stop one that grows too large.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._limiter = CapacityLimiter(_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        encoding = _encoding(scope) if scope["type"] == "http" else b""
        if encoding in _GZIP:
            receive = _Unzipping(receive, self._limiter).receive
        elif encoding not in _AS_IT_IS:
            receive = _refusing(encoding)
        await self._app(scope, receive, send)


def _encoding(scope: Scope) -> bytes:
    return b",".join(value for name, value in scope["headers"] if name == b"content-encoding").strip().lower()


def _refusing(encoding: bytes) -> Receive:
    async def refuse() -> Message:
        told = encoding.decode("latin-1")
        detail = f"Content-Encoding {told} isn't read by this server: send the body with gzip, or without encoding"
        raise HTTPException(415, detail, {"Accept-Encoding": "gzip"})

    return refuse


class _Unzipping:
    """Receives in another's place; a body may be several gzips after each other (RFC 1952)."""

    def __init__(self, receive: Receive, limiter: CapacityLimiter) -> None:
        self._receive = receive
        self._limiter = limiter
        self._member = zlib.decompressobj(_GZIP_FORMAT)
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
            raise _broken("it ends too early")
        return {"type": "http.request", "body": piece, "more_body": not self._is_over}

    async def _next_piece(self) -> bytes:
        """As `_piece`; the event loop goes on meanwhile."""
        if len(self._left) <= _SOON and not self._may_hold_more:
            return self._piece()
        return await run_sync(self._piece, limiter=self._limiter)

    def _piece(self) -> bytes:
        """What is next, if enough has arrived to tell."""
        while self._left or self._may_hold_more:
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP_FORMAT)
            try:
                piece = self._member.decompress(self._left, _PIECE)
            except zlib.error as error:
                raise _broken(str(error)) from None
            self._left = self._member.unconsumed_tail or self._member.unused_data
            self._may_hold_more = len(piece) == _PIECE and not self._member.eof
            if piece:
                return piece
        return b""


def _broken(why: str) -> HTTPException:
    return HTTPException(400, f"The body is no gzip, though its Content-Encoding says so: {why}")
