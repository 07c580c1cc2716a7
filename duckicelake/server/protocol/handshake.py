"""Handshakes of TLS: they count as connections of clients from their first packet on, and end in time."""

import asyncio
from functools import partial
from typing import Any, cast

from uvicorn.server import ServerState

from duckicelake.server.protocol.http import CachingHttpProtocol, EdgeConfig


class HandshakeProtocol(asyncio.Protocol):
    """Do the handshake of a new connection, and hand the connection to the protocol for requests.

    asyncio's own servers do the handshake before they call a protocol, so that endless ones could not be counted. Bytes
    that a client sends right behind its handshake are kept until the hand-over.
    """

    def __init__(
        self,
        config: EdgeConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._config = config
        self._connections: set[Any] = server_state.connections
        self._loop = _loop or asyncio.get_running_loop()
        self._make_protocol = partial(CachingHttpProtocol, config, server_state, app_state, _loop)
        self._address = ""
        self._received = b""
        self._is_lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        if self._config.clients.add(self, self._address):
            self._connections.add(self)
            self._task = self._loop.create_task(self._shake_hands())
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data

    def eof_received(self) -> None:
        """Close the connection; no client awaits a response."""
        self._is_lost = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._is_lost = True

    def is_waiting(self) -> bool:
        """Return True: no request has begun."""
        return True

    def close_idle(self) -> None:
        """Abort the handshake, as `Closable` says."""
        self._transport.abort()

    def shutdown(self) -> None:
        """Abort the handshake when the server ends."""
        self._transport.abort()

    async def _shake_hands(self) -> None:
        context = self._config.handshake_context
        assert context is not None
        seconds = self._config.receive_seconds
        starting = self._loop.start_tls(self._transport, self, context, server_side=True, ssl_handshake_timeout=seconds)
        task = self._loop.create_task(starting)
        # The task begins, then its call of connection_made, then this: with no look at sockets in between the last two.
        self._loop.call_soon(self._loop.call_soon, self._hand_over_early)
        try:
            encrypted = await task
        except OSError:  # of TLS, too: the client went, sent something else or took too long; the transport is closed
            encrypted = None
        finally:
            self._config.clients.remove(self, self._address)
            self._connections.discard(self)
        if encrypted is not None and not self._is_lost and not self._transport.is_closing():
            self._hand_over(encrypted)

    def _hand_over_early(self) -> None:
        """Give the handshake what arrived before it began: uvloop reads as soon as a connection is made."""
        early, self._received = self._received, b""
        protocol = self._transport.get_protocol()
        if protocol is self:
            return
        shaking = cast("asyncio.BufferedProtocol", protocol)  # uvloop's isn't one by its class
        while early and not self._transport.is_closing():
            buffer = memoryview(shaking.get_buffer(len(early)))
            size = min(len(early), len(buffer))
            buffer[:size] = early[:size]
            shaking.buffer_updated(size)
            early = early[size:]

    def _hand_over(self, transport: asyncio.Transport) -> None:
        protocol = self._make_protocol()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._received and not transport.is_closing():
            protocol.data_received(self._received)


class HandshakeConfig(EdgeConfig):
    """Of a server that speaks TLS: uvicorn's sockets are plain, and `HandshakeProtocol` encrypts them."""

    def load(self) -> None:
        super().load()
        self.handshake_context, self.ssl = self.ssl, None
