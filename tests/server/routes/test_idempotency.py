"""The Idempotency-Key header on a live server: what clients that retry rely on."""

import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.services import Services
from duckicelake.server.api import create_routes
from duckicelake.server.app import create_app
from duckicelake.server.routes.catalog import ENDPOINTS
from tests.support.client import SCHEMA, Client, Json, append, new_client, pyiceberg_rows, set_properties
from tests.support.cutting_proxy import CuttingProxy, cutting

TABLE = "/v1/namespaces/ns/tables/t"
KEY = "idempotency-key"
WITHOUT_KEYS = {
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/sign",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/tasks",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan/{plan-id}",
}
"""POST or DELETE, but nothing in the catalog is changed by it."""


def uuid7() -> str:
    """A key as Iceberg's clients make them (RFC 9562)."""
    moment = time.time_ns() // 1_000_000
    return str(UUID(int=moment << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)))


@pytest.fixture
def client(services: Services) -> Client:
    return new_client(services)


@pytest.fixture
def http(services: Services, client: Client, serve: Callable[[FastAPI], httpx.Client]) -> httpx.Client:
    client.create()
    return serve(create_app(services))


@pytest.fixture
def proxy(http: httpx.Client) -> Iterator[CuttingProxy]:
    with cutting(str(http.base_url)) as running:
        yield running


def envelope(answer: httpx.Response) -> tuple[int, str]:
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    return answer.status_code, error["type"]


def test_config_shows_how_long_a_key_holds(http: httpx.Client) -> None:
    assert http.get("/v1/config").json()["idempotency-key-lifetime"] == "PT30M"


def test_every_route_that_changes_something_takes_a_key() -> None:
    changing = {endpoint for endpoint in ENDPOINTS if endpoint.startswith(("POST", "DELETE"))} - WITHOUT_KEYS
    paths: Json = create_routes().openapi()["paths"]
    taking = {
        endpoint
        for endpoint in ENDPOINTS
        for method, path in [endpoint.replace("/{prefix}", "").replace("-id}", "_id}").split()]
        if KEY in {parameter["name"] for parameter in paths[path][method.lower()].get("parameters", ())}
    }
    assert taking == changing


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", "36 characters"),
        ("nonsense", "36 characters"),
        ("01890a5d-ac96-774b-8cce-b302099a80570", "36 characters"),
        ("01890a5dac96774b8cceb302099a8057", "36 characters"),
        ("{1890a5d-ac96-774b-8cce-b302099a805}", "36 characters"),
        ("919108f7-52d1-4320-9bac-f847db4148a8", "not of version 4"),
        ("01890a5d-ac96-774b-0cce-b302099a8057", "not of no version"),
    ],
)
def test_key_that_is_none_is_400_and_nothing_runs(http: httpx.Client, key: str, problem: str) -> None:
    answer = http.delete(TABLE, headers={KEY: key})
    assert envelope(answer) == (400, "BadRequestException")
    assert problem in answer.json()["error"]["message"]
    assert http.head(TABLE).status_code == 204


def test_key_counts_however_it_is_spelled(http: httpx.Client) -> None:
    key = uuid7()
    assert http.delete(TABLE, headers={KEY: key.upper()}).status_code == 204
    assert http.delete(TABLE, headers={KEY: key}).status_code == 204
    assert envelope(http.delete(TABLE))[0] == 404


# --- The answer gets lost after COMMIT


def test_commit_whose_answer_was_lost_is_made_once(http: httpx.Client, client: Client, proxy: CuttingProxy) -> None:
    request: dict[str, Any] = {"json": append(client.metadata(), (1, "one")), "headers": {KEY: uuid7()}}
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(proxy.uri + TABLE, **request, timeout=60)
    committed = client.load()
    assert pyiceberg_rows(committed) == [(1, "one")]
    again = httpx.post(proxy.uri + TABLE, **request, timeout=60)
    assert again.status_code == 200
    assert again.json() == {name: committed[name] for name in ("metadata-location", "metadata")}
    assert again.headers["etag"] == http.get(TABLE).headers["etag"]
    assert len(again.json()["metadata"]["snapshots"]) == 1


