"""Requests that come again, byte for byte: answered without a layer of the app, and as the layers would answer."""

import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn import Server

from duckicelake.catalog import tables
from duckicelake.catalog.context.services import Services
from duckicelake.cli.serve.edge import build_config
from duckicelake.cli.wiring.services import open_tracer
from duckicelake.server.api import App
from duckicelake.server.app import Edge, create_app
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.settings.model import Settings
from tests.support.client import NS, Client, new_client
from tests.support.collector import Collector
from tests.support.servers import in_a_thread

TABLE = "/v1/namespaces/ns/tables/t"
LOAD = f"GET {TABLE} HTTP/1.1\r\nhost: x\r\n\r\n".encode()


@dataclass
class Wire:
    """A connection on which a test sends what bytes it likes."""

    connection: socket.socket
    received: bytes = b""

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def answer(self, *, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        """The next one: (status, headers, body)."""
        head, _, _ = self._until(lambda: b"\r\n\r\n" in self.received, lambda: self.received.partition(b"\r\n\r\n"))
        self.received = self.received[len(head) + 4 :]
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        length = int(headers.get("content-length", 0)) if has_body else 0
        body = self._until(lambda: len(self.received) >= length, lambda: self.received[:length])
        self.received = self.received[length:]
        return int(status.split()[1]), headers, body

    def ask(self, data: bytes, *, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        self.send(data)
        return self.answer(has_body=has_body)

    def is_closed(self) -> bool:
        """Whether the server has nothing more to say."""
        return self.received == b"" and self.connection.recv(1) == b""

    def _until(self, is_there: Callable[[], bool], found: Callable[[], Any]) -> Any:
        while not is_there():
            piece = self.connection.recv(1 << 20)
            assert piece, f"closed after {self.received!r}"
            self.received += piece
        return found()


@dataclass
class Served:
    """An app as the command serves it. layered: the requests that came to its layers."""

    server: Server
    address: tuple[str, int]
    layered: list[str] = field(default_factory=list)

    @contextmanager
    def wire(self) -> Iterator[Wire]:
        with socket.create_connection(self.address, 60) as connection:
            yield Wire(connection)

    def warm(self, wire: Wire, request: bytes = LOAD, *, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        """The answer once no layer has a part in it."""
        for _ in range(200):
            before = len(self.layered)
            answer = wire.ask(request, has_body=has_body)
            if len(self.layered) == before:
                return answer
        raise AssertionError("every request came to the layers")


@contextmanager
def serving(app: App, **settings: Any) -> Iterator[Served]:
    layers, layered = app.layers, []
    assert layers is not None

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        layered.append(f"{scope['method']} {scope['path']}")
        await layers(scope, receive, send)

    app.layers = counted
    server = Server(build_config(Settings(**settings), app))
    with in_a_thread(server) as address:
        yield Served(server, address, layered)


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def writer(services: Services) -> Client:
    client = new_client(services)
    client.create("t")
    client.append((1, "a"))
    return client


@pytest.fixture
def served(services: Services, writer: Client, log: io.StringIO) -> Iterator[Served]:
    with serving(create_app(services, log=make_logger(log, "json"))) as served:
        yield served


def said(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, dict[str, str], bytes]:
    """All but when it was said, and its number."""
    status, headers, body = answer
    return status, {name: value for name, value in headers.items() if name not in {"date", "x-request-id"}}, body


@pytest.mark.parametrize(
    "line", ["", "If-None-Match: {etag}\r\n", "X-Iceberg-Access-Delegation: vended-credentials\r\n"]
)
def test_repeated_load_is_answered_without_the_layers_as_with_them(served: Served, line: str) -> None:
    with served.wire() as wire:
        _, headers, _ = wire.ask(LOAD)
        request = LOAD[:-2] + line.format(etag=headers["etag"]).encode() + b"\r\n"
        first, again = wire.ask(request), served.warm(wire, request)
    assert said(again) == said(first)
    assert again[0] == (304 if "None" in line else 200)
    assert again[1]["x-request-id"] != first[1]["x-request-id"]
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", again[1]["date"])


def test_repeated_question_for_a_table_is_answered_without_the_layers_until_it_is_gone(
    served: Served, services: Services
) -> None:
    head = LOAD.replace(b"GET", b"HEAD")
    with served.wire() as wire:
        first, again = wire.ask(head, has_body=False), served.warm(wire, head, has_body=False)
        assert said(again) == said(first)
        assert again[0] == 204
        tables.drop_table(services, NS, "t", purge=False)
        assert wire.ask(head, has_body=False)[0] == 404


def test_repeated_load_sees_what_was_committed_before_it_was_sent(served: Served, writer: Client) -> None:
    with served.wire() as wire:
        for number in range(5):
            served.warm(wire)
            made = writer.append((number, "b"))["metadata"]
            found = json.loads(wire.ask(LOAD)[2])["metadata"]
            assert found["current-snapshot-id"] == made["current-snapshot-id"]


def test_repeated_load_leaves_its_line_and_is_counted(served: Served, log: io.StringIO) -> None:
    with served.wire() as wire:
        _, headers, _ = served.warm(wire)
        counted = wire.ask(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")[2].decode()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    template = "/v1/namespaces/{namespace}/tables/{table}"
    (line,) = [line for line in lines if line.get("request_id") == headers["x-request-id"]]
    assert {**line, "ms": 0, "timestamp": ""} == {
        "event": "request",
        "level": "info",
        "request_id": headers["x-request-id"],
        "method": "GET",
        "route": template,
        "path": TABLE,
        "status": 200,
        "ms": 0,
        "principal": "anonymous",
        "timestamp": "",
    }
    loads = sum(line.get("route") == template for line in lines)
    assert f'duckicelake_requests_total{{method="GET",route="{template}",status="2xx"}} {loads}.0' in counted
    assert f'duckicelake_request_seconds_count{{method="GET",route="{template}"}} {loads}.0' in counted
    assert "duckicelake_requests_running 1.0" in counted, "the one that asks"


def test_requests_sent_on_and_on_are_answered_each_in_turn(served: Served) -> None:
    health = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    with served.wire() as wire:
        expected, alive = said(served.warm(wire)), said(wire.ask(health))
        for _ in range(30):
            for piece in (LOAD, LOAD, health, LOAD[:20], LOAD[20:], LOAD + health + LOAD[:5], LOAD[5:]):
                wire.send(piece)
        for _ in range(30):
            for answer in (expected, expected, alive, expected, expected, alive, expected):
                assert said(wire.answer()) == answer


@pytest.mark.parametrize(
    ("before", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nx: ", 200),
        (b"POST /v1/config HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(LOAD), 405),
        (b"POST /v1/config HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n" % len(LOAD), 405),
    ],
    ids=["header", "body", "chunk"],
)
def test_what_looks_like_a_request_inside_of_another_is_none(served: Served, before: bytes, status: int) -> None:
    with served.wire() as wire:
        served.warm(wire)
    with served.wire() as wire:
        wire.send(before)
        time.sleep(0.1)
        answers = [wire.ask(LOAD)[0]]
        if b"chunked" in before:
            wire.send(b"\r\n0\r\n\r\n")
        answers.append(wire.ask(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")[0])
        assert wire.is_closed()
    assert answers == [status, 200]


def test_repeated_load_is_refused_where_too_many_are_under_way(services: Services, writer: Client) -> None:
    entered, leave = threading.Event(), threading.Event()

    def wait(request: Request) -> PlainTextResponse:
        entered.set()
        leave.wait(30)
        return PlainTextResponse("done")

    app = create_app(services, edge=Edge(max_requests=1))
    app.router.routes.append(Route("/wait", wait))
    with serving(app) as served, served.wire() as wire, served.wire() as other:
        served.warm(wire)
        other.send(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n")
        assert entered.wait(60)
        refused = wire.ask(LOAD)[0]
        leave.set()
        assert other.answer()[2] == b"done"
        assert (refused, wire.ask(LOAD)[0]) == (429, 200)


@contextmanager
def held(services: Services) -> Iterator[Callable[[], None]]:
    """Freshness checks are not answered in the block; what it is given returns once one is waiting."""
    with services.database.transaction() as cursor:
        cursor.execute("LOCK TABLE duckicelake_epoch IN ACCESS EXCLUSIVE MODE")

        def wait() -> None:
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'duckicelake_epoch'::regclass"
            until = time.monotonic() + 60
            while not cursor.execute(waiting).fetchall():
                assert time.monotonic() < until
                time.sleep(0.005)

        yield wait


def test_repeated_load_under_way_is_answered_before_the_server_ends(served: Served, services: Services) -> None:
    with served.wire() as wire:
        expected = said(served.warm(wire))
        with held(services) as wait:
            wire.send(LOAD)
            wait()
            served.server.should_exit = True
            time.sleep(0.3)
        assert said(wire.answer()) == expected
        assert wire.is_closed()


def test_client_that_leaves_before_its_repeated_load_is_answered_takes_no_one_along(
    services: Services, writer: Client
) -> None:
    limited = create_app(services, edge=Edge(max_requests=2))
    with serving(limited) as served, served.wire() as stays, served.wire() as leaves:
        expected = said(served.warm(stays))
        served.warm(leaves)
        with held(services) as wait:
            leaves.send(LOAD)
            stays.send(LOAD)
            wait()
            leaves.connection.close()
        assert said(stays.answer()) == expected
        assert [stays.ask(LOAD)[0] for _ in range(3)] == [200] * 3, "no slot is lost"


def test_answers_to_repeated_loads_that_are_not_taken_are_bounded(services: Services) -> None:
    client = new_client(services)
    client.create("t", properties={"large": "x" * 1_000_000})
    with serving(create_app(services), receive_seconds=0.5) as served, served.wire() as wire:
        served.warm(wire)
        try:
            for _ in range(100):
                wire.send(LOAD)
                time.sleep(0.002)
            time.sleep(1)
            taken = sum(map(len, iter(partial(wire.connection.recv, 1 << 20), b"")))
        except (BrokenPipeError, ConnectionResetError):
            taken = 0
    assert taken < 50_000_000, "the server has given the connection up"


def test_web_page_is_reported_each_time_that_it_may_read(services: Services, writer: Client) -> None:
    page = LOAD[:-2] + b"origin: https://ui.example\r\n\r\n"
    with (
        serving(create_app(services, edge=Edge(cors_origins=("https://ui.example",)))) as served,
        served.wire() as wire,
    ):
        allowed = [wire.ask(page)[1].get("access-control-allow-origin") for _ in range(5)]
    assert allowed == ["https://ui.example"] * 5


def test_each_repeated_load_has_its_span_where_requests_are_traced(
    services: Services, writer: Client, collector: Collector
) -> None:
    with (
        open_tracer(collector.uri) as spans,
        serving(create_app(services, tracer=spans)) as served,
        served.wire() as wire,
    ):
        assert [wire.ask(LOAD)[0] for _ in range(5)] == [200] * 5
    assert [span.name for span in collector.spans].count("GET /v1/namespaces/{namespace}/tables/{table}") == 5


def test_proxy_that_forwards_a_repeated_load_over_http_is_turned_away(services: Services, writer: Client) -> None:
    secure, clear = (LOAD[:-2] + b"x-forwarded-proto: %b\r\n\r\n" % scheme for scheme in (b"https", b"http"))
    app = create_app(services, edge=Edge(require_https=True))
    with serving(app, trusted_proxies=("127.0.0.1",)) as served, served.wire() as wire:
        status, headers, _ = served.warm(wire, secure)
        assert (status, headers["strict-transport-security"]) == (200, "max-age=31536000")
        assert wire.ask(clear)[0] == 308
