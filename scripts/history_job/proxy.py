"""An HTTP proxy that loses, cuts, doubles and delays on its way, as a plan tells it for each request."""

import http.client
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import sleep
from typing import Final
from urllib.parse import urlsplit

_OF_ONE_CONNECTION: Final = {"connection", "transfer-encoding", "keep-alive"}
_PATIENCE_SECONDS: Final = 60


class Spoil(StrEnum):
    """What may happen to one request."""

    NEVER_SENT = "request lost"
    HALF_SENT = "request cut"
    HUNG_UP = "client hung up before the answer"
    LOST = "answer lost"
    CUT = "answer cut"
    TWICE = "request doubled"
    LATE = "request delayed"
    LATE_ANSWER = "answer delayed"
    UNAVAILABLE = "503 in between"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Fate:
    """None: the request is passed on as it is."""

    spoil: Spoil | None = None
    seconds: float = 0
    """Of delay, or between the two of a doubled request."""


Plan = Callable[[Request], Fate]
_Answer = tuple[int, Sequence[tuple[str, str]], bytes]


class Proxy(ThreadingHTTPServer):
    """`target` may change while it runs: the server comes back at another port."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, plan: Plan, target: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.plan = plan
        self.spoilt: Counter[Spoil] = Counter()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that have hung up."""


@contextmanager
def running(proxy: Proxy) -> Iterator[Proxy]:
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), name="proxy")
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Proxy

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_CONNECTION}
        request = Request(self.command, self.path, headers, body)
        fate = self.server.plan(request)
        if fate.spoil is not None:
            self.server.spoilt[fate.spoil] += 1
        self.close_connection = True
        try:
            answer = self._fetch(request, fate)
        except (OSError, http.client.HTTPException):  # the server is dead, or dies
            answer = None
        if answer is None or fate.spoil is Spoil.LOST:
            self._reset()
        else:
            self._answer(answer, is_cut=fate.spoil is Spoil.CUT)

    def _fetch(self, request: Request, fate: Fate) -> _Answer | None:
        """The server's answer; None if the client gets none."""
        target = urlsplit(self.server.target).netloc
        match fate.spoil:
            case Spoil.NEVER_SENT:
                return None
            case Spoil.UNAVAILABLE:
                return 503, [("Retry-After", "0")], b""
            case Spoil.HALF_SENT | Spoil.HUNG_UP:
                _send_and_hang_up(target, request, fate)
                return None
            case Spoil.TWICE:
                threading.Thread(target=_send_later, args=(target, request, fate.seconds), daemon=True).start()
            case Spoil.LATE:
                sleep(fate.seconds)
        answer = _send(target, request)
        if fate.spoil is Spoil.LATE_ANSWER:
            sleep(fate.seconds)
        return answer

    def _answer(self, answer: _Answer, *, is_cut: bool) -> None:
        status, headers, body = answer
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in {*_OF_ONE_CONNECTION, "content-length"}:
                self.send_header(name, value)
        has_length = self.command != "HEAD" and status not in (204, 304)
        length = [value for name, value in headers if name.lower() == "content-length"]
        if has_length or length:
            self.send_header("Content-Length", str(len(body)) if has_length else length[0])
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if is_cut else body)
        if is_cut:
            self.wfile.flush()
            self._reset()

    def _reset(self) -> None:
        """End the connection as a crash does, not as an answer does."""
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RD)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = forward  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def _send(target: str, request: Request) -> _Answer:
    connection = http.client.HTTPConnection(target, timeout=_PATIENCE_SECONDS)
    try:
        _put(connection, request, len(request.body))
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


def _put(connection: http.client.HTTPConnection, request: Request, length: int) -> None:
    """The request with its own headers, `Host` among them, which S3 signs; and so much of its body."""
    connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
    for name, value in request.headers.items():
        connection.putheader(name, value)
    connection.endheaders(request.body[:length] or None)


def _send_later(target: str, request: Request, seconds: float) -> None:
    sleep(seconds)
    with suppress(OSError, http.client.HTTPException):
        _send(target, request)


def _send_and_hang_up(target: str, request: Request, fate: Fate) -> None:
    is_cut = fate.spoil is Spoil.HALF_SENT
    connection = http.client.HTTPConnection(target, timeout=_PATIENCE_SECONDS)
    try:
        _put(connection, request, len(request.body) // 2 if is_cut else len(request.body))
        sleep(fate.seconds)
    finally:
        connection.close()
