"""The layers around the routes, on an app whose routes fail in every way there is."""

import inspect
import io
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import orjson
import pytest
from fastapi import FastAPI, Query, Response
from pydantic import BaseModel

from duckicelake import errors
from duckicelake.server.api import App
from duckicelake.server.http.errors import HTTP_ERRORS, RESPONSES, install_error_handlers, parse_body
from duckicelake.server.middleware.body_limit import BodyLimitMiddleware
from duckicelake.server.middleware.requests import RequestLog, RequestLogMiddleware
from duckicelake.server.routes.dependencies import Body
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.server.telemetry.metrics import Metrics
from tests.support.waits import wait_until

LIMIT = 2048
ERROR_CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.CatalogError)
]


class LogStream(io.StringIO):
    """Collects what the app logs."""

    def lines(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.getvalue().splitlines()]

    def request(self) -> dict[str, Any]:
        """The line of the one request that was made; it is written once the answer is on its way."""
        wait_until(lambda: self.lines() != [])
        (line,) = self.lines()
        assert line["event"] == "request"
        return line


class Item(BaseModel):
    name: str
    sizes: list[int]


def fail(kind: str) -> Response:
    made = getattr(errors, kind)
    raise made("heading", f"message of {kind}") if kind == "UnsupportedError" else made(f"message of {kind}")


def crash() -> Response:
    raise RuntimeError("secret detail")


def echo(body: Body) -> dict[str, int]:
    return {"bytes": len(body)}


def parse(body: Body) -> Item:
    return parse_body(Item, body)


def sized(size: Annotated[int, Query(alias="pageSize", ge=1)]) -> int:
    return size


def named(name: str) -> str:
    return name


def empty() -> Response:
    return Response(status_code=204)


@pytest.fixture
def log_stream() -> LogStream:
    return LogStream()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(lambda: {"pool_size": 5, "pool_available": 3, "requests_waiting": 2, "pool_max": 8})


@pytest.fixture
def app(log_stream: LogStream, metrics: Metrics) -> FastAPI:
    app = App(redirect_slashes=False)
    app.get("/fail/{kind}", responses=RESPONSES)(fail)
    app.head("/fail/{kind}")(fail)
    app.get("/crash")(crash)
    app.post("/echo")(echo)
    app.post("/parse")(parse)
    app.get("/sized")(sized)
    app.get("/names/{name}")(named)
    app.head("/names/{name}")(empty)
    app.delete("/names/{name}")(empty)
    install_error_handlers(app)
    app.add_middleware(BodyLimitMiddleware, limit=LIMIT)
    app.add_middleware(RequestLogMiddleware, register=RequestLog(metrics, make_logger(log_stream, "json")))
    return app


@pytest.fixture
def client(app: FastAPI, serve: Callable[[FastAPI], httpx.Client]) -> httpx.Client:
    return serve(app)


def envelope(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "code"}
    assert body["error"]["code"] == response.status_code
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = body["error"]
    return error


def test_every_error_class_has_an_answer() -> None:
    assert set(HTTP_ERRORS) == set(ERROR_CLASSES)


@pytest.mark.parametrize(
    "kind", [kind for kind in ERROR_CLASSES if not HTTP_ERRORS[kind].hidden], ids=lambda k: k.__name__
)
def test_error_of_each_class_answers_with_its_status_and_type(
    client: httpx.Client, kind: type[errors.CatalogError]
) -> None:
    response = client.get(f"/fail/{kind.__name__}")
    error = envelope(response)
    assert (response.status_code, error["type"]) == (HTTP_ERRORS[kind].status, HTTP_ERRORS[kind].type)
    assert error["message"].startswith(f"message of {kind.__name__}")


@pytest.mark.parametrize(
    ("kind", "status", "name"),
    [
        ("InvalidRequestError", 400, "BadRequestException"),
        ("UnprocessableError", 422, "UnprocessableEntityException"),
        ("UnsupportedError", 406, "UnsupportedOperationException"),
        ("NoSuchWarehouseError", 404, "NoSuchWarehouseException"),
        ("NoSuchNamespaceError", 404, "NoSuchNamespaceException"),
        ("NoSuchTableError", 404, "NoSuchTableException"),
        ("FileMissingError", 404, "NotFoundException"),
        ("AlreadyExistsError", 409, "AlreadyExistsException"),
        ("NamespaceNotEmptyError", 409, "NamespaceNotEmptyException"),
        ("CommitFailedError", 409, "CommitFailedException"),
        ("DamagedTableError", 422, "DamagedTableException"),
        ("CommitStateUnknownError", 500, "CommitStateUnknownException"),
        ("UnavailableError", 503, "ServiceUnavailableException"),
    ],
)
def test_statuses_and_types_are_those_that_iceberg_clients_know(kind: str, status: int, name: str) -> None:
    answer = HTTP_ERRORS[getattr(errors, kind)]
    assert (answer.status, answer.type) == (status, name)


