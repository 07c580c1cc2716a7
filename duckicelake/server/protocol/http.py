"""HTTP/1.1 for uvicorn, with timeouts, limits and cached responses."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, Protocol, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from duckicelake.server.http.headers import RawHeader
from duckicelake.server.http.scope import LEARN_KEY, end_response
from duckicelake.server.protocol.connections import DRAIN, ConnectionTable

_MAX_HEADER_BYTES = 64 * 1024
_NO_ROOM_BODY = (
    b'{"error":{"message":"This worker has no room for another connection; nothing was done, try again",'
    b'"type":"ServiceUnavailableException","code":503}}'
)
_NO_ROOM_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_NO_ROOM_BODY), _NO_ROOM_BODY)
)
_CHUNK_FRAME_BYTES = 16
"""Bytes around each piece of a body that is sent in pieces, at most."""
_MAX_REQUEST_BYTES: Final = 16 * 1024
"""Bytes of a request above which it is not cached."""
_CACHEABLE_METHODS: Final = (b"GET ", b"HEAD ")
"""First bytes of requests whose responses may be replayed."""
_COMING_REQUEST_SECONDS: Final = 0.5
"""Seconds after a drain in which a request may come over a connection that has had none."""


class ReplayedResponse(NamedTuple):
    """A response over HTTP/1.1. headers: without those of the server and the request's id."""

    status: int
    headers: tuple[RawHeader, ...]
    request_id: str
    pieces: tuple[bytes, ...]


ScopeKeys = Mapping[str, object]
ReplyCallback = Callable[[ReplayedResponse | ScopeKeys], None]
"""Called once, after `replay` has returned: with the response, or with keys for the ASGI scope of a request that the
app must answer.
"""


class ReplayCache(Protocol):
    """Knows requests by their bytes, and answers those that come again."""

    def replay(self, client: tuple[str, int], request: bytes, reply: ReplyCallback) -> bool:
        """Start to answer a request; return whether `reply` will be called. client: address and port."""
        ...

    def learn(self, address: str, request: bytes, handler: Callable[[int, ReplyCallback], bool]) -> None:
        """Keep what answers the request when it comes again. The handler gets the port, and returns as `replay`."""
        ...


class EdgeConfig(Config):
    """The configuration of each worker process.

    Attributes:
        receive_seconds: Seconds within which a request's headers must arrive, and more of a response must be taken.
        handshake_context: Encrypts connections; None for plain HTTP.

    """

    receive_seconds: float = 60.0
    responses: ReplayCache
    clients: ConnectionTable
    handshake_context: ssl.SSLContext | None = None


class _RequestCycle(RequestResponseCycle):
    """A request and its response. Uvicorn marks only a connection's last request as disconnected; this marks all."""

    async def send(self, message: Any) -> None:
        if self.transport.is_closing():
            self.disconnected = True
        await super().send(message)


class TimeoutHttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 that closes connections whose client is too slow.

    It closes a connection when a request doesn't come to its end in time, when nothing of a waiting response is taken
    in time, and when headers or trailers are endless: the parser itself keeps any number of them.
    """

    config: EdgeConfig
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _unread = 0
    """Bytes that belong to no body, since headers last came to their end."""
    _is_in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.config.clients.add(self, self._address()):
            self._start_timer()
        else:
            transport.write(_NO_ROOM_RESPONSE)
            transport.close()

    def is_waiting(self) -> bool:
        """Return whether the connection waits for a request, as `Closable` says."""
        return self._is_idle()

    def close_idle(self) -> None:
        """Close the connection after the rest of its last response."""
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        self._unread = 0 if self.cycle is not before else max(0, self._unread + len(data))
        if self._unread > _MAX_HEADER_BYTES:
            self._refuse_headers()
        elif not self._is_owed_more():
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        super().on_headers_complete()
        # uvicorn makes it, and has begun no task of its yet.
        self.cycle.__class__ = _RequestCycle
        if DRAIN.is_running:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._unread -= len(body) + _CHUNK_FRAME_BYTES
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_body = False
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._start_write_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_write_timer()
        self.config.clients.remove(self, self._address())
        super().connection_lost(exc)

    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _is_owed_more(self) -> bool:
        """Return whether headers, or the rest of an unread body, are missing.

        `BodyLimitMiddleware` limits other bodies.
        """
        return self._is_idle() and (self._is_in_body or self._unread > 0)

    def _is_idle(self) -> bool:
        """Return whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _refuse_headers(self) -> None:
        if self._is_idle() and not self._is_in_body and not self.transport.is_closing():
            self.send_400_response(f"The headers are longer than {_MAX_HEADER_BYTES} bytes.")
        else:
            self.transport.abort()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._seconds(), self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_write_timer(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self._seconds(), self._abort_unless_less_than, left)

    def _abort_unless_less_than(self, left: int) -> None:
        if self.transport.get_write_buffer_size() < left:
            self._start_write_timer()
        else:
            self.transport.abort()  # close() would wait for what is not taken

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _seconds(self) -> float:
        return self.config.receive_seconds


