"""Routes and commands of what was dropped."""

import base64
from collections.abc import Callable

import duckdb
import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.services import Services
from duckicelake.lake.ducklake.dropped import set_retention
from duckicelake.server.app import create_app
from tests.support.client import Client

Serve = Callable[[FastAPI], httpx.Client]


@pytest.fixture
def http(services: Services, client: Client, serve: Serve) -> httpx.Client:
    with services.database.transaction() as cursor:
        set_retention(cursor, 3600)
    client.create()
    client.append((1, "a"))
    return serve(create_app(services))


def test_dropped_table_is_listed_and_comes_back(http: httpx.Client, client: Client) -> None:
    before = client.load()
    assert http.delete("/v1/namespaces/ns/tables/t").status_code == 204
    (item,) = http.get("/v1/dropped", params={"namespace": "ns"}).json()["dropped"]
    assert (item["kind"], item["namespace"], item["name"], item["purge-requested"]) == ("table", ["ns"], "t", False)
    assert item["uuid"] == before["metadata"]["table-uuid"]
    assert item["dropped-at"] < item["kept-until"]
    answer = http.post("/v1/namespaces/ns/undrop", json={"name": "t"})
    assert (answer.status_code, answer.json()["name"]) == (200, "t"), answer.text
    assert http.get("/v1/dropped").json() == {"dropped": [], "next-page-token": None}
    assert http.get("/v1/namespaces/ns/tables/t").json()["metadata"]["refs"] == before["metadata"]["refs"]


def test_list_of_what_was_dropped_has_pages(http: httpx.Client, client: Client) -> None:
    for number in range(5):
        client.create(f"t{number}")
        assert http.delete(f"/v1/namespaces/ns/tables/t{number}").status_code == 204
    names, token = [], ""
    while token is not None:
        page = http.get("/v1/dropped", params={"pageToken": token, "pageSize": 2}).json()
        names += [item["name"] for item in page["dropped"]]
        token = page["next-page-token"]
    assert names == ["t4", "t3", "t2", "t1", "t0"]
    for wrong in ("nonsense", base64.urlsafe_b64encode(b"after:" + b"9" * 30 + b".1").decode().rstrip("=")):
        assert http.get("/v1/dropped", params={"pageToken": wrong}).status_code == 400


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        ({"name": "t"}, 404, "no table ns.t was dropped within the time"),
        ({}, 400, "name is missing: say which table"),
        ({"kind": "index", "name": "t"}, 400, "kind"),
        ({"kind": "namespace", "name": "t"}, 400, "a namespace comes back under the path's name"),
        ({"kind": "namespace"}, 404, "no namespace ns was dropped"),
        ({"name": "t", "id": 99}, 404, "with id 99"),
        ({"name": "t", "what": 1}, 400, "what"),
    ],
)
def test_wrong_requests_say_what_is_wrong(
    http: httpx.Client, body: dict[str, object], status: int, problem: str
) -> None:
    answer = http.post("/v1/namespaces/ns/undrop", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, status)
    assert problem in answer.json()["error"]["message"]


def test_errors_say_how_it_can_be_brought_back(http: httpx.Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    def undrop(**body: str) -> tuple[int, str]:
        answer = http.post("/v1/namespaces/ns/undrop", json=body)
        return answer.status_code, answer.json()["error"]["message"]

    ducklake.execute("CREATE VIEW ns.v AS SELECT 1 AS i; DROP VIEW ns.v; CREATE TABLE ns.u AS SELECT 1 AS i")
    ducklake.execute("DROP TABLE ns.u; CREATE TABLE ns.u AS SELECT 2 AS i")
    status, problem = undrop(name="v")
    assert (status, "but the view ns.v was (id" in problem) == (404, True), problem
    assert "but the table ns.u was (id" in undrop(name="U")[1]
    status, problem = undrop(name="u")
    assert (status, problem) == (409, "Table already exists: ns.u; bring it back under another name: new-name, or --as")
    ducklake.execute("DROP SCHEMA ns CASCADE")
    status, problem = undrop(name="t")
    assert (status, problem.partition("; ")[2]) == (404, "bring that back first, if it was dropped, or create it")


@pytest.mark.parametrize("value", ["yes", "1", ""])
def test_protection_of_a_namespace_is_true_or_false(http: httpx.Client, value: str) -> None:
    properties = {"ducklake.protected": value}
    for path, body in (
        ("/v1/namespaces", {"namespace": ["other"], "properties": properties}),
        ("/v1/namespaces/ns/properties", {"updates": properties}),
    ):
        answer = http.post(path, json=body)
        assert (answer.status_code, "true or false" in answer.json()["error"]["message"]) == (400, True), answer.text


def test_request_that_comes_again_with_its_key_brings_back_once(http: httpx.Client) -> None:
    key = {"Idempotency-Key": "01890a5d-ac96-774b-8cce-b302099a8057"}
    assert http.delete("/v1/namespaces/ns/tables/t").status_code == 204
    first, second = (http.post("/v1/namespaces/ns/undrop", json={"name": "t"}, headers=key) for _ in range(2))
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert first.status_code == 200


def test_what_may_go_at_once_goes(http: httpx.Client) -> None:
    assert http.delete("/v1/namespaces/ns/tables/t", params={"purgeRequested": "true"}).status_code == 204
    (item,) = http.get("/v1/dropped").json()["dropped"]
    assert item["purge-requested"] is True
    assert http.delete(f"/v1/dropped/table/{item['id']}").status_code == 204
    assert http.get("/v1/dropped").json()["dropped"] == []
    assert http.delete(f"/v1/dropped/table/{item['id']}").status_code == 404
    for wrong in ("table/99999999999999999999", "table/-1", "table/x", "index/1"):
        assert http.delete(f"/v1/dropped/{wrong}").status_code == 400, wrong
