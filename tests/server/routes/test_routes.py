"""The routes on a live server: what the specification says of paths, statuses, headers and bodies."""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from duckicelake.catalog.context.services import Services
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.database import Database
from duckicelake.server.api import create_routes, render_document
from duckicelake.server.app import create_app
from duckicelake.server.routes.catalog import ENDPOINTS
from duckicelake.storage.local import LocalStore

OPENAPI = Path(__file__).parents[3] / "openapi" / "duckicelake.json"
OPERATIONS = {"/healthz", "/readyz", "/metrics", "/v1/config", "/v1/oauth/tokens"}
OUR_OWN = re.compile(
    r"^/management/|^/pipeline/|^/$|^/.well-known/|^/ui(/|$)|^/lineage/|^/sql/|^/duckdb/|^/mcp/|^/api/v1/"
    r"|^/v1/events$|^/v1/(.+/)?history$|/tables/{table}/rows(/|$)|/materialized-views(/|$)|/query-results$"
    r"|/actions$|^/v1/(whoami|search|oauth/logins)$|^/v1/(dropped|audit|doctor|orphans)|/{namespace}/(clone|rename|undrop)$|/tables/{table}/(restore|expire|explain|diff|snapshots|changes)$"
)
SPECIFIED_BY_OTHERS = re.compile("^/$|^/.well-known/|^/ui(/|$)|^/api/v1/")

Serve = Callable[[FastAPI], httpx.Client]


@pytest.fixture
def client(services: Services, serve: Serve) -> httpx.Client:
    return serve(create_app(services, warehouses=["my-lake"]))


@pytest.fixture
def catalog(client: httpx.Client) -> Catalog:
    return load_catalog("lake", type="rest", uri=str(client.base_url))


@pytest.fixture
def table(client: httpx.Client, catalog: Catalog) -> str:
    """The path of a table that exists."""
    catalog.create_namespace("ns")
    catalog.create_table("ns.t", Schema(NestedField(1, "id", LongType(), required=False)))
    return "/v1/namespaces/ns/tables/t"


@pytest.fixture
def dead_database() -> Iterator[Database]:
    with closing(open_lake_database("postgresql://127.0.0.1:1/nothing", 1)) as database:
        yield database


def error(response: httpx.Response) -> tuple[int, str]:
    body = response.json()["error"]
    assert body["code"] == response.status_code
    return response.status_code, body["type"]


def served() -> set[str]:
    """What is Iceberg's of the routes."""
    routes = [route for route in create_routes().router.routes if isinstance(route, APIRoute)]
    icebergs = [route for route in routes if route.path not in OPERATIONS and not OUR_OWN.search(route.path)]
    return {f"{method} {spell_as_iceberg(route.path)}" for route in icebergs for method in route.methods or ()}


def spell_as_iceberg(path: str) -> str:
    """A parameter's name with a hyphen, which Python's names can't have."""
    return path.replace("_id}", "-id}")


def test_advertised_endpoints_are_exactly_the_routes() -> None:
    assert {endpoint.replace("/{prefix}", "") for endpoint in ENDPOINTS} == served()
    assert len(set(ENDPOINTS)) == len(ENDPOINTS)


def test_parameter_that_a_route_of_ours_does_not_know_is_refused_and_one_of_others_overlooked(
    client: httpx.Client,
) -> None:
    for route in filter(lambda each: isinstance(each, APIRoute), create_routes().router.routes):
        is_refused = OUR_OWN.search(route.path) and not SPECIFIED_BY_OTHERS.search(route.path)
        for method in sorted(route.methods or ()):
            answer = client.request(method, re.sub(r"{.*?}", "nope", route.path), params={"nope": "1"})
            reported = "query.nope: there is no such parameter; this route takes" in answer.text
            assert reported == bool(is_refused), (method, route.path, answer.text)
    message = client.get("/pipeline/v1/tables", params={"tabel": "t"}).json()["error"]["message"]
    assert message.endswith("this route takes namespace, pageSize, pageToken, table")


def test_advertised_endpoints_are_in_the_specifications_form() -> None:
    for endpoint in ENDPOINTS:
        assert re.fullmatch(r"(GET|HEAD|POST|DELETE) /v1/\{prefix\}/[a-z{}/-]+", endpoint)


def test_openapi_file_is_what_the_app_serves() -> None:
    assert render_document(create_routes()) == OPENAPI.read_text(), "run scripts/openapi"


def test_openapi_describes_each_endpoint_and_no_422_of_the_framework() -> None:
    document: dict[str, Any] = json.loads(OPENAPI.read_text())
    described = {
        f"{verb.upper()} {spell_as_iceberg(path)}" for path, verbs in document["paths"].items() for verb in verbs
    }
    assert served() <= described
    assert "HTTPValidationError" not in document["components"]["schemas"]
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', OPENAPI.read_text()))
    assert references <= set(document["components"]["schemas"])


