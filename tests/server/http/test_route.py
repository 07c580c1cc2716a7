"""Routes that take requests apart by themselves answer as FastAPI would: refusals of all kinds, asked of both."""

import io
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import httpx
import orjson
import pytest
from fastapi import Cookie, Depends, FastAPI, Header, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field

from duckicelake.catalog.context.services import Services
from duckicelake.errors import CommitFailedError
from duckicelake.server.api import App, create_routes
from duckicelake.server.app import Edge, create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.hooks import list_needs
from duckicelake.server.http.errors import install_error_handlers
from duckicelake.server.http.route import FastRoute, FastRouter, StrictRoute
from duckicelake.server.middleware.requests import RequestLog, RequestLogMiddleware
from duckicelake.server.routes.dependencies import guard_routes
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.server.telemetry.metrics import Metrics
from tests.support.client import SCHEMA, Json, new_client
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import Serve

LIMIT = 4096
NAMES = [("ns", "t"), ("ns", "missing"), ("nope", "t"), ("%1F", "t"), ("ns", "%00"), ("n%2Fs", "a%2Fb")]
KEYS = ["", "no uuid", "919108f7-52d1-4320-9bac-f847db4148a8", "01890a5d-ac96-774b-8cce-b302099a8057"]
MISSING = {"namespace": ["ns"], "name": "missing"}
BODIES: list[Json] = [
    {},
    {"name": "u", "schema": SCHEMA},
    {"requirements": [], "updates": []},
    {"requirements": [{"type": "nonsense"}], "updates": [{"action": "nonsense"}]},
    {"table-changes": [{"identifier": MISSING, "requirements": [], "updates": []}]},
    {"table-changes": [{"requirements": [], "updates": []}]},
]
SPOILT = [b"", b"{", b"[]", b'{"name": "\\u0000"}', b"\xff", b" " * (LIMIT + 1)]

Asked = tuple[str, str, bytes | Iterator[bytes], dict[str, str]]
"""(Method, path, body, headers)"""


def quick_routes(app: FastAPI) -> list[FastRoute]:
    return [route for route in app.router.routes if isinstance(route, FastRoute)]


def as_fastapi_serves(app: App) -> App:
    """The app without its short way."""
    described = ("endpoint", "methods", "status_code", "response_model")
    slow = [
        (StrictRoute if isinstance(each, StrictRoute) else APIRoute)(
            each.path, **{name: getattr(each, name) for name in described}
        )
        for each in quick_routes(create_routes())
    ]
    app.fast_router = None
    app.router.routes[:] = [
        *guard_routes(slow, list_needs()),
        *(each for each in app.router.routes if not isinstance(each, FastRoute)),
    ]
    return app


def refused(route: FastRoute) -> Iterator[Asked]:
    """What changes nothing."""
    paths = [route.path.replace("{namespace}", namespace).replace("{table}", table) for namespace, table in NAMES]
    there, missing, *_ = [*dict.fromkeys(paths), route.path]
    for path in dict.fromkeys(paths):
        yield "POST", path, b"{", {}
    for method in ("HEAD", "PATCH", "PUT", "OPTIONS"):
        yield method, there, b"", {}
    for body in (*SPOILT, *map(orjson.dumps, BODIES)):
        yield "POST", missing, body, {"Content-Type": "application/json"}
    for key in KEYS:
        yield "POST", missing, b"{}", {"Idempotency-Key": key}
    yield "POST", f"{there}/", b"{}", {}
    yield "POST", f"{missing}?mode=none&sequence=-1&sequence=x&unknown=1", b"[]", {}
    yield "POST", missing, iter([b"x" * LIMIT] * 2), {}
    yield "POST", there, b"{}", {"Authorization": "none"}
    yield "POST", there, b"{}", {"Authorization": "Bearer wrong"}


def answer_to(http: httpx.Client, asked: Asked) -> Json:
    method, path, body, headers = asked
    answer = http.request(method, path, content=body, headers=headers)
    report = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
    return {"status": answer.status_code, "headers": report, "body": answer.text}


