"""A receiver of events that fails in every way: a real HTTP server, which behaves as a test tells it to."""

import gzip
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any, Final

Json = dict[str, Any]
TIMEOUT: Final = 120.0
"""What a busy machine may take for anything."""


@dataclass(frozen=True, slots=True)
class Answer:
    """status: None sends nothing. hang: seconds before it, too many; delay: a few. raw: the very bytes to send instead.

    reset: end the connection with a reset.
    """

    status: int | None = 201
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    hang: float = 0.0
    delay: float = 0.0
    raw: bytes | None = None
    reset: bool = False

    @property
    def takes(self) -> bool:
        """Whether the client learns soon that the receiver has the event."""
        fails = self.status is None or self.raw is not None or self.reset or self.hang
        return not fails and self.status in range(200, 300)


TAKEN: Final = Answer()
Behaviour = Callable[[Json], Answer]


def always(answer: Answer) -> Behaviour:
    return lambda _: answer


class Receiver:
    """`tries` are all requests; `taken` the events that were answered with 2xx."""

    def __init__(self) -> None:
        self.uri = ""
        self.behaviour: Behaviour = always(TAKEN)
        self.tries: list[tuple[float, Json]] = []
        self.taken: list[Json] = []
        self.paths: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.bodies: list[bytes] = []
        self.released = threading.Event()
        self._changed = threading.Condition()

    def first(self, *answers: Answer) -> None:
        """Behave so for the next requests, and well from then on."""
        left = list(answers)
        self.behaviour = lambda _: left.pop(0) if left else TAKEN

    def numbers(self) -> list[int]:
        """Which events arrived, by `numbered`."""
        with self._changed:
            return [number_of(event) for event in self.taken]

    def until(self, is_so: Callable[[], bool], seconds: float = TIMEOUT) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, seconds), (len(self.tries), len(self.taken))

    def until_taken(self, count: int, seconds: float = TIMEOUT) -> None:
        self.until(lambda: len(self.taken) >= count, seconds)

    def heard(self, path: str, headers: Mapping[str, str], event: Json) -> Answer:
        with self._changed:
            self.tries.append((time.monotonic(), event))
            self.paths.append(path)
            self.headers.append(headers)
            answer = self.behaviour(event)
            if answer.takes:
                self.taken.append(event)
            self._changed.notify_all()
        return answer


def number_of(event: Json) -> int:
    return int(event["run"]["runId"].rpartition("-")[2], 16)


@contextmanager
def receiving(tls: SSLContext | None = None, port: int = 0) -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            data = gzip.decompress(data) if self.headers["Content-Encoding"] == "gzip" else data
            receiver.bodies.append(data)
            answer = receiver.heard(self.path, dict(self.headers), json.loads(data))
            if answer.hang or answer.delay:
                receiver.released.wait(answer.hang or answer.delay)
            if answer.reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if answer.raw is not None:
                self.wfile.write(answer.raw)
            if answer.reset or answer.raw is not None or answer.status is None:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST  # noqa: N815 - http.server's name

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: Any) -> None:
            """Clients that don't wait any longer are expected here."""

    with Server(("127.0.0.1", port), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        receiver.uri = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        try:
            yield receiver
        finally:
            receiver.released.set()
            server.shutdown()
            thread.join()
