"""Libraries that connect by themselves reach checked addresses alone: at the first request, and at each redirect."""

import base64
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import duckdb
import pytest
from obstore.store import S3Store as ObstoreBucket

from duckicelake.errors import CatalogError
from duckicelake.rest import outbound_proxy
from duckicelake.rest.outbound import OutboundGuard
from duckicelake.rest.outbound_proxy import OutboundProxy, find_proxy
from duckicelake.storage.s3 import S3Options, S3Store
from tests.conftest import new_duckdb

LISTED = "127.0.0.1"
UNLISTED = "127.0.0.2"
BODY = b"a,b\n1,2\n"


@dataclass
class Site:
    """A web server that answers, or redirects to another one. asked: methods and paths."""

    address: str
    target: str | None = None
    asked: list[str] = field(default_factory=list)


def serve(stack: ExitStack, host: str) -> Site:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(f"{self.command} {self.path}")
            self.send_response(307 if site.target else 200)
            if site.target:
                self.send_header("Location", f"http://{site.target}{self.path}")
            self.send_header("Content-Length", str(len(BODY)))
            self.send_header("Last-Modified", "Wed, 21 Oct 2026 07:28:00 GMT")
            self.send_header("ETag", '"x"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(BODY)

        do_HEAD = do_GET  # noqa: N815
        do_PUT = do_GET  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = stack.enter_context(ThreadingHTTPServer((host, 0), Handler))
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    stack.callback(server.shutdown)
    site = Site(f"{host}:{server.server_port}")
    return site


@pytest.fixture
def sites() -> Iterator[tuple[Site, Site]]:
    """A server that requests may reach, and one that they may not."""
    with ExitStack() as stack:
        yield serve(stack, LISTED), serve(stack, UNLISTED)


@pytest.fixture(scope="module")
def proxy() -> OutboundProxy:
    return find_proxy(OutboundGuard.parse((LISTED,)))


def open_store(endpoint: str, proxy: OutboundProxy) -> S3Store:
    keys: Any = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    return S3Store(
        "s3://bucket/lake",
        S3Options(endpoint=f"http://{endpoint}", path_style=True, max_attempts=1, proxy=proxy.url, **keys),
    )


def test_store_reaches_a_listed_server(sites: tuple[Site, Site], proxy: OutboundProxy) -> None:
    good, _ = sites
    with closing(open_store(good.address, proxy)) as store:
        assert store.read("s3://bucket/lake/x") == BODY
        assert store.read("s3://bucket/lake/y z%") == BODY
    assert "GET /bucket/lake/x" in good.asked


@pytest.mark.parametrize("way", ["straight", "redirect"])
def test_store_does_not_reach_another_one(sites: tuple[Site, Site], proxy: OutboundProxy, way: str) -> None:
    good, bad = sites
    good.target = bad.address
    with closing(open_store(bad.address if way == "straight" else good.address, proxy)) as store:
        for ask in (store.read, store.size, lambda location: list(store.files_below(location))):
            with pytest.raises(CatalogError):
                ask("s3://bucket/lake/x")
    assert bad.asked == []


def test_without_the_proxy_the_redirect_is_followed(sites: tuple[Site, Site]) -> None:
    """When this fails, the proxy may not be needed any more."""
    good, bad = sites
    good.target = bad.address
    store = ObstoreBucket(
        "bucket",
        endpoint=f"http://{good.address}",
        access_key_id="a",
        secret_access_key="b",
        region="us-east-1",
        client_options={"allow_http": True},
    )
    assert bytes(store.get("x").bytes()) == BODY
    assert bad.asked == ["GET /bucket/x"]


def test_duckdb_reaches_checked_servers_alone(sites: tuple[Site, Site], proxy: OutboundProxy) -> None:
    good, bad = sites
    with new_duckdb() as connection:
        connection.execute("LOAD httpfs")
        for name, text in (
            ("http_proxy", proxy.address),
            ("http_proxy_username", proxy.user),
            ("http_proxy_password", proxy.password),
        ):
            connection.execute(f"SET {name} = '{text}'")
        assert connection.execute(f"FROM read_csv('http://{good.address}/x.csv')").fetchall() == [(1, 2)]
        good.target = bad.address
        for address in (good.address, bad.address):
            with pytest.raises(duckdb.Error):
                connection.execute(f"FROM read_csv('http://{address}/y.csv')").fetchall()
    assert bad.asked == []


def exchange(proxy: OutboundProxy, sent: bytes) -> bytes:
    host, port = proxy.address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def authorize(proxy: OutboundProxy) -> bytes:
    shown = base64.b64encode(f"{proxy.user}:{proxy.password}".encode())
    return b"Proxy-Authorization: Basic " + shown + b"\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET http://{good}/x HTTP/1.1\r\n", b"407"),
        (b"CONNECT {good} HTTP/1.1\r\n", b"407"),
        (b"CONNECT {good} HTTP/1.1\r\nProxy-Authorization: Basic eA==\r\n", b"407"),
        (b"CONNECT {bad} HTTP/1.1\r\n{key}", b"403"),
        (b"GET http://{bad}/x HTTP/1.1\r\n{key}", b"403"),
        (b"GET http://169.254.169.254/latest HTTP/1.1\r\n{key}", b"403"),
        (b"CONNECT [::1]:80 HTTP/1.1\r\n{key}", b"403"),
        (b"CONNECT [::ffff:127.0.0.2]:80 HTTP/1.1\r\n{key}", b"403"),
        (b"CONNECT 2130706434:80 HTTP/1.1\r\n{key}", b"403"),
        (b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n{key}", b"502"),
        (b"CONNECT 127.0.0.1:99999 HTTP/1.1\r\n{key}", b"502"),
        (b"GET ftp://{good}/x HTTP/1.1\r\n{key}", b"400"),
        (b"GET http://a@{good}/x HTTP/1.1\r\n{key}", b"400"),
        (b"nonsense\r\n", b"400"),
        (b"GET http://{good}/x HTTP/1.1\r\nConnection: keep-alive\r\n{key}", b"200"),
        (b"CONNECT {good} HTTP/1.1\r\n{key}", b"200"),
    ],
)
def test_requests_to_the_proxy(sites: tuple[Site, Site], proxy: OutboundProxy, head: bytes, status: bytes) -> None:
    good, bad = sites
    names = {b"{good}": good.address.encode(), b"{bad}": bad.address.encode(), b"{key}": authorize(proxy)}
    for name, text in names.items():
        head = head.replace(name, text)
    answer = exchange(proxy, head + b"\r\n")
    assert answer.split(b" ")[1] == status, answer
    assert bad.asked == []