@pytest.mark.parametrize("asked", [None, "", "duckicelake", "my-lake", "<location>", "<location>/"])
def test_config_of_the_one_warehouse_lists_endpoints(
    client: httpx.Client, services: Services, asked: str | None
) -> None:
    params = {} if asked is None else {"warehouse": asked.replace("<location>", services.policy.warehouse)}
    answer = client.get("/v1/config", params=params)
    assert answer.status_code == 200
    assert answer.json() == {
        "defaults": {},
        "overrides": {},
        "endpoints": list(ENDPOINTS),
        "idempotency-key-lifetime": "PT30M",
    }


def test_config_of_another_warehouse_is_404(client: httpx.Client) -> None:
    assert error(client.get("/v1/config?warehouse=other")) == (404, "NoSuchWarehouseException")


def test_namespace_lives_from_create_to_drop(client: httpx.Client) -> None:
    created = client.post("/v1/namespaces", json={"namespace": ["a"], "properties": {"k": "v"}})
    where = {"location": created.json()["properties"]["location"]}
    assert (created.status_code, created.json()) == (200, {"namespace": ["a"], "properties": {"k": "v", **where}})
    assert error(client.post("/v1/namespaces", json={"namespace": ["a"]})) == (409, "AlreadyExistsException")
    head = client.head("/v1/namespaces/a")
    assert (head.status_code, head.content) == (204, b"")
    changed = client.post("/v1/namespaces/a/properties", json={"removals": ["k", "x"], "updates": {"n": "1"}})
    assert changed.json() == {"updated": ["n"], "removed": ["k"], "missing": ["x"]}
    assert client.get("/v1/namespaces/a").json() == {"namespace": ["a"], "properties": {"n": "1", **where}}
    dropped = client.delete("/v1/namespaces/a")
    assert (dropped.status_code, dropped.content) == (204, b"")
    assert error(client.get("/v1/namespaces/a")) == (404, "NoSuchNamespaceException")
    assert client.head("/v1/namespaces/a").status_code == 404


def test_a_namespace_says_where_its_tables_go_unless_it_has_a_place(client: httpx.Client) -> None:
    """Trino makes no table where none is said."""
    client.post("/v1/namespaces", json={"namespace": ["a"]})
    said = client.get("/v1/namespaces/a").json()["properties"]["location"]
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
    made = client.post("/v1/namespaces/a/tables", json={"name": "t", "schema": schema}).json()["metadata"]
    assert made["location"].startswith(f"{said}/t-")
    place = f"{said}/elsewhere"
    client.post("/v1/namespaces/a/properties", json={"updates": {"location": place}})
    assert client.get("/v1/namespaces/a").json()["properties"] == {"location": place}


def test_a_table_of_files_that_ducklake_does_not_read_is_refused(client: httpx.Client) -> None:
    client.post("/v1/namespaces", json={"namespace": ["a"]})
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
    request = {"name": "t", "schema": schema, "properties": {"write.format.default": "ORC"}}
    answer = client.post("/v1/namespaces/a/tables", json=request)
    assert "file-formats" in answer.json()["error"]["message"]
    assert (answer.status_code, client.head("/v1/namespaces/a/tables/t").status_code) == (406, 404)
    request["properties"] = {"write.format.default": "PARQUET"}
    assert client.post("/v1/namespaces/a/tables", json=request).status_code == 200


def test_key_both_removed_and_updated_is_422(client: httpx.Client) -> None:
    client.post("/v1/namespaces", json={"namespace": ["a"]})
    answer = client.post("/v1/namespaces/a/properties", json={"removals": ["k"], "updates": {"k": "1"}})
    assert error(answer) == (422, "UnprocessableEntityException")


@pytest.mark.parametrize(
    ("segment", "levels"),
    [
        ("a%1Fb", ["a", "b"]),
        ("a%1fb", ["a", "b"]),
        ("x%2Fy", ["x/y"]),
        ("a%20b", ["a b"]),
        ("a+b", ["a b"]),
        ("a%2Bb", ["a+b"]),
        ("100%25", ["100%"]),
        ("gr%C3%B6%C3%9Fe%1F%E6%97%A5", ["größe", "日"]),
        ("a.b%1Fc", ["a.b", "c"]),
    ],
)
def test_namespace_in_a_path_is_decoded_level_by_level(client: httpx.Client, segment: str, levels: list[str]) -> None:
    client.post("/v1/namespaces", json={"namespace": levels}).raise_for_status()
    assert client.get(f"/v1/namespaces/{segment}").json()["namespace"] == levels
    listed = client.get(f"/v1/namespaces/{segment}/tables")
    assert listed.json() == {"identifiers": [], "next-page-token": None}


