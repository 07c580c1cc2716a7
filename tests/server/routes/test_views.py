"""The routes of views over HTTP: statuses, envelopes, names in paths, pages and idempotency keys."""

import re
from typing import Any

import httpx
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchViewError

from duckicelake.catalog.context.services import Services
from duckicelake.server.app import create_app
from tests.support.servers import Serve
from tests.support.view_requests import CITY, ID, SPARK, creation, replacement, schema, set_properties, version

VIEWS = "/v1/namespaces/ns/views"
KEY = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@pytest.fixture
def client(services: Services, serve: Serve) -> httpx.Client:
    opened = serve(create_app(services))
    opened.post("/v1/namespaces", json={"namespace": ["ns"]})
    return opened


@pytest.fixture
def catalog(client: httpx.Client) -> Catalog:
    return load_catalog("lake", type="rest", uri=str(client.base_url))


@pytest.fixture
def view(client: httpx.Client) -> str:
    """The path of a view that exists."""
    assert client.post(VIEWS, json=creation("v")).status_code == 200
    return f"{VIEWS}/v"


def error(response: httpx.Response) -> tuple[int, str]:
    body = response.json()["error"]
    assert body["code"] == response.status_code
    return response.status_code, body["type"]


def names(source: str, target: str, namespace: str = "ns") -> Any:
    return {
        "source": {"namespace": ["ns"], "name": source},
        "destination": {"namespace": [namespace], "name": target},
    }


def test_view_lives_from_create_to_drop(client: httpx.Client) -> None:
    created = client.post(VIEWS, json=creation("v"))
    assert (created.status_code, set(created.json())) == (200, {"metadata-location", "metadata", "config"})
    assert client.get(f"{VIEWS}/v").json() == created.json()
    head = client.head(f"{VIEWS}/v")
    assert (head.status_code, head.content) == (204, b"")
    assert client.get(VIEWS).json() == {"identifiers": [{"namespace": ["ns"], "name": "v"}], "next-page-token": None}
    assert client.get("/v1/namespaces/ns/tables").json()["identifiers"] == []
    committed = client.post(f"{VIEWS}/v", json={"updates": [set_properties(a="1")]})
    assert committed.json()["metadata"]["properties"] == {"a": "1"}
    assert client.post("/v1/views/rename", json=names("v", "w")).status_code == 204
    assert client.head(f"{VIEWS}/v").status_code == 404
    assert client.delete(f"{VIEWS}/w").status_code == 204
    assert client.head(f"{VIEWS}/w").status_code == 404
    again = {"name": "x", "metadata-location": committed.json()["metadata-location"]}
    registered = client.post("/v1/namespaces/ns/register-view", json=again)
    assert (registered.status_code, registered.json()) == (200, committed.json())


def test_answers_are_private(client: httpx.Client, view: str) -> None:
    assert client.get(view).headers["cache-control"] == "private"


def test_missing_view_is_404_for_every_verb(client: httpx.Client) -> None:
    path, expected = f"{VIEWS}/nope", (404, "NoSuchViewException")
    assert error(client.get(path)) == expected
    assert error(client.delete(path)) == expected
    assert error(client.post(path, json={"updates": []})) == expected
    assert error(client.post("/v1/views/rename", json=names("nope", "other"))) == expected
    assert client.head(path).status_code == 404


def test_missing_namespace_is_404(client: httpx.Client, view: str) -> None:
    expected = (404, "NoSuchNamespaceException")
    assert error(client.get("/v1/namespaces/nope/views")) == expected
    assert error(client.post("/v1/namespaces/nope/views", json=creation("v"))) == expected
    assert error(client.post("/v1/views/rename", json=names("v", "v", "nope"))) == expected


def test_name_that_is_taken_is_409(client: httpx.Client, view: str) -> None:
    expected = (409, "AlreadyExistsException")
    table = {"name": "t", "schema": schema()}
    assert client.post("/v1/namespaces/ns/tables", json=table).status_code == 200
    for name in ("v", "t"):
        assert error(client.post(VIEWS, json=creation(name))) == expected
    assert error(client.post("/v1/namespaces/ns/tables", json={**table, "name": "v"})) == expected
    assert error(client.post("/v1/namespaces/ns/tables", json={**table, "name": "v", "stage-create": True})) == expected
    assert error(client.post("/v1/views/rename", json=names("v", "t"))) == expected
    assert error(client.post("/v1/tables/rename", json=names("t", "v"))) == expected


def test_creating_a_table_by_a_commit_is_409_where_a_view_has_the_name(client: httpx.Client) -> None:
    body = {"name": "v", "schema": schema(), "stage-create": True}
    staged = client.post("/v1/namespaces/ns/tables", json=body).json()["metadata"]
    client.post(VIEWS, json=creation("v"))
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "set-location", "location": staged["location"]},
        {"action": "add-schema", "schema": schema()},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    commit = {"requirements": [{"type": "assert-create"}], "updates": updates}
    answer = client.post("/v1/namespaces/ns/tables/v", json=commit)
    assert error(answer) == (409, "AlreadyExistsException")
    assert answer.json()["error"]["message"] == "View with same name already exists: ns.v"


def test_namespace_with_a_view_is_409(client: httpx.Client, view: str) -> None:
    assert error(client.delete("/v1/namespaces/ns")) == (409, "NamespaceNotEmptyException")


def test_requirement_that_fails_is_409(client: httpx.Client, view: str) -> None:
    requirement = {"type": "assert-view-uuid", "uuid": KEY}
    answer = client.post(view, json={"requirements": [requirement], "updates": [set_properties(a="1")]})
    assert error(answer) == (409, "CommitFailedException")
    assert answer.json()["error"]["message"].startswith("Requirement failed: view UUID does not match: expected ")


