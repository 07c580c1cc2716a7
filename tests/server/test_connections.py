"""Connections that are kept and do nothing shut nobody out."""

import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest
from uvicorn import Server

from duckicelake.catalog.services import Services
from duckicelake.cli.service.edge import config_of
from duckicelake.server.app import create_app
from duckicelake.server.limits.connections import Connections, connections_of
from duckicelake.settings import Settings
from tests.server.conftest import in_a_thread

WHOLE = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
HALF = b"POST /v1/namespaces HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{"
LIMIT = 8


@dataclass(eq=False)
class Kept:
    """A connection. is_idle: nothing is under way on it."""

    is_idle: bool = True
    is_closed: bool = False

    def is_waiting(self) -> bool:
        return self.is_idle

    def close_idle(self) -> None:
        self.is_closed = True


def shut(uri: str, kind: str) -> float:
    for line in httpx.get(f"{uri}/metrics", timeout=60).text.splitlines():
        if line.startswith(f'duckicelake_connections_shut_total{{kind="{kind}"}}'):
            return float(line.split()[-1])
    raise AssertionError(kind)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTT", WHOLE], ids=["nothing", "half a head", "a request"])
@pytest.mark.parametrize("limit", [{"max_connections": LIMIT}, {"max_connections_each": LIMIT}], ids=["all", "address"])
def test_idle_connections_make_room(
    services: Services, sent: bytes, limit: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(config_of(Settings(**limit), create_app(services)))
    with in_a_thread(server) as address, ExitStack() as stack:
        uri = f"http://{address[0]}:{address[1]}"
        before = shut(uri, "idle")
        kept = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(3 * LIMIT)]
        for connection in kept:
            try:
                connection.sendall(sent)
            except OSError:
                continue
        for _ in range(5):
            assert httpx.get(f"{uri}/healthz", timeout=60).status_code == 200
        assert shut(uri, "idle") >= before + 2 * LIMIT
        assert len(server.server_state.connections) <= LIMIT
    assert "DUCKICELAKE_MAX_CONNECTIONS" in caplog.text
    assert len(caplog.records) <= 2, "one line in ten seconds"


def test_connection_is_refused_where_none_is_idle(services: Services) -> None:
    config = config_of(Settings(max_connections=LIMIT, max_connections_each=LIMIT), create_app(services))
    with in_a_thread(Server(config)) as address:
        with ExitStack() as stack:
            for _ in range(LIMIT):
                stack.enter_context(socket.create_connection(address, 60)).sendall(HALF)
            time.sleep(0.5)
            with socket.create_connection(address, 60) as refused:
                answer = refused.recv(65536)
            assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"retry-after: 1" in answer
            assert b'"code":503' in answer
        until = time.monotonic() + 60
        while True:
            try:
                assert httpx.get(f"http://{address[0]}:{address[1]}/healthz", timeout=60).status_code == 200
                break
            except (AssertionError, httpx.HTTPError):
                assert time.monotonic() < until, "those that ended have made room"


def test_address_that_has_most_makes_room_for_others() -> None:
    connections = Connections(limit=10, of_address=8)
    first = [Kept() for _ in range(8)]
    assert all(connections.add(each, "10.0.0.1") for each in first)
    assert all(connections.add(Kept(), "10.0.0.2") for _ in range(2))
    assert connections.add(Kept(), "10.0.0.3")
    assert [each.is_closed for each in first] == [True] + [False] * 7, "the oldest goes"


def test_busy_connections_stay_and_one_address_is_refused_for_itself() -> None:
    connections = Connections(limit=10, of_address=2)
    assert all(connections.add(Kept(is_idle=False), "2001:db8::1") for _ in range(2))
    assert not connections.add(Kept(), "2001:db8::2"), "one network of IPv6 is one address"
    assert connections.add(Kept(), "2001:db8:0:1::1")


def test_trusted_proxy_has_all_and_what_has_ended_counts_no_more() -> None:
    connections = Connections(limit=5, of_address=2, proxies=("10.0.0.0/8",))
    busy = [Kept(is_idle=False) for _ in range(5)]
    assert all(connections.add(each, "10.0.0.1") for each in busy)
    assert not connections.add(Kept(), "10.0.0.1")
    for _ in range(2):
        connections.remove(busy[0], "10.0.0.1")
    assert connections.add(Kept(is_idle=False), "192.0.2.1")
    assert not connections.add(Kept(), "192.0.2.2"), "five are under way"


@pytest.mark.parametrize(("soft", "hard", "most"), [(64, 256, 128), (256, 256, 128), (300, 4096, 4096 - 512)])
def test_descriptors_are_raised_and_some_kept_for_the_server(soft: int, hard: int, most: int) -> None:
    program = (
        "import resource, sys\n"
        "from duckicelake.server.limits.connections import connections_of, raise_descriptor_limit\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "raise_descriptor_limit()\n"
        "kept = connections_of(None, None, ())\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], kept.limit, kept.of_address)\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == [str(hard), str(most), str(most // 2)]


def test_settings_stay_within_the_descriptors() -> None:
    room = connections_of(None, None, ()).limit
    assert connections_of(10 * room, 20 * room, ()).of_address == room