LOST: dict[str, tuple[str, str, Json | None, int]] = {
    "create namespace": ("POST", "/v1/namespaces", {"namespace": ["a"], "properties": {"k": "v"}}, 200),
    "drop namespace": ("DELETE", "/v1/namespaces/empty", None, 204),
    "properties": ("POST", "/v1/namespaces/empty/properties", {"removals": ["k", "x"], "updates": {"l": "1"}}, 200),
    "create table": ("POST", "/v1/namespaces/ns/tables", {"name": "u", "schema": SCHEMA}, 200),
    "drop table": ("DELETE", TABLE, None, 204),
    "rename table": (
        "POST",
        "/v1/tables/rename",
        {"source": {"namespace": ["ns"], "name": "t"}, "destination": {"namespace": ["ns"], "name": "u"}},
        204,
    ),
}


@pytest.mark.parametrize(("method", "path", "body", "status"), LOST.values(), ids=LOST)
def test_request_whose_answer_was_lost_succeeds_when_sent_again(
    http: httpx.Client, proxy: CuttingProxy, method: str, path: str, body: Json | None, status: int
) -> None:
    http.post("/v1/namespaces", json={"namespace": ["empty"], "properties": {"k": "v"}}).raise_for_status()
    with httpx.Client(base_url=proxy.uri, timeout=60) as through:
        headers = {KEY: uuid7()}
        with pytest.raises(httpx.RemoteProtocolError):
            through.request(method, path, json=body, headers=headers)
        again = through.request(method, path, json=body, headers=headers)
        more = through.request(method, path, json=body, headers=headers)
    assert (again.status_code, again.content) == (more.status_code, more.content)
    assert again.status_code == status
    if path.endswith("properties"):
        assert again.json() == {"updated": ["l"], "removed": ["k"], "missing": ["x"]}


# --- Refusals, misuse, races


def test_refusal_is_answered_again_as_it_was(http: httpx.Client) -> None:
    headers, body = {KEY: uuid7()}, {"name": "t", "schema": SCHEMA}
    first = http.post("/v1/namespaces/ns/tables", json=body, headers=headers)
    assert envelope(first) == (409, "AlreadyExistsException")
    http.delete(TABLE).raise_for_status()
    again = http.post("/v1/namespaces/ns/tables", json=body, headers=headers)
    assert (again.status_code, again.content) == (409, first.content)
    assert http.head(TABLE).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", TABLE, set_properties(k="w")),
        ("POST", "/v1/namespaces/ns/tables/other", set_properties(k="v")),
        ("DELETE", TABLE, None),
        ("DELETE", f"{TABLE}?purgeRequested=true", None),
    ],
)
def test_key_of_another_request_is_422_and_nothing_runs(
    http: httpx.Client, client: Client, method: str, path: str, body: Json | None
) -> None:
    headers = {KEY: uuid7()}
    http.post(TABLE, json=set_properties(k="v"), headers=headers).raise_for_status()
    before = client.load()
    answer = http.request(method, path, json=body, headers=headers)
    assert envelope(answer) == (422, "UnprocessableEntityException")
    assert headers[KEY] in answer.json()["error"]["message"]
    assert client.load() == before


def test_same_request_many_times_at_once_is_made_once(http: httpx.Client, client: Client) -> None:
    body, headers = append(client.metadata(), (1, "one")), {KEY: uuid7()}
    with ThreadPoolExecutor(6) as pool:
        sent = [pool.submit(http.post, TABLE, json=body, headers=headers, timeout=30) for _ in range(6)]
        answers = [each.result() for each in sent]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert pyiceberg_rows(client.load()) == [(1, "one")]