def test_refusals_are_those_of_fastapi(services: Services, serve: Serve) -> None:
    new_client(services).create()
    server = Server()
    who = server.authentication(OAuthClient("ann", SECRET, ("*",)), OAuthClient("bob", SECRET, ("ns:elsewhere:*",)))
    quick = create_app(services, edge=Edge(max_body_bytes=LIMIT), authentication=who)
    slow = as_fastapi_serves(create_app(services, edge=Edge(max_body_bytes=LIMIT), authentication=who))
    routes = quick_routes(quick)
    served, expected = serve(quick), serve(slow)
    ann, bob = bearing(token(served, "ann")), bearing(token(served, "bob"))
    assert {route.name for route in routes} >= {"commit_table", "commit", "report_metrics", "create_table"}
    for route in routes:
        statuses = set()
        for one, other in zip(refused(route), refused(route), strict=True):
            headers = ann | one[3]
            answer = answer_to(served, (*one[:3], headers))
            assert answer == answer_to(expected, (*other[:3], headers)), one
            statuses.add(answer["status"])
        assert statuses >= {400, 401, 404, 405, 413} - ({404} if "namespace" not in route.path else set()), route
        without_rights: Asked = ("POST", route.path.format(namespace="ns", table="t"), orjson.dumps(BODIES[-2]), bob)
        answer = answer_to(served, without_rights)
        assert answer == answer_to(expected, without_rights)


# --- Signatures


class Wanted(BaseModel):
    """A query."""

    size: int = Field(1, ge=1, alias="page-size", description="how many")
    mode: str | None = None


async def of_name(name: str) -> str:
    return name.upper()


async def of_header(x_word: Annotated[str | None, Header()] = None) -> str:
    return x_word or "none"


async def both(
    upper: Annotated[str, Depends(of_name)],
    word: Annotated[str, Depends(of_header)],
    words: Annotated[list[str] | None, Header(alias="x-many")] = None,
) -> list[Any]:
    return [upper, word, words]


def in_a_thread(
    request: Request,
    upper: Annotated[str, Depends(of_name)],
    all_of_it: Annotated[list[Any], Depends(both)],
    wanted: Annotated[Wanted, Query()],
) -> Response:
    """Tell everything."""
    if upper == "CONFLICT":
        raise CommitFailedError("somebody was quicker")
    if upper == "BUG":
        raise RuntimeError("secret detail")
    report = [request.method, upper, all_of_it, wanted.size, wanted.mode]
    return Response(orjson.dumps(report), media_type="application/json")


async def in_the_loop(name: Annotated[str, Depends(of_name)]) -> Response:
    return Response(name)


ENDPOINTS: dict[str, Callable[..., Any]] = {"/thread/{name}": in_a_thread, "/loop/{name}": in_the_loop}


def app_of(route_class: type[APIRoute]) -> App:
    app = App(redirect_slashes=False)
    app.router.route_class = route_class
    for path, endpoint in ENDPOINTS.items():
        app.post(path)(endpoint)
    install_error_handlers(app)
    app.fast_router = FastRouter(app)
    return app


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/thread/a", {}, 200),
        ("/thread/a?page-size=3&mode=x&mode=y", {"X-Word": "b"}, 200),
        ("/thread/a", {"X-Many": "1,2"}, 200),
        ("/thread/a?page-size=0", {}, 400),
        ("/thread/conflict", {}, 409),
        ("/loop/a", {}, 200),
        ("/loop/a/b", {}, 404),
    ],
)
def test_signatures_mean_what_they_mean_to_fastapi(
    serve: Serve, path: str, headers: dict[str, str], status: int
) -> None:
    quick, slow = (answer_to(serve(app_of(kind)), ("POST", path, b"", headers)) for kind in (FastRoute, APIRoute))
    assert quick == slow
    assert quick["status"] == status


def test_bug_is_answered_by_the_edge(serve: Serve) -> None:
    register = RequestLog(Metrics(dict), make_logger(io.StringIO()))
    answer = serve(RequestLogMiddleware(app_of(FastRoute), register)).post("/thread/bug")
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] in answer.json()["error"]["message"]
    assert "secret detail" not in answer.text


def test_description_is_that_of_fastapi() -> None:
    assert app_of(FastRoute).openapi() == app_of(APIRoute).openapi()


def with_number(number: int) -> Response:
    return Response()


def with_default(name: str = "") -> Response:
    return Response()


def with_loose_query(size: Annotated[int, Query()]) -> Response:
    return Response()


def with_number_in_header(size: Annotated[int, Header()]) -> Response:
    return Response()


def with_cookie(cookie: Annotated[str, Cookie()]) -> Response:
    return Response()


def with_thread_to_depend_on(app: Annotated[Response, Depends(with_default)]) -> Response:
    return Response()


@pytest.mark.parametrize(
    "endpoint",
    [with_number, with_default, with_loose_query, with_number_in_header, with_cookie, with_thread_to_depend_on],
)
def test_what_only_fastapi_understands_is_refused_when_the_route_is_made(endpoint: Any) -> None:
    with pytest.raises(TypeError):
        FastRoute("/path", endpoint)
