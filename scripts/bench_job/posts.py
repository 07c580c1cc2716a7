"""Clients that post batches of rows and do nothing else, so that it is the server that is measured, as with `wrk`.

Each has a kept connection and sends its next batch once the last one is answered. One thread serves all of them: their
load takes little of the processors that the server runs on. Each request has an Idempotency-Key, each answer is read.
"""

import socket
from collections.abc import Iterator, Mapping, Sequence
from selectors import EVENT_READ, DefaultSelector
from typing import Final
from urllib.parse import urlsplit

import orjson

from duckicelake.rest.http import create_request_key

_PIECE: Final = 1 << 16


def post(uri: str, path: str, batches: Sequence[bytes], clients: int, headers: Mapping[str, str] | None = None) -> None:
    """Post each batch once, those of one client one after the other; RuntimeError if one isn't answered as it must."""
    with DefaultSelector() as selector:
        for first in range(clients):
            _Client(selector, uri, path, batches[first::clients], headers or {}).send()
        while selector.get_map():
            for key, _ in selector.select():
                key.data.receive()


class _Client:
    """One connection, which leaves the selector after its last answer."""

    def __init__(
        self, selector: DefaultSelector, uri: str, path: str, batches: Sequence[bytes], headers: Mapping[str, str]
    ) -> None:
        address = urlsplit(uri)
        self._socket = socket.create_connection((address.hostname or "", address.port or 80))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests: Iterator[bytes] = (_request(path, batch, headers) for batch in batches)
        self._answer = b""
        self._selector = selector
        selector.register(self._socket, EVENT_READ, self)

    def send(self) -> None:
        """Send the next request, if there is one."""
        request = next(self._requests, None)
        if request is None:
            self._selector.unregister(self._socket)
            self._socket.close()
        else:
            self._answer = b""
            self._socket.sendall(request)

    def receive(self) -> None:
        """Take what has come of the answer; after its end send the next request."""
        piece = self._socket.recv(_PIECE)
        self._answer += piece
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not piece:
            raise RuntimeError(f"the server closed the connection after {self._answer!r}")
        if end and len(body) == _length(head):
            if not head.startswith(b"HTTP/1.1 200 ") or not orjson.loads(body)["snapshot-id"]:
                raise RuntimeError(f"a batch wasn't taken: {self._answer!r}")
            self.send()


def _request(path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Idempotency-Key: {create_request_key()}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _length(head: bytes) -> int:
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    return next(int(value) for name, _, value in lines if name.lower() == b"content-length")
