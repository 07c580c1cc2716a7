"""The layers that stand before the routes: safe headers, CORS, load shedding, slow bodies, https behind a proxy."""

import io
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from uvicorn import Server

from duckicelake.catalog.context.services import Services
from duckicelake.cli.serve.edge import build_config
from duckicelake.errors import UnavailableError
from duckicelake.postgres.database import Database
from duckicelake.server.app import Edge, create_app
from duckicelake.server.middleware import body_limit
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.settings.model import Settings
from tests.support.client import SCHEMA
from tests.support.servers import in_a_thread

Serve = Callable[[Any], httpx.Client]
TABLES = "/v1/namespaces/main/tables"
SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
}


@contextmanager
def behind(app: Any, **settings: Any) -> Iterator[str]:
    """The app as the command serves it, with these settings; its URI."""
    with in_a_thread(Server(build_config(Settings(**settings), app))) as (host, port):
        yield f"http://{host}:{port}"


@pytest.mark.parametrize("path", ["/v1/config", "/healthz", "/metrics", "/openapi.json", "/nothing", f"{TABLES}/gone"])
def test_every_answer_carries_safe_headers_and_is_not_kept(services: Services, serve: Serve, path: str) -> None:
    answer = serve(create_app(services)).get(path)
    assert {name: answer.headers[name] for name in SAFE} == SAFE
    assert answer.headers["cache-control"] == "no-store"
    assert "strict-transport-security" not in answer.headers


def test_tables_say_themselves_how_they_are_kept(services: Services, serve: Serve) -> None:
    http = serve(create_app(services))
    made = http.post(TABLES, json={"name": "t", "schema": SCHEMA})
    unchanged = http.get(f"{TABLES}/t", headers={"if-none-match": made.headers["etag"]})
    assert unchanged.status_code == 304
    assert (made.headers["cache-control"], unchanged.headers["cache-control"]) == ("private", "private")
    assert unchanged.headers["x-content-type-options"] == "nosniff"