@pytest.mark.parametrize("segment", ["%FF", "a%1F", "a%00b"])
def test_namespace_that_is_no_name_is_400(client: httpx.Client, segment: str) -> None:
    assert error(client.get(f"/v1/namespaces/{segment}")) == (400, "BadRequestException")


@pytest.mark.parametrize("level", ["plain", "a b", "a+b", "größe", "x/y", "a.b"])
@pytest.mark.parametrize("encode_twice", [False, True], ids=["as-java", "as-pyiceberg"])
def test_children_are_listed_however_the_client_encodes_the_parent(
    client: httpx.Client, level: str, encode_twice: bool
) -> None:
    client.post("/v1/namespaces", json={"namespace": [level, "child"]}).raise_for_status()
    parent = str(httpx.QueryParams({"p": level})).removeprefix("p=").replace("+", "%20") if encode_twice else level
    answer = client.get("/v1/namespaces", params={"parent": parent})
    assert answer.json()["namespaces"] == [[level, "child"]]


def test_unknown_parent_is_404_and_empty_parent_is_the_top(client: httpx.Client) -> None:
    assert error(client.get("/v1/namespaces?parent=nope")) == (404, "NoSuchNamespaceException")
    assert client.get("/v1/namespaces?parent=").json() == client.get("/v1/namespaces").json()


def test_pages_hold_every_namespace_once(client: httpx.Client) -> None:
    names = [f"n{number}" for number in range(5)]
    for name in names:
        client.post("/v1/namespaces", json={"namespace": [name]}).raise_for_status()
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        page = client.get("/v1/namespaces", params={"pageToken": token, "pageSize": 2}).json()
        assert len(page["namespaces"]) <= 2
        found += [levels[0] for levels in page["namespaces"]]
        token = page["next-page-token"]
    assert sorted(found) == sorted([*names, "main"])
    assert client.get("/v1/namespaces?pageSize=2").json()["next-page-token"] is None


@pytest.mark.parametrize("query", ["pageSize=0", "pageSize=x", "pageToken=bad"])
def test_wrong_page_is_400(client: httpx.Client, query: str) -> None:
    assert error(client.get(f"/v1/namespaces?{query}")) == (400, "BadRequestException")


def test_page_larger_than_any_number_is_served(client: httpx.Client) -> None:
    assert client.get(f"/v1/namespaces?pageToken=&pageSize={10**30}").status_code == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"namespace": "a"}', b'{"namespace": []}', b'{"namespace": [""]}']
)
def test_wrong_body_is_400(client: httpx.Client, body: bytes) -> None:
    assert error(client.post("/v1/namespaces", content=body)) == (400, "BadRequestException")


def test_unknown_update_is_400_that_lists_the_known_ones(client: httpx.Client, table: str) -> None:
    answer = client.post(table, json={"requirements": [], "updates": [{"action": "explode"}]})
    assert error(answer) == (400, "BadRequestException")
    assert "explode" in answer.json()["error"]["message"]
    assert "set-properties" in answer.json()["error"]["message"]


def test_missing_table_is_404_for_every_verb(client: httpx.Client) -> None:
    client.post("/v1/namespaces", json={"namespace": ["ns"]})
    path = "/v1/namespaces/ns/tables/nope"
    expected = (404, "NoSuchTableException")
    assert error(client.get(path)) == expected
    assert client.head(path).status_code == 404
    assert error(client.delete(path)) == expected
    assert error(client.post(path, json={"requirements": [], "updates": []})) == expected
    assert error(client.post(f"{path}/metrics", json={"report-type": "scan-report"})) == expected
    names = {
        "source": {"namespace": ["ns"], "name": "nope"},
        "destination": {"namespace": ["ns"], "name": "other"},
    }
    assert error(client.post("/v1/tables/rename", json=names)) == expected


def test_tables_of_a_missing_namespace_are_404(client: httpx.Client) -> None:
    assert error(client.get("/v1/namespaces/nope/tables")) == (404, "NoSuchNamespaceException")


def test_loaded_table_has_a_tag_and_what_caches_must_know(client: httpx.Client, table: str) -> None:
    answer = client.get(table)
    assert answer.status_code == 200
    assert re.fullmatch(r'(W/)?".+"', answer.headers["etag"])
    assert answer.headers["cache-control"] == "private"
    assert answer.headers["vary"] == "Authorization, X-Iceberg-Access-Delegation"