def test_proxy_does_not_hand_its_password_on(proxy: OutboundProxy) -> None:
    with closing(socket.create_server((LISTED, 0))) as listener:
        address = f"{LISTED}:{listener.getsockname()[1]}".encode()
        seen = []

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        thread = Thread(target=answer)
        thread.start()
        exchange(proxy, b"GET http://" + address + b"/x?a=b HTTP/1.1\r\nHost: h\r\n" + authorize(proxy) + b"\r\n")
        thread.join()
    assert seen == [b"GET /x?a=b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"]


def test_proxy_of_one_guard_is_one(proxy: OutboundProxy) -> None:
    assert find_proxy(OutboundGuard.parse((LISTED,))) is proxy
    assert find_proxy(OutboundGuard.parse(())) != proxy


def test_connections_beyond_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound_proxy, "MAX_CONNECTIONS", 2)
    proxy = find_proxy(OutboundGuard.parse(("192.0.2.7",)))  # another guard than that of other tests
    host, port = proxy.address.split(":")
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(2)]
        time.sleep(0.2)
        assert b"503 Service Unavailable" in exchange(proxy, b"")
        held[0].sendall(b"\r\n\r\n")
        assert held[0].recv(100).startswith(b"HTTP/1.1 400")
        until = time.monotonic() + 5
        while b" 503 " in exchange(proxy, b"\r\n\r\n"):
            assert time.monotonic() < until
            time.sleep(0.05)
