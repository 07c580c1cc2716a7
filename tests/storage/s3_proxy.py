"""A proxy before a real S3 server that spoils some of its answers, as other stores and bad networks do.

And one that stands before all stores there are, for who asks it in their stead, and says yes to everything.
"""

import http.client
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

Spoil = Callable[["Request"], int | None]
BREAK_OFF = -1


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    number: int
    """How many of this method there were before, on any path."""


@dataclass(slots=True)
class Proxy:
    """`spoil` answers with a status of its own, BREAK_OFF, or None: let it through.

    Broken off is in the middle of an answer's body, or before an answer that has none.
    """

    endpoint: str
    spoil: Spoil = lambda _: None
    seen: Counter[str] = field(default_factory=Counter)


@contextmanager
def proxy_of(upstream: str) -> Iterator[Proxy]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    proxy = Proxy(f"http://127.0.0.1:{server.server_port}")
    server.proxy, server.upstream = proxy, urlsplit(upstream).netloc  # type: ignore[attr-defined]
    with _running(server):
        yield proxy


@contextmanager
def _running(server: ThreadingHTTPServer) -> Iterator[None]:
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def witness_of(certificate: Path, key: Path) -> Iterator[tuple[str, list[Request]]]:
    """A proxy's address, and what was sent through it, by whole URLs. It says to be whomever it is asked for."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Witness)
    seen: list[Request] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.seen, server.context = seen, context  # type: ignore[attr-defined]
    with _running(server):
        yield f"http://127.0.0.1:{server.server_port}", seen


class _Witness(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    tunnel = ""

    def do_CONNECT(self) -> None:
        self.send_response_only(200)
        self.end_headers()
        self.connection = self.server.context.wrap_socket(self.connection, server_side=True)  # type: ignore[attr-defined]
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)  # type: ignore[assignment]
        self.tunnel = f"https://{self.path.removesuffix(':443')}"
        self.close_connection = False

    def finish(self) -> None:
        super().finish()
        self.connection.close()

    def do_HEAD(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen: list[Request] = self.server.seen  # type: ignore[attr-defined]
        seen.append(Request(self.command, self.tunnel + self.path, headers, len(seen)))
        self.send_response_only(200)
        for name, value in {"Content-Length": "0", "Last-Modified": self.date_time_string()}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        proxy: Proxy = self.server.proxy  # type: ignore[attr-defined]
        is_chunked = self.headers.get("Transfer-Encoding") == "chunked"
        body = self._read_chunks() if is_chunked else self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, proxy.seen[self.command])
        proxy.seen[self.command] += 1
        spoilt = proxy.spoil(request)
        if spoilt is not None and spoilt != BREAK_OFF:
            self._answer(spoilt, [("Content-Length", "0"), ("ETag", '"spoilt"')], b"")
            return
        upstream = http.client.HTTPConnection(self.server.upstream)  # type: ignore[attr-defined]
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            upstream.putheader(name, value)
        upstream.endheaders(body)
        answer = upstream.getresponse()
        content = answer.read()
        self.close_connection = spoilt == BREAK_OFF
        if content or not self.close_connection:
            self._answer(answer.status, answer.getheaders(), content[: len(content) // 2] if spoilt else content)
        upstream.close()

    def _read_chunks(self) -> bytes:
        """Read a body in chunks, as PyArrow sends parts of files, and return it as it came."""
        found = []
        while not found or found[-1].strip() != b"0":
            if found:
                found.append(self.rfile.read(int(found[-1].split(b";")[0], 16) + 2))
            found.append(self.rfile.readline())
        while found[-1] != b"\r\n":
            found.append(self.rfile.readline())
        return b"".join(found)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        with suppress(ConnectionError):  # who asked waits no more
            self.end_headers()
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _pass_on  # noqa: N815

    def log_message(self, *_: object) -> None:
        return None
