"""A proxy on this machine for libraries that connect by themselves: each connection is checked by an OutboundGuard.

obstore and DuckDB follow redirects wherever these lead, and resolve a name again after it was checked. Through the
proxy they reach checked addresses alone. It is for this process, which has its password.
"""

import base64
import hmac
import os
import re
import secrets
import selectors
import socket
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import BoundedSemaphore, Thread
from typing import Any, Final, cast

from duckicelake.errors import RefusedAddressError
from duckicelake.rest.outbound import OutboundGuard

MAX_CONNECTIONS: Final = 1024
"""Connections at a time, each with a thread: as many as 16 stores have (`DUCKICELAKE_S3_MAX_CONNECTIONS`)."""
_MAX_LINGERING: Final = 128
"""Refused connections that stay open until others are refused."""
_MAX_HEAD_BYTES: Final = 65_536
_PIECE_BYTES: Final = 262_144
_CONNECT_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 300.0
_USER: Final = "duckicelake"
_HEAD: Final = re.compile(
    rb"(?P<method>[A-Z]+) (http://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s/:@\[\]]+)(:(?P<port>[0-9]{1,5}))?(?P<rest>/\S*)? "
    rb"HTTP/1\.[01]\r\n"
)
_OWN_HEADERS: Final = (b"proxy-authorization:", b"proxy-connection:", b"connection:")


@dataclass(frozen=True, slots=True)
class OutboundProxy:
    """A running proxy. address: `127.0.0.1:port`."""

    address: str
    user: str
    password: str

    @property
    def url(self) -> str:
        """The URL that libraries take, password included."""
        return f"http://{self.user}:{self.password}@{self.address}"


def find_proxy(guard: OutboundGuard) -> OutboundProxy:
    """Find this process's proxy of a guard; the first time it is started."""
    return _start(guard, os.getpid())


@cache
def _start(guard: OutboundGuard, _: int) -> OutboundProxy:
    password = secrets.token_hex(16)
    allowed = b"Basic " + base64.b64encode(f"{_USER}:{password}".encode())

    class Handler(_ProxyHandler):
        is_allowed = staticmethod(lambda shown: hmac.compare_digest(shown, allowed))
        outbound = guard

    server = _Server(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, name="outbound-proxy", daemon=True).start()
    return OutboundProxy(f"127.0.0.1:{server.server_address[1]}", _USER, password)


class _Server(ThreadingTCPServer):
    """Serves up to `MAX_CONNECTIONS` connections at a time, each in a thread."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseRequestHandler]) -> None:
        super().__init__(address, handler)
        self._free = BoundedSemaphore(MAX_CONNECTIONS)
        self._refused: deque[socket.socket] = deque()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection; refuse it if there are too many."""
        if not self._free.acquire(blocking=False):
            with suppress(OSError):
                _refuse(request, "503 Service Unavailable", f"The proxy has {MAX_CONNECTIONS} connections; try again")
            self._linger(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def _linger(self, connection: socket.socket) -> None:
        """Close a refused connection once its client has read the answer, which a reset would take from it.

        Closing a connection whose bytes weren't read resets it. So the last refused ones stay open, half closed.
        """
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        self._refused.append(connection)
        if len(self._refused) > _MAX_LINGERING:
            self.close_request(self._refused.popleft())

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: the library at the other end says what failed."""


class _ProxyHandler(BaseRequestHandler):
    """One connection of a library."""

    outbound: OutboundGuard

    @staticmethod
    def is_allowed(shown: bytes) -> bool:
        raise NotImplementedError

    def handle(self) -> None:
        client: socket.socket = self.request
        client.settimeout(_CONNECT_SECONDS)
        head, body = _read_head(client)
        asked = _HEAD.match(head)
        lines = head.split(b"\r\n")[1:]
        shown = next((line for line in lines if line.lower().startswith(_OWN_HEADERS[0])), b"")
        if asked is None:
            _refuse(client, "400 Bad Request", "Invalid request to a proxy")
        elif not self.is_allowed(shown.partition(b":")[2].strip()):
            _refuse(client, "407 Proxy Authentication Required", "Wrong password of the proxy")
        else:
            self._pass_on(client, asked, lines, body)

    def _pass_on(self, client: socket.socket, asked: re.Match[bytes], lines: list[bytes], body: bytes) -> None:
        is_tunnel = asked["method"] == b"CONNECT"
        port = int(asked["port"]) if asked["port"] else 80
        try:
            server = self.outbound.connect(asked["host"].decode("latin-1").strip("[]"), port, _CONNECT_SECONDS)
        except RefusedAddressError as error:
            _refuse(client, "403 Forbidden", str(error))
            return
        except (OSError, UnicodeError) as error:
            _refuse(client, "502 Bad Gateway", str(error))
            return
        with server:
            if is_tunnel:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                server.sendall(body)
            else:
                kept = [line for line in lines if line and not line.lower().startswith(_OWN_HEADERS)]
                first = asked["method"] + b" " + (asked["rest"] or b"/") + b" HTTP/1.1"
                server.sendall(b"\r\n".join([first, *kept, b"Connection: close", b"", b""]) + body)
            _relay(client, server)


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """Read a request's head, and what came behind it; nothing if it is too long or the connection ends."""
    read = b""
    while b"\r\n\r\n" not in read:
        piece = client.recv(_PIECE_BYTES) if len(read) < _MAX_HEAD_BYTES else b""
        if not piece:
            return b"", b""
        read += piece
    head, _, body = read.partition(b"\r\n\r\n")
    return head + b"\r\n", body


def _refuse(client: socket.socket, status: str, message: str) -> None:
    body = message.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    client.sendall(head.encode() + body)


def _relay(client: socket.socket, server: socket.socket) -> None:
    """Copy bytes in both directions until the server has closed, or nothing comes for too long."""
    others = {client: server, server: client}
    with selectors.DefaultSelector() as selector, suppress(OSError):
        for end in others:
            end.settimeout(_IDLE_SECONDS)
            selector.register(end, selectors.EVENT_READ)
        while ready := selector.select(_IDLE_SECONDS):
            for key, _ in ready:
                sender = cast("socket.socket", key.fileobj)
                piece = sender.recv(_PIECE_BYTES)
                if piece:
                    others[sender].sendall(piece)
                elif sender is server:
                    return
                else:
                    selector.unregister(sender)
                    server.shutdown(socket.SHUT_WR)