class CachingHttpProtocol(TimeoutHttpProtocol):
    """Replay responses to requests that arrive whole, in one piece and one at a time; parse all others."""

    _begun = 0
    """Requests that the parser has seen the first byte of."""
    _is_between = True
    """Whether it has seen the last byte of all of them."""
    _replayed_request: bytes | None = None
    """The request whose response is being replayed."""
    _held = b""
    """Bytes that arrived meanwhile."""
    _is_ending = False

    def data_received(self, data: bytes) -> None:
        if self._replayed_request is not None:
            self._held += data
            self.flow.pause_reading()
        elif self._is_cacheable(data):
            self._receive(data)
        else:
            super().data_received(data)

    def _is_cacheable(self, data: bytes) -> bool:
        is_next = self._is_between and self._is_idle() and not self.flow.write_paused and not DRAIN.is_running
        return is_next and len(data) <= _MAX_REQUEST_BYTES and data.startswith(_CACHEABLE_METHODS)

    def is_waiting(self) -> bool:
        return self._replayed_request is None and super().is_waiting()

    def on_message_begin(self) -> None:
        self._begun += 1
        self._is_between = False
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._is_between = True
        super().on_message_complete()

    def shutdown(self) -> None:
        """Close the connection once nothing is under way; after a drain, once a request that is coming had its time.

        A proxy that has just connected is sending one, and couldn't send it to another server.
        """
        if DRAIN.is_running and self._has_one_coming():
            self.loop.call_later(_COMING_REQUEST_SECONDS, super().shutdown)
        elif self._replayed_request is None:
            super().shutdown()
            self._end_answer()
        self._is_ending = True

    def _has_one_coming(self) -> bool:
        """Return whether a request is the next to come: the connection's first, or one that has begun."""
        return self.is_waiting() and (self._begun == 0 or not self._is_between)

    def _end_answer(self) -> None:
        if not self._is_idle():
            end_response(self.cycle.scope["state"])

    def _receive(self, data: bytes) -> None:
        """Replay the response to a request that came before, or parse it."""
        if self.config.responses.replay(self.client or ("", 0), data, self._answer):
            self._replayed_request = data
            self._unset_keepalive_if_required()
            self._stop_timer()
        else:
            self._read(data, {})

    def _read(self, data: bytes, scope_keys: ScopeKeys) -> None:
        """Parse a request and start the app's task for it, with these keys in its scope."""
        begun = self._begun
        super().data_received(data)
        if self._begun == begun + 1 and self._is_between and self.cycle is not None and self.cycle.keep_alive:
            # Its task hasn't begun yet.
            learn = partial(self.config.responses.learn, self._address(), data)
            cast("dict[str, Any]", self.scope).update({LEARN_KEY: learn, **scope_keys})

    def _answer(self, answer: ReplayedResponse | ScopeKeys) -> None:
        """Send the response, or let the app answer; a `ReplyCallback`."""
        assert self._replayed_request is not None
        data, self._replayed_request = self._replayed_request, None
        if self.transport.is_closing():
            return
        if isinstance(answer, ReplayedResponse):
            self.transport.write(self._encode(answer))
            self.on_response_complete()
        else:
            self._read(data, answer)
        self._go_on()

    def _go_on(self) -> None:
        held, self._held = self._held, b""
        if self._is_ending:
            super().shutdown()
        elif held:
            self.flow.resume_reading()
            self.data_received(held)

    def _encode(self, answer: ReplayedResponse) -> bytes:
        head = _encode_head(answer.status, answer.headers)
        servers = [b"%b: %b\r\n" % header for header in self.server_state.default_headers]
        own = b"x-request-id: %b\r\n\r\n" % answer.request_id.encode()
        return b"".join((head, *servers, own, *answer.pieces))


@lru_cache(4096)
def _encode_head(status: int, headers: tuple[RawHeader, ...]) -> bytes:
    return b"".join((STATUS_LINE[status], *(b"%b: %b\r\n" % header for header in headers)))
