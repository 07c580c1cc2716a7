"""Clients that are slow, or never come to an end, on purpose or not: their connections are closed."""

import asyncio
import ssl
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from duckicelake.cli.service.repeats import Repeats
from duckicelake.server.limits.connections import Connections

_LONGEST_HEAD = 64 * 1024
_REFUSAL = (
    b'{"error":{"message":"This worker has no room for another connection; nothing was done, try again",'
    b'"type":"ServiceUnavailableException","code":503}}'
)
_NO_ROOM = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_REFUSAL), _REFUSAL)
)
_CHUNK_FRAME = 16
"""Bytes around each piece of a body that is sent in pieces, at most."""


class EdgeConfig(Config):
    """Travels to each worker process.

    receive_seconds: within which a request's headers must have arrived, and within which more of an answer is taken.
    handshake_context: with which connections are encrypted, if they are.
    """

    receive_seconds: float = 60.0
    repeats: Repeats
    clients: Connections
    handshake_context: ssl.SSLContext | None = None


class _Exchange(RequestResponseCycle):
    """A request and its answer. When a client goes, uvicorn tells only the last of its requests, not those answered."""

    async def send(self, message: Any) -> None:
        if self.transport.is_closing():
            self.disconnected = True
        await super().send(message)


class ImpatientProtocol(HttpToolsProtocol):
    """Closes connections on which a first request is awaited, or one has begun, and doesn't come to its end.

    So it does with those on which nothing of an answer that waits is taken for the same time, and with those that send
    endless headers or trailers: the parser itself keeps any number of them.
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
            transport.write(_NO_ROOM)
            transport.close()

    def is_waiting(self) -> bool:
        """As of `Closable`."""
        return self._is_idle()

    def close_idle(self) -> None:
        """As of `Closable`; what it hasn't taken of its last answer is still sent."""
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        self._unread = 0 if self.cycle is not before else max(0, self._unread + len(data))
        if self._unread > _LONGEST_HEAD:
            self._refuse_headers()
        elif not self._is_owed_more():
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        super().on_headers_complete()
        # uvicorn makes it, and has begun no task of its yet.
        self.cycle.__class__ = _Exchange

    def on_body(self, body: bytes) -> None:
        self._unread -= len(body) + _CHUNK_FRAME
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
        """Headers, or the rest of a body that nobody reads any more; bodies that are read have a limit of their own."""
        return self._is_idle() and (self._is_in_body or self._unread > 0)

    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _refuse_headers(self) -> None:
        if self._is_idle() and not self._is_in_body and not self.transport.is_closing():
            self.send_400_response(f"The headers are longer than {_LONGEST_HEAD} bytes.")
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
