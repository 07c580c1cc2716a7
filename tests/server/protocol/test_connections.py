"""Connections that are kept and do nothing shut no one out."""

import socket
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from uvicorn import Server

from duckicelake.catalog.context.services import Services
from duckicelake.cli.serve.edge import build_config
from duckicelake.server.app import create_app
from duckicelake.server.protocol.connections import ConnectionTable, build_connection_table
from duckicelake.settings.model import Settings
from tests.support.certificates import make_certificate
from tests.support.servers import in_a_thread

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
    server = Server(build_config(Settings(**limit), create_app(services)))
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
    config = build_config(Settings(max_connections=LIMIT, max_connections_each=LIMIT), create_app(services))
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


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a hello"])
def test_handshakes_that_never_end_make_room(services: Services, tmp_path: Path, sent: bytes) -> None:
    certificate, key = make_certificate(tmp_path)
    settings = Settings(max_connections=LIMIT, tls_certificate=certificate, tls_key=key)
    server = Server(build_config(settings, create_app(services)))
    trusting = ssl.create_default_context(cafile=str(certificate))
    with in_a_thread(server) as address, ExitStack() as stack:
        kept = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(3 * LIMIT)]
        for connection in kept:
            with suppress(OSError):
                connection.sendall(sent)
        for _ in range(5):
            answer = httpx.get(f"https://{address[0]}:{address[1]}/healthz", verify=trusting, timeout=60)
            assert answer.status_code == 200
        closed = 0
        for connection in kept:
            connection.settimeout(0.1)
            with suppress(TimeoutError):
                try:
                    closed += connection.recv(1) == b""
                except ConnectionError:
                    closed += 1
        assert closed >= 2 * LIMIT
        assert len(server.server_state.connections) <= LIMIT


def test_handshake_that_never_ends_is_given_up(services: Services, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    settings = Settings(receive_seconds=0.5, tls_certificate=certificate, tls_key=key)
    server = Server(build_config(settings, create_app(services)))
    with in_a_thread(server) as address, socket.create_connection(address, 60) as silent:
        with suppress(ConnectionError):
            assert silent.recv(1) == b""
        until = time.monotonic() + 60
        while server.server_state.connections:
            assert time.monotonic() < until, "the handshake that was given up counts no more"
            time.sleep(0.01)


def test_request_right_behind_the_handshake_is_answered(services: Services, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    server = Server(build_config(Settings(tls_certificate=certificate, tls_key=key), create_app(services)))
    trusting = ssl.create_default_context(cafile=str(certificate))
    with in_a_thread(server) as address, socket.create_connection(address, 60) as clear:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trusting.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        clear.sendall(outgoing.read())
        while True:
            incoming.write(clear.recv(65536))
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                continue
        client.write(WHOLE)
        clear.sendall(outgoing.read())  # the end of the handshake and the request, in one packet
        answer = b""
        while b"\r\n\r\n" not in answer:
            incoming.write(clear.recv(65536))
            with suppress(ssl.SSLWantReadError):
                answer += client.read()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


def test_address_that_has_most_makes_room_for_others() -> None:
    connections = ConnectionTable(limit=10, of_address=8)
    first = [Kept() for _ in range(8)]
    assert all(connections.add(each, "10.0.0.1") for each in first)
    assert all(connections.add(Kept(), "10.0.0.2") for _ in range(2))
    assert connections.add(Kept(), "10.0.0.3")
    assert [each.is_closed for each in first] == [True] + [False] * 7, "the oldest goes"


def test_busy_connections_stay_and_one_address_is_refused_for_itself() -> None:
    connections = ConnectionTable(limit=10, of_address=2)
    assert all(connections.add(Kept(is_idle=False), "2001:db8::1") for _ in range(2))
    assert not connections.add(Kept(), "2001:db8::2"), "one network of IPv6 is one address"
    assert connections.add(Kept(), "2001:db8:0:1::1")


def test_trusted_proxy_has_all_and_what_has_ended_counts_no_more() -> None:
    connections = ConnectionTable(limit=5, of_address=2, proxies=("10.0.0.0/8",))
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
        "from duckicelake.server.protocol.connections import build_connection_table, raise_descriptor_limit\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "raise_descriptor_limit()\n"
        "kept = build_connection_table(None, None, ())\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], kept.limit, kept.of_address)\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == [str(hard), str(most), str(most // 2)]


def test_settings_stay_within_the_descriptors() -> None:
    room = build_connection_table(None, None, ()).limit
    assert build_connection_table(10 * room, 20 * room, ()).of_address == room