def test_load_of_an_unchanged_table_is_304_without_body_and_with_the_tag(client: httpx.Client, table: str) -> None:
    tag = client.get(table).headers["etag"]
    again = client.get(table, headers={"If-None-Match": f'"other", {tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get(table, headers={"If-None-Match": '"other"'}).status_code == 200


def test_tag_differs_by_representation(client: httpx.Client, table: str) -> None:
    tags = {client.get(table, params={"snapshots": which}).headers["etag"] for which in ("all", "refs")}
    assert len(tags) == 2


def test_commit_answers_with_the_tag_that_the_next_load_has(client: httpx.Client, table: str) -> None:
    before = client.get(table).headers["etag"]
    updates = [{"action": "set-properties", "updates": {"k": "v"}}]
    committed = client.post(table, json={"requirements": [], "updates": updates})
    assert committed.status_code == 200
    assert committed.headers["etag"] != before
    assert client.get(table, headers={"If-None-Match": committed.headers["etag"]}).status_code == 304


def test_unknown_snapshots_mode_is_400(client: httpx.Client, table: str) -> None:
    answer = client.get(table, params={"snapshots": "some"})
    assert error(answer) == (400, "BadRequestException")
    assert "'all', 'refs' or 'brief'" in answer.json()["error"]["message"]


def test_head_of_a_table_is_204(client: httpx.Client, table: str) -> None:
    assert client.head(table).status_code == 204


def test_metrics_report_of_any_content_is_taken_and_counted(client: httpx.Client, table: str) -> None:
    report = {"report-type": "scan-report", "table-name": "ns.t", "metrics": {"never-heard-of": {"unit": "moons"}}}
    answer = client.post(f"{table}/metrics", json=report)
    assert (answer.status_code, answer.content) == (204, b"")
    assert 'duckicelake_metrics_reports_total{report="scan-report"} 1.0' in client.get("/metrics").text
    assert error(client.post(f"{table}/metrics", content=b"{}")) == (400, "BadRequestException")
    assert error(client.post(f"{table}/metrics", content=b"nope")) == (400, "BadRequestException")


@pytest.mark.parametrize("purge", ["true", "True", "false", "False"])
def test_dropped_table_is_gone_whoever_spells_the_flag(client: httpx.Client, table: str, purge: str) -> None:
    assert client.delete(table, params={"purgeRequested": purge}).status_code == 204
    assert client.head(table).status_code == 404


def test_renamed_table_answers_under_its_new_name_only(client: httpx.Client, table: str) -> None:
    names = {"source": {"namespace": ["ns"], "name": "t"}, "destination": {"namespace": ["ns"], "name": "u/1"}}
    assert client.post("/v1/tables/rename", json=names).status_code == 204
    assert client.head(table).status_code == 404
    assert client.head("/v1/namespaces/ns/tables/u%2F1").status_code == 204


def test_pyiceberg_works_with_nested_and_odd_names(catalog: Catalog) -> None:
    catalog.create_namespace(("a b", "ü/x"), {"owner": "me"})
    properties = catalog.load_namespace_properties(("a b", "ü/x"))
    location = properties.pop("location")
    assert properties == {"owner": "me"}
    assert catalog.list_namespaces(("a b",)) == [("a b", "ü/x")]
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    catalog.create_table(("a b", "ü/x", "t.1 %"), schema)
    assert catalog.list_tables(("a b", "ü/x")) == [("a b", "ü/x", "t.1 %")]
    assert catalog.table_exists(("a b", "ü/x", "t.1 %"))
    table = catalog.load_table(("a b", "ü/x", "t.1 %"))
    assert table.schema().column_names == ["id"]
    assert table.location().startswith(f"{location}/")


def test_health_needs_nothing_and_readiness_needs_everything(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.head("/healthz").status_code == 200
    assert client.get("/readyz").json() == {"status": "ok"}


def test_readiness_without_database_names_it(services: Services, dead_database: Database, serve: Serve) -> None:
    client = serve(create_app(dataclasses.replace(services, database=dead_database)))
    assert client.get("/healthz").status_code == 200
    answer = client.get("/readyz", timeout=30)
    assert error(answer) == (503, "ServiceUnavailableException")
    assert answer.json()["error"]["message"] == "database does not answer; the server's log says why"
    assert "retry-after" in answer.headers


def test_readiness_without_store_names_it(services: Services, tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "file").write_text("in the way")
    client = serve(create_app(dataclasses.replace(services, store=LocalStore(tmp_path / "file" / "warehouse"))))
    answer = client.get("/readyz")
    assert error(answer) == (503, "ServiceUnavailableException")
    assert answer.json()["error"]["message"] == "object store does not answer; the server's log says why"


def test_metrics_show_requests_and_the_pool(client: httpx.Client) -> None:
    client.get("/v1/namespaces")
    text = client.get("/metrics").text
    assert 'route="/v1/namespaces",status="2xx"} 1.0' in text
    assert "duckicelake_pool_max 16.0" in text
    assert 'duckicelake_pool_connections{state="idle"}' in text