TWICE = [{"type": "sql", "sql": sql, "dialect": "trino"} for sql in ("SELECT 1", "SELECT 2")]


@pytest.mark.parametrize(
    ("body", "kind", "problem"),
    [
        ({"view-version": version(SPARK, representations=TWICE)}, "IllegalArgumentException", "dialect trino"),
        (
            {"properties": {"version.history.num-entries": "0"}},
            "IllegalArgumentException",
            "must be positive but was 0",
        ),
        ({"schema": schema(ID, {**CITY, "id": 1})}, "BadRequestException", "ids are unique"),
        ({"view-version": None}, "BadRequestException", "view-version"),
        ({"schema": None}, "BadRequestException", "schema"),
        ({"name": ""}, "BadRequestException", "empty"),
        ({"view-version": version(SPARK, representations=[{"type": "plan"}])}, "BadRequestException", "type"),
        ({"location": "s3://elsewhere/v"}, "BadRequestException", "s3://elsewhere/v"),
    ],
)
def test_view_that_breaks_a_rule_is_400(client: httpx.Client, body: Any, kind: str, problem: str) -> None:
    answer = client.post(VIEWS, json=creation("v") | body)
    assert error(answer) == (400, kind)
    assert problem in answer.json()["error"]["message"]
    assert client.get(VIEWS).json()["identifiers"] == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"updates": [{"action": "add-snapshot"}]}, "'add-snapshot' is for tables"),
        ({"updates": [{"action": "explode"}]}, "a view takes assign-uuid"),
        ({"requirements": [{"type": "assert-create"}], "updates": []}, "'assert-create' is for tables"),
        ({"requirements": []}, "updates"),
        ({"updates": [{"action": "set-current-view-version", "view-version-id": -1}]}, "Cannot set last version id"),
    ],
)
def test_commit_that_no_view_takes_is_400(client: httpx.Client, view: str, body: Any, problem: str) -> None:
    answer = client.post(view, json=body)
    assert answer.status_code == 400
    assert problem in answer.json()["error"]["message"]


@pytest.mark.parametrize("update", replacement(SPARK)[1:])
def test_update_of_views_is_400_for_a_table(client: httpx.Client, update: Any) -> None:
    client.post("/v1/namespaces/ns/tables", json={"name": "t", "schema": schema()})
    answer = client.post("/v1/namespaces/ns/tables/t", json={"requirements": [], "updates": [update]})
    assert error(answer) == (400, "BadRequestException")
    assert "is for views" in answer.json()["error"]["message"]


def test_pages_follow_each_other(client: httpx.Client) -> None:
    for name in ("a", "b", "c"):
        client.post(VIEWS, json=creation(name))
    first = client.get(VIEWS, params={"pageToken": "", "pageSize": 2}).json()
    second = client.get(VIEWS, params={"pageToken": first["next-page-token"], "pageSize": 2}).json()
    assert [each["name"] for each in first["identifiers"] + second["identifiers"]] == ["a", "b", "c"]
    assert second["next-page-token"] is None
    assert error(client.get(VIEWS, params={"pageSize": 0})) == (400, "BadRequestException")


@pytest.mark.parametrize("name", ["a b", "ü/1", "v.1 %", "x%2Fy", '"q"'])
def test_odd_names_are_names(client: httpx.Client, catalog: Catalog, name: str) -> None:
    client.post(VIEWS, json=creation(name))
    assert catalog.list_views("ns") == [("ns", name)]
    assert catalog.view_exists(("ns", name))
    catalog.drop_view(("ns", name))
    assert not catalog.view_exists(("ns", name))


def test_pyiceberg_loads_and_drops_views(client: httpx.Client, catalog: Catalog, view: str) -> None:
    loaded = catalog.load_view(("ns", "v"))
    assert [field.name for field in loaded.schema().fields] == ["id", "city"]
    assert loaded.sql_for("spark").sql == SPARK["spark"]
    catalog.drop_view(("ns", "v"))
    with pytest.raises(NoSuchViewError):
        catalog.drop_view(("ns", "v"))


def test_request_with_a_key_runs_once(client: httpx.Client, view: str) -> None:
    def send(method: str, path: str, number: int, body: Any = None) -> httpx.Response:
        key = KEY[:-1] + str(number)
        return client.request(method, path, json=body, headers={"Idempotency-Key": key})

    before = client.get(view).json()
    acts = [
        ("POST", view, {"updates": replacement({"spark": "SELECT 2"})}),
        ("POST", view, {"updates": [set_properties()]}),
        ("POST", "/v1/views/rename", names("v", "w")),
        ("DELETE", f"{VIEWS}/w", None),
        ("POST", "/v1/namespaces/ns/register-view", {"name": "v", "metadata-location": before["metadata-location"]}),
        ("DELETE", f"{VIEWS}/nope", None),
    ]
    first = [send(method, path, number, body) for number, (method, path, body) in enumerate(acts)]
    assert [answer.status_code for answer in first] == [200, 200, 204, 204, 200, 404]
    again = [send(method, path, number, body) for number, (method, path, body) in enumerate(acts)]
    assert [(answer.status_code, answer.content) for answer in again] == [(a.status_code, a.content) for a in first]
    assert client.get(view).json() == before
    assert error(send("DELETE", view, 0)) == (422, "UnprocessableEntityException")


def test_config_lists_the_view_endpoints(client: httpx.Client) -> None:
    endpoints = client.get("/v1/config").json()["endpoints"]
    assert len([each for each in endpoints if re.search(r"/(views|register-view)", each)]) == 8