def test_unavailable_says_when_to_try_again_and_others_do_not(client: httpx.Client) -> None:
    assert int(client.get("/fail/UnavailableError").headers["retry-after"]) >= 1
    assert "retry-after" not in client.get("/fail/CommitStateUnknownError").headers


@pytest.mark.parametrize("path", ["/crash", "/fail/InvalidSettingsError"])
def test_bug_shows_the_client_only_the_request_id_and_the_log_everything(
    client: httpx.Client, log_stream: LogStream, path: str
) -> None:
    response = client.get(path)
    error = envelope(response)
    request_id = response.headers["x-request-id"]
    assert (response.status_code, error["type"]) == (500, "InternalServerError")
    assert error["message"] == f"Internal server error; request id {request_id}"
    line = log_stream.request()
    assert (line["request_id"], line["level"], line["status"]) == (request_id, "error", 500)
    assert "Traceback" in line["exception"]


@pytest.mark.parametrize(
    ("kind", "level"), [("DamagedTableError", "error"), ("UnavailableError", "error"), ("NoSuchTableError", "info")]
)
def test_operator_finds_in_the_log_what_the_client_cannot_help(
    client: httpx.Client, log_stream: LogStream, kind: str, level: str
) -> None:
    client.get(f"/fail/{kind}")
    line = log_stream.request()
    assert line["level"] == level
    assert (f"message of {kind}" in line.get("exception", "")) == (level == "error")


def test_head_of_an_error_has_the_status_and_no_body(client: httpx.Client) -> None:
    address = urlsplit(str(client.base_url))
    with socket.create_connection((address.hostname, address.port)) as raw:
        raw.sendall(b"HEAD /fail/NoSuchTableError HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ")
    assert body == b""


def test_unknown_route_answers_404_in_the_envelope(client: httpx.Client) -> None:
    response = client.get("/nothing/here")
    assert response.status_code == 404
    assert envelope(response)["type"] == "NotFoundException"
    assert "GET /nothing/here" in envelope(response)["message"]
    for path in ("/v1/v1/config", "/catalog/v1/config", "/v1/pipeline/v1/jobs"):
        assert "without /v1" in envelope(client.get(path))["message"]


def test_trailing_slash_is_another_route(client: httpx.Client) -> None:
    assert client.get("/names/a/").status_code == 404


def test_wrong_method_answers_405_with_all_methods_of_the_path(client: httpx.Client) -> None:
    response = client.post("/names/a")
    assert response.status_code == 405
    assert response.headers["allow"] == "DELETE, GET, HEAD"
    assert "DELETE, GET, HEAD" in envelope(response)["message"]


def test_announced_body_over_the_limit_answers_413(client: httpx.Client) -> None:
    response = client.post("/echo", content=b"x" * (LIMIT + 1))
    assert response.status_code == 413
    assert str(LIMIT) in envelope(response)["message"]
    assert "DUCKICELAKE_MAX_BODY_BYTES" in envelope(response)["message"]