def test_bug_in_a_route_has_the_answer_that_others_have(services: Services, serve: Serve) -> None:
    app = create_app(services)
    app.add_api_route("/crash", lambda: 1 // 0)
    answer = serve(app).get("/crash")
    error = {"type": "InternalServerError", "code": 500}
    error["message"] = f"Internal server error; request id {answer.headers['x-request-id']}"
    assert (answer.status_code, answer.json()) == (500, {"error": error})


def test_cors_is_off_unless_origins_are_named(services: Services, serve: Serve) -> None:
    asking = {"origin": "https://ui.example", "access-control-request-method": "GET"}
    shut = serve(create_app(services))
    assert shut.options("/v1/config", headers=asking).status_code == 405
    assert "access-control-allow-origin" not in shut.get("/v1/config", headers=asking).headers

    opened = serve(create_app(services, edge=Edge(cors_origins=("https://ui.example",))))
    allowed = opened.options(
        "/v1/config", headers={**asking, "access-control-request-headers": "authorization, if-none-match"}
    )
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://ui.example"
    assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
    assert "access-control-allow-credentials" not in allowed.headers
    other = {**asking, "origin": "https://elsewhere.example"}
    assert opened.options("/v1/config", headers=other).status_code == 400
    assert "access-control-allow-origin" not in opened.get("/v1/config", headers=other).headers


def test_what_is_too_much_is_refused_at_once_and_counted(services: Services, serve: Serve) -> None:
    entered, leave = threading.Semaphore(0), threading.Event()

    def wait(request: Request) -> PlainTextResponse:
        entered.release()
        leave.wait(60)
        return PlainTextResponse("done")

    app = create_app(services, edge=Edge(max_requests=2))
    app.router.routes.append(Route("/wait", wait))
    http = serve(app)
    waiting = [threading.Thread(target=http.get, args=["/wait"], kwargs={"timeout": 60}) for _ in range(2)]
    for thread in waiting:
        thread.start()
        assert entered.acquire(timeout=60)
    try:
        refused = http.post(TABLES, content=b"not even read")
        watching = [http.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")]
        shed = http.get("/metrics").text
    finally:
        leave.set()
        for thread in waiting:
            thread.join()
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["error"]["type"] == "TooManyRequestsException"
    assert watching == [200, 200, 200]
    assert "duckicelake_requests_shed_total 1.0" in shed
    assert http.get("/v1/config").status_code == 200


def raw(
    uri: str, *pieces: bytes, pause: float = 0.0, timeout: float = 60.0, until_answered: bool = False
) -> tuple[bytes, float]:
    """Send the pieces with pauses; what came back until the server closed the connection, and when that was.

    until_answered: send no more once the server says something, or closes: what it hasn't read would cost its answer.
    """
    url, started = httpx.URL(uri), time.monotonic()
    with socket.create_connection((url.host, url.port or 80), timeout) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                if until_answered and select.select([connection], [], [], pause)[0]:
                    break
                time.sleep(0 if until_answered else pause)
        except OSError:
            pass
        answer = b""
        with suppress(ConnectionResetError):  # where the server hadn't read all that was sent
            while chunk := connection.recv(65536):
                answer += chunk
    return answer, time.monotonic() - started


def test_body_that_trickles_is_answered_408_and_the_connection_closed(services: Services) -> None:
    head = f"POST {TABLES} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n".encode()
    edge = Edge(body_seconds=0.5)
    with behind(create_app(services, edge=edge), receive_seconds=0.5) as uri:
        answer, seconds = raw(uri, head, *[b"{"] * 8, pause=0.1, until_answered=True)
        assert httpx.get(f"{uri}/v1/config", timeout=60).status_code == 200
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"code":408' in answer
    assert b"connection: close" in answer.lower()
    assert seconds < 20


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nhost:"])
def test_connection_on_which_no_request_comes_along_is_closed(services: Services, sent: bytes) -> None:
    with behind(create_app(services), receive_seconds=0.3) as uri:
        answer, seconds = raw(uri, sent)
    assert answer == b""
    assert seconds < 15


def test_second_request_of_a_connection_must_come_along_too(services: Services) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    with behind(create_app(services), receive_seconds=0.3, keep_alive_seconds=20) as uri:
        answer, seconds = raw(uri, whole, b"GET /healthz", pause=0.2)
    assert answer.count(b"200 OK") == 1
    assert seconds < 15


def test_rest_of_a_body_that_no_one_reads_holds_no_connection(services: Services) -> None:
    head = b"POST /v1/config HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n"
    with behind(create_app(services), receive_seconds=0.4) as uri:
        answer, seconds = raw(uri, head, *[b"{"] * 30, pause=0.1)
    assert answer.startswith(b"HTTP/1.1 405") or answer == b""  # the connection may be reset under what is sent still
    assert seconds < 20


def test_headers_without_an_end_are_refused_before_they_fill_the_memory(services: Services) -> None:
    piece = b"x: " + b"y" * 8000 + b"\r\n"
    with behind(create_app(services), receive_seconds=30) as uri:
        head = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
        answer, _ = raw(uri, head, *[piece] * 20, pause=0.25, until_answered=True)
        long, _ = raw(uri, head, *[b"y" * 8000] * 20, pause=0.25, until_answered=True)
        large = httpx.get(f"{uri}/healthz", headers={"x": "y" * 30_000}, timeout=60)
    for refused in (answer, long):
        assert refused.startswith(b"HTTP/1.1 400")
    assert large.status_code == 200


def test_trailers_without_an_end_are_cut_off(services: Services) -> None:
    head = f"POST {TABLES} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{{\r\n0\r\n".encode()
    with behind(create_app(services), receive_seconds=30) as uri:
        answer, _ = raw(uri, head, *[b"x: " + b"y" * 8000 + b"\r\n"] * 20, pause=0.25, until_answered=True)
    assert answer == b""


def test_body_in_many_small_pieces_is_taken_whole(services: Services) -> None:
    body = b" " * 40_000 + b'{"namespace": ["pieces"]}'
    pieces = (body[number : number + 1] for number in range(len(body)))
    with behind(create_app(services)) as uri:
        assert httpx.post(f"{uri}/v1/namespaces", content=pieces, timeout=60).status_code == 200


def test_connection_goes_on_after_a_body_that_came_later_than_its_answer(services: Services) -> None:
    late = b"POST /v1/config HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n"
    second = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with behind(create_app(services), receive_seconds=10) as uri:
        answer, _ = raw(uri, late, b"{" * 50_000, b"{" * 50_000, second, pause=0.1)
    assert answer.startswith(b"HTTP/1.1 405")
    assert answer.count(b"HTTP/1.1 200 OK") == 1


def test_request_that_takes_long_to_answer_is_not_cut_off(services: Services) -> None:
    app = create_app(services)
    app.router.routes.append(Route("/slow", lambda _: PlainTextResponse(time.sleep(0.8) or "done")))
    with behind(app, receive_seconds=0.2) as uri:
        assert httpx.get(f"{uri}/slow", timeout=60).text == "done"


FORWARDED = {"x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "https"}


@pytest.fixture
def seen(services: Services) -> FastAPI:
    """An app that tells as whom and how it sees its clients."""
    app = create_app(services)
    app.router.routes.append(
        Route("/seen", lambda request: PlainTextResponse(f"{request.client.host} {request.url.scheme}"))
    )
    return app


@pytest.mark.parametrize(
    ("proxies", "expected"),
    [
        ((), "127.0.0.1 http"),
        (("127.0.0.1",), "203.0.113.7 https"),
        (("10.0.0.0/8", "127.0.0.0/8"), "203.0.113.7 https"),
        (("10.0.0.0/8",), "127.0.0.1 http"),
    ],
)
def test_forwarded_headers_count_from_trusted_proxies_alone(
    seen: FastAPI, proxies: tuple[str, ...], expected: str
) -> None:
    with behind(seen, trusted_proxies=proxies) as uri:
        assert httpx.get(f"{uri}/seen", headers=FORWARDED, timeout=60).text == expected


def test_client_address_is_the_last_one_that_no_proxy_of_ours_added(seen: FastAPI) -> None:
    forged = {**FORWARDED, "x-forwarded-for": "198.51.100.1, 203.0.113.7, 127.0.0.2"}
    with behind(seen, trusted_proxies=("127.0.0.0/8",)) as uri:
        assert httpx.get(f"{uri}/seen", headers=forged, timeout=60).text == "203.0.113.7 https"


def test_audit_trail_names_the_client_behind_the_proxy(services: Services) -> None:
    with behind(create_app(services), trusted_proxies=("127.0.0.1",)) as uri:
        httpx.delete(f"{uri}{TABLES}/gone", headers=FORWARDED, timeout=60)
    with services.database.reading() as cursor:
        assert cursor.execute("SELECT address FROM duckicelake_audit").fetchall() == [("203.0.113.7",)]


def test_http_through_the_proxy_is_turned_away_where_https_is_required(services: Services) -> None:
    app = create_app(services, edge=Edge(require_https=True))
    with behind(app, trusted_proxies=("127.0.0.1",)) as uri, httpx.Client(base_url=uri, timeout=60) as http:
        clear = {"x-forwarded-proto": "http", "host": "lake.example"}
        redirected = http.get("/v1/config?warehouse=a%20b", headers=clear)
        refused = http.post("/v1/namespaces", headers=clear, json={"namespace": ["ns"]})
        forged = http.get("/v1/config", headers={**clear, "host": "x y/z"})
        probes = [http.get(path).status_code for path in ("/healthz", "/readyz")]
        served = http.get("/v1/config", headers=FORWARDED)
    assert redirected.status_code == 308
    assert redirected.headers["location"] == "https://lake.example/v1/config?warehouse=a%20b"
    assert (refused.status_code, forged.status_code) == (403, 403)
    assert refused.json()["error"]["type"] == "ForbiddenException"
    assert probes == [200, 200]
    assert served.status_code == 200
    assert served.headers["strict-transport-security"] == "max-age=31536000"


def test_answers_that_are_not_taken_hold_no_slot(services: Services) -> None:
    app = create_app(services, edge=Edge(max_requests=1))
    app.router.routes.append(Route("/large", lambda _: PlainTextResponse("x" * 32_000_000)))
    with (
        behind(app, receive_seconds=4) as uri,
        httpx.Client(base_url=uri, timeout=60) as http,
        socket.create_connection((httpx.URL(uri).host, httpx.URL(uri).port)) as deaf,
    ):
        until = time.monotonic() + 60
        deaf.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n" * 3)
        for status, wanted in ((429, 1), (200, 20)):  # between two answers there is a slot, too, for a moment
            in_a_row = 0
            while in_a_row < wanted:
                assert time.monotonic() < until, status
                time.sleep(0.01)
                in_a_row = in_a_row + 1 if http.get("/v1/config").status_code == status else 0
        taken = 0
        with suppress(ConnectionResetError):  # where the server hadn't read all requests
            while chunk := deaf.recv(1 << 20):
                taken += len(chunk)
        assert taken < 32_000_000, "the server has given the connection up"


def test_answer_that_is_taken_slowly_comes_whole(services: Services) -> None:
    app = create_app(services)
    app.router.routes.append(Route("/large", lambda _: PlainTextResponse("x" * 32_000_000)))
    with behind(app, receive_seconds=1) as uri, httpx.stream("GET", f"{uri}/large", timeout=60) as answer:
        taken = 0
        for chunk in answer.iter_bytes(2_000_000):
            time.sleep(0.2)
            taken += len(chunk)
    assert taken == 32_000_000


def test_form_for_a_token_must_come_along_sooner_than_other_bodies(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_limit, "_PUBLIC_BODY_SECONDS", 0.3)
    head = b"POST /v1/oauth/tokens HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n"
    with behind(create_app(services), receive_seconds=30) as uri:
        answer, seconds = raw(uri, head, b"grant_type=")
    assert answer.startswith(b"HTTP/1.1 408")
    assert seconds < 20


@dataclass
class Counting:
    """A Postgres that is down, whose refusals are counted."""

    entered: int = 0

    def check(self) -> None:
        self.entered += 1
        time.sleep(0.2)
        raise UnavailableError('Postgres does not answer: connection to "10.1.2.3" as "duck" refused')


def test_readiness_is_found_out_once_for_all_who_ask_and_shows_nothing_of_the_inside(
    services: Services, serve: Serve
) -> None:
    log, counting = io.StringIO(), Counting()
    app = create_app(services, log=make_logger(log, "json"))
    context = replace(app.state.context, services=replace(services, database=cast("Database", counting)))
    app.state.context = context
    http = serve(app)
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: http.get("/readyz"), range(20)))
    assert counting.entered == 1
    assert {answer.status_code for answer in answers} == {503}
    assert {answer.json()["error"]["message"] for answer in answers} == {
        "database does not answer; the server's log says why"
    }
    assert "10.1.2.3" in log.getvalue()
    context.readiness._kept_until = 0.0
    app.state.context = replace(context, services=services)
    assert http.get("/readyz").status_code == 200


def test_tracebacks_on_a_terminal_show_no_variables() -> None:
    stream = io.StringIO()

    def fail() -> None:
        password = "".join(("hun", "ter2"))
        raise ValueError(len(password))

    try:
        fail()
    except ValueError as error:
        make_logger(stream, "console").error("request", exc_info=error)
    assert "in fail" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_clients_that_are_gone_before_their_answers_are_no_errors(services: Services) -> None:
    """Some with more requests behind the one that is being answered: the server is told of the last alone."""
    log, chance = io.StringIO(), random.Random(7)
    requests = [f"{method} {TABLES}/gone HTTP/1.1\r\nhost: x\r\n\r\n".encode() for method in ("GET", "HEAD")]
    with behind(create_app(services, log=make_logger(log))) as uri:
        host, port = uri.removeprefix("http://").split(":")
        for _ in range(300):
            with socket.create_connection((host, int(port))) as connection, suppress(OSError):
                for _ in range(chance.randint(1, 3)):
                    connection.sendall(chance.choice(requests))
                    if chance.random() < 0.3:
                        time.sleep(chance.random() * 0.004)
                    if chance.random() < 0.3:
                        connection.sendall(requests[0][: chance.randrange(60)])
                if chance.random() < 0.5:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        httpx.get(f"{uri}/healthz")
    assert '"event":"request"' in log.getvalue()
    assert '"level":"error"' not in log.getvalue()
