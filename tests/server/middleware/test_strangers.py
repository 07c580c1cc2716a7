"""Clients that send slowly, or without a login, keep no one else out."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.server.app import Edge, create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.middleware.requests import MAX_ADDRESS_LOGIN_REQUESTS, LoginRequestCounter
from tests.support.logins import SECRET, Server
from tests.support.servers import running

TOKENS = "/v1/oauth/tokens"
NAMESPACES = "/v1/namespaces"
FORM = {"grant_type": "client_credentials", "client_id": "reader", "client_secret": SECRET}


@contextmanager
def half_sent(uri: str, path: str, count: int) -> Iterator[list[socket.socket]]:
    """So many requests whose bodies stop in the middle."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-www-form-urlencoded\r\n"
    url = httpx.URL(uri)
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((url.host, url.port or 80), 60))
            connection.sendall(f"{head}content-length: 100\r\n\r\ngrant".encode())
            connections.append(connection)
        time.sleep(0.3)
        yield connections


def answered(connections: list[socket.socket]) -> list[bytes]:
    """What has been answered so far, by its first line."""
    lines = []
    for connection in connections:
        connection.settimeout(0.05)
        try:
            lines.append(connection.recv(65536).split(b"\r\n")[0])
        except TimeoutError:
            continue
    return lines


def test_forms_that_stop_half_way_take_no_slot_of_readers(services: Services) -> None:
    server = Server()
    authentication = server.authentication(OAuthClient("reader", SECRET, ("*",)))
    app = create_app(services, edge=Edge(max_requests=2), authentication=authentication)
    with running(app) as uri, httpx.Client(base_url=uri, timeout=60) as http:
        token = http.post(TOKENS, data=FORM).json()["access_token"]
        with half_sent(uri, TOKENS, MAX_ADDRESS_LOGIN_REQUESTS + 4) as slow:
            logged_in = {"authorization": f"Bearer {token}"}
            assert [http.get(NAMESPACES, headers=logged_in).status_code for _ in range(5)] == [200] * 5
            refused = http.post(TOKENS, data=FORM)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert "from your address" in refused.json()["error"]["message"]
            assert answered(slow) == [b"HTTP/1.1 429 Too Many Requests"] * 4
        until = time.monotonic() + 60
        while http.post(TOKENS, data=FORM).status_code != 200:
            assert time.monotonic() < until, "places are given back"


def test_bodies_that_stop_half_way_take_no_slot_without_logins(services: Services) -> None:
    with (
        running(create_app(services, edge=Edge(max_requests=2))) as uri,
        httpx.Client(base_url=uri, timeout=60) as http,
        half_sent(uri, NAMESPACES, 10),
    ):
        assert http.get(NAMESPACES).status_code == 200
        assert http.post(NAMESPACES, json={"namespace": ["made"]}).status_code == 200


@pytest.mark.parametrize("others", [["10.0.0.2"], ["2001:db8:1::2"], ["::ffff:10.0.0.2"]])
def test_one_address_leaves_places_to_others(others: list[str]) -> None:
    strangers = LoginRequestCounter(limit=3, of_address=2)
    assert [strangers.enter("10.0.0.1") for _ in range(2)] == [None, None]
    assert "from your address" in (strangers.enter("10.0.0.1") or "")
    assert strangers.enter(others[0]) is None
    assert "3 logins are arriving" in (strangers.enter("10.9.9.9") or "")
    strangers.leave("10.0.0.1")
    assert strangers.enter("10.0.0.1") is None


def test_addresses_of_one_network_of_ipv6_are_one() -> None:
    strangers = LoginRequestCounter(limit=9, of_address=1)
    assert strangers.enter("2001:db8::1") is None
    assert strangers.enter("2001:db8::2") is not None
    assert strangers.enter("2001:db8:0:1::2") is None