def test_streamed_body_over_the_limit_answers_413(client: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(LIMIT // 512 + 1):
            yield b"x" * 512

    response = client.post("/echo", content=chunks())
    assert response.status_code == 413
    assert envelope(response)["code"] == 413


def test_body_of_exactly_the_limit_is_read(client: httpx.Client) -> None:
    assert client.post("/echo", content=b"x" * LIMIT).json() == {"bytes": LIMIT}


def test_body_that_is_not_json_answers_400_with_line_and_column(client: httpx.Client) -> None:
    response = client.post("/parse", content=b'{"name": "a",\n "sizes": [1,, 2]}')
    assert response.status_code == 400
    assert envelope(response)["type"] == "BadRequestException"
    assert "the body is not JSON" in envelope(response)["message"]
    assert "line 2 column 14" in envelope(response)["message"]


def test_body_is_json_whatever_its_content_type_says(client: httpx.Client) -> None:
    response = client.post("/parse", content=b'{"name": "a", "sizes": []}', headers={"content-type": "text/plain"})
    assert response.json() == {"name": "a", "sizes": []}


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        (b"{}", "name: Field required; sizes: Field required"),
        (b'{"name": 5, "sizes": []}', "name: must be a valid string (got 5)"),
        (b'{"name": "a", "sizes": [1, "x"]}', "sizes[1]: must be a valid integer"),
        (b"[]", "the body: must be an object"),
        (b"", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
    ],
)
def test_wrong_field_answers_400_with_its_place_and_what_is_right(
    client: httpx.Client, body: bytes, finding: str
) -> None:
    response = client.post("/parse", content=body)
    assert response.status_code == 400
    assert finding in envelope(response)["message"]


def test_many_findings_are_cut_short(client: httpx.Client) -> None:
    message = envelope(client.post("/parse", content=b'{"name": "a", "sizes": ["x","x","x","x","x","x","x"]}'))[
        "message"
    ]
    assert message.count("sizes[") == 5
    assert message.endswith("and 2 more")


@pytest.mark.parametrize("value", ["0", "x", ""])
def test_wrong_query_parameter_answers_400_naming_it(client: httpx.Client, value: str) -> None:
    response = client.get("/sized", params={"pageSize": value})
    assert response.status_code == 400
    assert "query.pageSize: must be" in envelope(response)["message"]


def test_request_id_is_the_clients_if_sane_and_in_answer_and_log(client: httpx.Client, log_stream: LogStream) -> None:
    response = client.get("/names/a", headers={"X-Request-Id": "abc-123"})
    assert response.headers["x-request-id"] == "abc-123"
    line = log_stream.request()
    assert {key: line[key] for key in ("request_id", "method", "route", "path", "status", "level")} == {
        "request_id": "abc-123",
        "method": "GET",
        "route": "/names/{name}",
        "path": "/names/a",
        "status": 200,
        "level": "info",
    }
    assert 0 < line["ms"] < 10_000


@pytest.mark.parametrize("insane", ["a b", "x" * 129, '"quoted"', ""])
def test_insane_request_id_is_replaced(client: httpx.Client, insane: str) -> None:
    made = client.get("/names/a", headers={"X-Request-Id": insane}).headers["x-request-id"]
    assert made != insane
    assert len(made) == 32


def test_names_with_encoded_slashes_reach_the_route_undecoded(client: httpx.Client) -> None:
    assert client.get("/names/a%2Fb%1Fc").json() == "a%2Fb%1Fc"
    assert client.get("/names/a+b").json() == "a+b"


def test_requests_are_counted_by_template_method_and_status_class(client: httpx.Client, metrics: Metrics) -> None:
    client.get("/names/a")
    client.get("/names/b")
    client.get("/fail/NoSuchTableError")
    client.get("/nowhere")
    client.request("PROPFIND", "/names/a")
    wait_until(lambda: "duckicelake_requests_running 0.0" in metrics.render().decode())
    text = metrics.render().decode()
    assert 'duckicelake_requests_total{method="GET",route="/names/{name}",status="2xx"} 2.0' in text
    assert 'duckicelake_requests_total{method="GET",route="/fail/{kind}",status="4xx"} 1.0' in text
    assert 'duckicelake_requests_total{method="GET",route="unmatched",status="4xx"} 1.0' in text
    assert 'duckicelake_requests_total{method="other",route="/names/{name}",status="4xx"} 1.0' in text
    assert 'duckicelake_request_seconds_count{method="GET",route="/names/{name}"} 2.0' in text


def test_pool_gauges_show_used_idle_and_waiting(metrics: Metrics) -> None:
    text = metrics.render().decode()
    assert 'duckicelake_pool_connections{state="used"} 2.0' in text
    assert 'duckicelake_pool_connections{state="idle"} 3.0' in text
    assert "duckicelake_pool_waiting 2.0" in text


def test_unknown_report_types_share_one_label(metrics: Metrics) -> None:
    for report in ("scan-report", "made-up", "made-up-2"):
        metrics.report_received(report)
    text = metrics.render().decode()
    assert 'duckicelake_metrics_reports_total{report="scan-report"} 1.0' in text
    assert 'duckicelake_metrics_reports_total{report="other"} 2.0' in text


def test_logger_is_json_off_a_terminal_and_plain_on_request(log_stream: LogStream) -> None:
    make_logger(log_stream, "auto").info("hello", number=1)
    assert log_stream.lines()[0]["number"] == 1
    plain = LogStream()
    make_logger(plain, "console").info("hello", number=1)
    assert "hello" in plain.getvalue()
    assert "number=1" in plain.getvalue()
    assert sys.stderr.isatty() or "\x1b[" not in plain.getvalue()
