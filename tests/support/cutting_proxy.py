"""A proxy between client and server that, for requests with an Idempotency-Key, loses the first answer to each key.

The server has answered in full by then, so the change is committed; the client sees its connection closed.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

import httpx

_OF_ONE_CONNECTION = {"connection", "content-length", "date", "host", "server", "transfer-encoding"}


class CuttingProxy(ThreadingHTTPServer):
    """`seen` counts requests by key; `lost` are the requests whose answers got lost, as `METHOD path`."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.client = httpx.Client(base_url=target, timeout=60)
        self.seen: Counter[str] = Counter()
        self.lost: list[str] = []

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def before(self, request: str) -> None:
        """Called with each request, as `METHOD path`, before it is passed on."""

    def shorten(self, request: str, content: bytes) -> bytes:  # noqa: ARG002
        """Return what is sent of an answer's body, after which the connection ends."""
        return content

    def loses(self, request: str, key: str | None) -> bool:
        if key is None:
            return False
        self.seen[key] += 1
        if self.seen[key] > 1:
            return False
        self.lost.append(request)
        return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CuttingProxy

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_CONNECTION}
        self.server.before(f"{self.command} {self.path}")
        answer = self.server.client.request(self.command, self.path, content=body, headers=headers)
        if self.server.loses(f"{self.command} {self.path}", self.headers.get("idempotency-key")):
            self.close_connection = True
            return
        self.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if name not in _OF_ONE_CONNECTION | {"content-encoding"}:
                self.send_header(name, value)
        content = b"" if self.command == "HEAD" else answer.content
        if answer.status_code not in (204, 304):
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        sent = self.server.shorten(f"{self.command} {self.path}", content)
        self.wfile.write(sent)
        self.close_connection |= len(sent) < len(content)

    do_GET = do_HEAD = do_POST = do_DELETE = forward  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


P = TypeVar("P", bound=CuttingProxy)


def cutting(target: str) -> AbstractContextManager[CuttingProxy]:
    """The proxy before the server at `target`."""
    return serving(CuttingProxy(target))


@contextmanager
def serving(proxy: P) -> Iterator[P]:
    """The proxy while the block runs."""
    with proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
            proxy.client.close()
