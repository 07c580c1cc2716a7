"""The history as it is asked for by HTTP: whole and in parts, in pages, and by those who may read only some of it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.services import Services
from duckicelake.changelog.entries import END_POSITION, ChangeKind, LoggedChange, read_latest
from duckicelake.changelog.history import build_entry
from duckicelake.changelog.writer import write_all_changes
from duckicelake.rest.http import PIPELINE_AGENT, send_request
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.http.scope import MAX_CLIENT_CHARS
from tests.support.lakes import Lake
from tests.support.logins import SECRET, Server, bearing, token

NUMBERS: dict[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "i", "type": "int", "required": False}],
}
Json = dict[str, Any]


@pytest.fixture
def http(services: Services, serve: Callable[[FastAPI], httpx.Client]) -> httpx.Client:
    return serve(create_app(services))


@pytest.fixture
def lake(services: Services, ducklake: Any) -> Lake:
    return Lake(services, ducklake)


def make(http: httpx.Client, namespace: str, table: str, **headers: str) -> None:
    http.post("/v1/namespaces", json={"namespace": [namespace]}, headers=headers)
    body = {"name": table, "schema": NUMBERS}
    http.post(f"/v1/namespaces/{namespace}/tables", json=body, headers=headers).raise_for_status()


def listed(http: httpx.Client, services: Services, path: str = "", **query: str | int) -> list[Json]:
    write_all_changes(services)
    answer = http.get(f"/v1{path}/history", params=query)
    assert answer.status_code == 200, answer.text
    found: list[Json] = answer.json()["history"]
    return found


def kinds(found: list[Json]) -> list[tuple[str, str]]:
    return [(each["kind"], each.get("name") or ".".join(each["namespace"])) for each in found]


def test_requests_are_reported_without_what_distinguishes_programs() -> None:
    at, client = datetime(2026, 5, 1, tzinfo=UTC), {"session": "0123456789abcdef:41000", "user-agent": "loader/1.0"}
    requests = [{"principal": "ann", "request-id": str(number), "client": client} for number in range(2)]
    entry = build_entry(LoggedChange(17, 0, at, ChangeKind.APPEND, "ns", "t", facts={"requests": requests}))
    assert [each["client"] for each in entry.parameters["requests"]] == [{"user-agent": "loader/1.0"}] * 2


def test_entry_says_who_did_what_with_what_and_how_much(http: httpx.Client, services: Services, lake: Lake) -> None:
    headers = {
        "User-Agent": "loader/1.0 (nightly)",
        "X-Application-Id": "app\t-7" + "x" * 2 * MAX_CLIENT_CHARS,
        "X-OpenLineage-Parent-RunId": "01a2",
    }
    make(http, "ns", "t", **headers)
    http.post("/v1/namespaces/ns/tables/t/rows", json=[{"i": 1}, {"i": 2}], headers=headers).raise_for_status()
    lake.run("BEGIN; CALL lake.set_commit_message('ann', 'by hand'); DELETE FROM ns.t WHERE i = 1; COMMIT")
    deleted, appended, created = listed(http, services, "/namespaces/ns/tables/t")
    assert appended | {"timestamp": "", "request-id": ""} == {
        "version": 3,
        "position": "3.0",
        "timestamp": "",
        "kind": "append",
        "namespace": ["ns"],
        "name": "t",
        "previous": None,
        "principal": "anonymous",
        "engine": "loader/1.0",
        "source": "rest",
        "operation": "append_rows",
        "parameters": {"rows": 2},
        "metrics": {"added-records": 2},
        "notes": {"author": None, "message": None},
        "iceberg-snapshot-id": None,
        "request-id": "",
    }
    assert (created["kind"], created["operation"]) == ("create-table", "create_table")
    assert (deleted["kind"], deleted["engine"], deleted["source"]) == ("delete", "DuckDB", "duckdb")
    assert (deleted["metrics"], deleted["notes"]) == ({"deleted-records": 1}, {"author": "ann", "message": "by hand"})
    ((client,),) = lake.sql("SELECT client FROM duckicelake_audit WHERE operation = 'append_rows'")
    assert client["parent-run-id"] == "01a2"
    assert client["application"].startswith("app-7x")
    assert len(client["application"]) == MAX_CLIENT_CHARS


def test_what_the_pipeline_did_is_distinguished_from_what_others_did(http: httpx.Client, services: Services) -> None:
    url, agent = f"{str(http.base_url).rstrip('/')}/v1/namespaces", {"User-Agent": PIPELINE_AGENT}
    send_request("POST", url, body={"namespace": ["ns"]}, named=agent)
    make(http, "ns", "t", **{"X-Engine": f"{PIPELINE_AGENT}/1", "User-Agent": "Apache-HttpClient/5"})
    make(http, "ns", "u")
    sources = [(each.get("name"), each["source"], each["engine"]) for each in listed(http, services, "/namespaces/ns")]
    agent = f"python-httpx/{httpx.__version__}"
    assert sources == [
        ("u", "rest", agent),
        ("t", "pipeline", f"{PIPELINE_AGENT}/1"),
        (None, "pipeline", PIPELINE_AGENT),
    ]


def test_history_of_a_table_follows_its_names_and_outlasts_it(http: httpx.Client, services: Services) -> None:
    make(http, "ns", "old.1")
    ends = ({"namespace": ["ns"], "name": "old.1"}, {"namespace": ["ns"], "name": "new"})
    http.post("/v1/tables/rename", json=dict(zip(("source", "destination"), ends, strict=True))).raise_for_status()
    renamed = [("rename-table", "new"), ("create-table", "old.1")]
    found = listed(http, services, "/namespaces/ns/tables/new")
    assert kinds(found) == renamed
    assert found[0]["previous"] == "ns.old%2E1"
    assert kinds(listed(http, services, "/namespaces/ns/tables/old.1")) == renamed[1:]
    http.delete("/v1/namespaces/ns/tables/new").raise_for_status()
    assert kinds(listed(http, services, "/namespaces/ns/tables/new")) == [("drop-table", "new"), renamed[0]]
    assert len(listed(http, services, "/namespaces/ns")) == 4
    assert len(listed(http, services)) == 5
    for path in ("ns/tables/never", "ns/views/never", "never"):
        assert http.get(f"/v1/namespaces/{path}/history").status_code == 404


def test_transaction_is_reported_table_by_table_with_one_request(http: httpx.Client, services: Services) -> None:
    for name in ("a", "b", "c"):
        make(http, "ns", name)
    wider = {**NUMBERS, "fields": [*NUMBERS["fields"], {"id": 2, "name": "j", "type": "int", "required": False}]}
    altered = [{"action": "add-schema", "schema": wider}, {"action": "set-current-schema", "schema-id": -1}]
    updates = {"a": altered, "b": altered, "c": [{"action": "set-properties", "updates": {"k": "v"}}]}
    changes = [
        {"identifier": {"namespace": ["ns"], "name": name}, "requirements": [], "updates": each}
        for name, each in updates.items()
    ]
    http.post("/v1/transactions/commit", json={"table-changes": changes}).raise_for_status()
    c, b, a = listed(http, services, "/namespaces/ns", limit=3)
    assert [each["kind"] for each in (a, b, c)] == ["alter-table", "alter-table", "update-table"]
    assert [each["name"] for each in (a, b, c)] == ["a", "b", "c"]
    assert b["version"] == a["version"] + 1
    assert c["position"] == f"{b['version']}.1"
    assert len({each["request-id"] for each in (a, b, c)}) == 1
    assert {each["operation"] for each in (a, b, c)} == {"commit"}


def test_drop_shows_where_the_table_was_though_nothing_of_it_is_left(http: httpx.Client, services: Services) -> None:
    http.post("/v1/namespaces", json={"namespace": ["ns"]})
    place = f"{services.policy.warehouse}/data/elsewhere"
    body = {"name": "t", "schema": NUMBERS, "location": place}
    http.post("/v1/namespaces/ns/tables", json=body).raise_for_status()
    write_all_changes(services)
    http.delete("/v1/namespaces/ns/tables/t", params={"purgeRequested": "true"}).raise_for_status()
    write_all_changes(services)
    with services.database.reading() as cursor:
        (dropped,) = read_latest(cursor, END_POSITION, 1)
    assert (dropped.kind, dropped.facts["location"]) == (ChangeKind.DROP_TABLE, place)


def test_view_that_duckdb_replaced_keeps_its_history(http: httpx.Client, services: Services, lake: Lake) -> None:
    lake.run("CREATE VIEW v AS SELECT 1 AS a", "CREATE VIEW w AS SELECT 1 AS a", "CREATE TABLE t (i INT)")
    lake.run("CREATE OR REPLACE VIEW v AS SELECT 2 AS a", "ALTER VIEW v RENAME TO u")
    lake.run("CREATE OR REPLACE VIEW u AS SELECT 3 AS a")
    found = listed(http, services, "/namespaces/main/views/u")
    assert kinds(found) == [("alter-view", "u"), ("rename-view", "u")]
    assert kinds(listed(http, services, "/namespaces/main/views/v")) == [("alter-view", "v"), ("create-view", "v")]
    assert kinds(listed(http, services, "/namespaces/main/tables/t")) == [("create-table", "t")]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"kind": "append"}, ["create-table", "append"]),
        ({"kind": "drop-table,create-namespace"}, ["create-namespace", "create-namespace"]),
        ({"source": "duckdb"}, ["create-table", "create-namespace"]),
        ({"engine": "httpx"}, ["append", "create-table", "create-namespace"]),
        ({"engine": "DuckDB"}, ["create-table", "create-namespace"]),
        ({"principal": "anonymous", "limit": 1}, ["append"]),
        ({"principal": "nobody"}, []),
        ({"since": "2100-01-01T00:00:00Z"}, []),
        ({"until": "2000-01-01T00:00:00Z"}, []),
    ],
)
def test_history_is_filtered(
    http: httpx.Client, services: Services, lake: Lake, query: dict[str, Any], expected: list[str]
) -> None:
    make(http, "ns", "t", **{"User-Agent": "python-httpx/1"})
    rows = http.post("/v1/namespaces/ns/tables/t/rows", json=[{"i": 1}], headers={"User-Agent": "python-httpx/1"})
    rows.raise_for_status()
    lake.run("CREATE TABLE ns.d AS SELECT 1 AS i")
    assert [each["kind"] for each in listed(http, services, **query)] == expected


def test_pages_join_into_the_whole_though_more_happens(http: httpx.Client, services: Services) -> None:
    for number in range(5):
        make(http, "ns", f"t{number}")
    whole = listed(http, services)
    pages, before = list[Json](), dict[str, str]()
    while True:
        answer = http.get("/v1/history", params={"limit": "2"} | before).json()
        pages += answer["history"]
        make(http, "other", f"t{len(pages)}")
        write_all_changes(services)
        if answer["next-before"] is None:
            break
        before = {"before": answer["next-before"]}
    assert pages == whole


@pytest.mark.parametrize(
    "query", [{"kind": "vanish"}, {"source": "spark"}, {"before": "x"}, {"limit": 0}, {"since": "yesterday"}]
)
def test_questions_that_make_no_sense_are_refused(http: httpx.Client, query: dict[str, Any]) -> None:
    assert http.get("/v1/history", params=query).status_code == 400


@pytest.fixture
def server() -> Server:
    return Server()


def test_whoever_asks_sees_what_they_may_read(
    services: Services, serve: Callable[[FastAPI], httpx.Client], server: Server
) -> None:
    clients = {"root": "*", "reader": "ns:open:r", "writer": "ns:open:w"}
    known = [OAuthClient(name, SECRET, (scope,)) for name, scope in clients.items()]
    http = serve(server.app(services, server.authentication(*known)))
    tokens = {name: bearing(token(http, name)) for name in clients}
    for namespace in ("open", "open.below", "opened", "secret"):
        name = namespace.split(".")
        http.post("/v1/namespaces", json={"namespace": name}, headers=tokens["root"]).raise_for_status()
    body = {"name": "t", "schema": NUMBERS}
    http.post("/v1/namespaces/secret/tables", json=body, headers=tokens["root"]).raise_for_status()
    ends = ({"namespace": ["secret"], "name": "t"}, {"namespace": ["open"], "name": "t"})
    renaming = dict(zip(("source", "destination"), ends, strict=True))
    http.post("/v1/tables/rename", json=renaming, headers=tokens["root"]).raise_for_status()
    write_all_changes(services)

    def asked(who: str, path: str = "") -> Any:
        return http.get(f"/v1{path}/history", headers=tokens[who]).json().get("history")

    assert len(asked("root")) == 7
    seen = asked("reader")
    assert kinds(seen) == [("rename-table", "t"), ("create-namespace", "open.below"), ("create-namespace", "open")]
    assert seen[0]["previous"] is None
    assert {each["principal"] for each in seen} == {"root"}
    assert kinds(asked("reader", "/namespaces/open/tables/t")) == [("rename-table", "t")]
    assert kinds(asked("root", "/namespaces/open/tables/t")) == [("rename-table", "t"), ("create-table", "t")]
    assert asked("writer") == []
    for who, path in (
        ("reader", "/namespaces/secret"),
        ("writer", "/namespaces/open"),
        ("reader", "/namespaces/opened"),
    ):
        assert http.get(f"/v1{path}/history", headers=tokens[who]).status_code == 403
    assert http.get("/v1/history").status_code == 401
