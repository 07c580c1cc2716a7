"""Servers that don't answer, redirect, close connections or answer too much."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from duckicelake.errors import CatalogUnreachableError
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from duckicelake.rest.http import HttpConnection, NoAnswerError, send_request


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_proxy_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv(f"{scheme}_proxy", "http://me:secret@127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(
        CatalogUnreachableError, match=rf"^{scheme}://lake\.test:8181 doesn't answer by the proxy 127\.0\.0\.1:1 \("
    ):
        send_request("GET", f"{scheme}://lake.test:8181/v1/config")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_proxy_that_wants_a_login_is_named(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    with serving(lambda handler: say(handler, b"<h1>Log in</h1>", 407)) as (proxy, _):
        monkeypatch.setenv(f"{scheme}_proxy", proxy)
        monkeypatch.setenv("no_proxy", "")
        address = proxy.removeprefix("http://")
        with pytest.raises(
            CatalogUnreachableError, match=rf"by the proxy {address} \(it wants a login: name it by http"
        ):
            send_request("GET", f"{scheme}://lake.test:8181/v1/config")


def test_server_that_does_not_answer_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(CatalogUnreachableError, match=r"^http://127\.0\.0\.1:1 doesn't answer \("):
        send_request("GET", "http://127.0.0.1:1/v1/config")


Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A server's URI, and what it was asked for, with which token."""
    asked: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            answer(self)

        do_POST = do_CONNECT = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def say(handler: BaseHTTPRequestHandler, body: bytes = b"{}", status: int = 200, location: str | None = None) -> None:
    handler.send_response(status)
    if location is not None:
        handler.send_header("Location", location)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def test_redirect_within_the_server_is_followed_with_the_token() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        say(handler, b'{"x": 1}') if handler.path == "/new" else say(handler, b"", 307, "/new")

    with serving(answer) as (uri, asked):
        assert send_request("GET", f"{uri}/old", token="t").body == {"x": 1}
        assert asked == [("/old", "Bearer t"), ("/new", "Bearer t")]
        assert send_request("POST", f"{uri}/old", body={}).status == 307


def test_redirect_to_another_server_is_not_followed() -> None:
    with (
        serving(say) as (other, asked_of_other),
        serving(lambda handler: say(handler, b"", 302, f"{other}/v1/config")) as (uri, asked),
        pytest.raises(CatalogUnreachableError, match=r"is redirected \(302\): give the URI that it leads to"),
    ):
        CatalogClient(Connection(uri, token="geheim")).config()
    assert asked == [("/v1/config", "Bearer geheim")]
    assert asked_of_other == []


def test_redirects_in_a_circle_end() -> None:
    with serving(lambda handler: say(handler, b"", 301, handler.path)) as (uri, asked):
        assert send_request("GET", f"{uri}/x").status == 301
    assert len(asked) == 4


def test_kept_connection_that_breaks_is_replaced() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if asked.count(asked[-1]) == 2:  # it takes the second request, and says nothing
            handler.close_connection = True
        else:
            say(handler)

    with serving(answer) as (uri, asked):
        client = CatalogClient(Connection(uri))
        assert (client.get("/x"), client.get("/x")) == ({}, {})
        assert len(asked) == 3
        with closing(HttpConnection(uri)) as http:
            http.ask("GET", "/y", {})
            with pytest.raises(NoAnswerError, match="doesn't answer"):
                http.ask("GET", "/y", {})


def test_longer_answer_than_wanted_is_refused() -> None:
    with serving(lambda handler: say(handler, b"x" * 11)) as (uri, _), closing(HttpConnection(uri)) as http:
        assert http.ask("GET", "/", {}, most_bytes=11).body == b"x" * 11
        with pytest.raises(NoAnswerError, match="more than 10 bytes"):
            http.ask("GET", "/", {}, most_bytes=10)
