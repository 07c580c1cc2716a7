"""The connection that a writer keeps: anew where it is gone, and by the proxy that the environment names."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Semaphore, Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from duckicelake.client.batch import Batching
from duckicelake.client.writer import Writer
from duckicelake.errors import BadCredentialsError, InvalidCatalogUriError
from duckicelake.rest.connection import Connection
from duckicelake.rest.http import HttpConnection
from tests.client.conftest import LiveLake


@contextmanager
def proxy() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """Its address, and what it was asked for by whom."""
    asked: list[tuple[str, str | None]] = []

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            asked.append((self.path, self.headers["Proxy-Authorization"]))
            server, body = urlsplit(self.path), self.rfile.read(int(self.headers.get("Content-Length", 0)))
            behind = HTTPConnection(server.netloc)
            behind.request(self.command, f"{server.path}?{server.query}", body, dict(self.headers.items()))
            answer = behind.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            behind.close()

        def log_message(self, *_: object) -> None:
            pass

    with served(Proxy) as server:
        yield f"127.0.0.1:{server.server_port}", asked


class Server(ThreadingHTTPServer):
    """One that tells of each connection that it has closed."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.closed = Semaphore(0)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.closed.release()


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[Server]:
    with Server(handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_proxy_of_the_environment_is_asked(live: LiveLake, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy() as (address, asked):
        monkeypatch.setenv("http_proxy", f"http://me:p%40ss@{address}")
        monkeypatch.setenv("no_proxy", "")
        with Writer(live.table, live.connection, Batching(max_rows=1)) as writer:
            writer.append([{"id": 1}, {"id": 2}])
    assert live.ids() == [1, 2]
    posts = [each for each in asked if each[0].endswith("/rows")]
    known = f"Basic {b64encode(b'me:p@ss').decode()}"
    assert [(uri.startswith(f"{live.connection.uri}/v1/"), by) for uri, by in posts] == [(True, known)] * 2


def test_connection_that_the_server_has_closed_is_made_anew_before_it_is_used() -> None:
    connections: list[object] = []

    class Hasty(BaseHTTPRequestHandler):
        """Closes each connection after its first answer, without a word."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            connections.append(self.client_address)
            self.send_response(204)
            self.end_headers()
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with served(Hasty) as server, closing(HttpConnection(f"http://127.0.0.1:{server.server_port}")) as http:
        for _ in range(3):
            assert http.ask("GET", "/", {}, None).status == 204
            assert server.closed.acquire(timeout=30)
    assert len(set(connections)) == 3


@pytest.mark.parametrize("token", ["a\r\nX-Other: b", "ä"])
def test_token_that_no_header_may_have_is_reported(live: LiveLake, token: str) -> None:
    with (
        closing(HttpConnection(live.connection.uri)) as http,
        pytest.raises(BadCredentialsError, match="the token has letters"),
    ):
        http.ask("GET", "/v1/config", {"Authorization": f"Bearer {token}"}, None)


def test_uri_that_names_no_port_is_reported() -> None:
    with pytest.raises(InvalidCatalogUriError, match="Invalid catalog URI"):
        HttpConnection(Connection("http://127.0.0.1:port").uri).ask("GET", "/", {}, None)
