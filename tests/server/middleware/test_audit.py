"""The audit trail of a live server: what it says of changes, of refusals, and of requests that are sent again."""

import io
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from random import Random
from typing import Any

import httpx
import orjson
import psycopg
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from duckicelake.catalog.context.services import Services
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.side_tables.audit import AuditEntry, AuditFilter, read_entries
from duckicelake.server.api import create_routes
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.middleware.audit import AUDITED_READ_ROUTES, UNAUDITED_ROUTES
from duckicelake.server.telemetry.logs import make_logger
from tests.server.routes.test_idempotency import uuid7
from tests.support.client import SCHEMA, Json
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.waits import wait_until

AUDITED = {
    *("create_namespace", "drop_namespace", "update_properties", "rename_namespace"),
    *("create_table", "commit_table", "drop_table", "rename_table", "register_table", "unregister_table", "commit"),
    *("create_view", "commit_view", "drop_view", "rename_view", "register_view"),
    *("sign_request", "append_rows", "delete_rows", "flush_table_rows"),
    *("restore", "clone_table", "expire", "undrop", "forget_dropped", "delete_orphans", "change_grants"),
    *("create_warehouse", "drop_warehouse", "rename_warehouse", "move_warehouse", "change_options"),
    *("create_principal", "change_principal", "drop_principal", "add_member", "remove_member"),
    *("add_policy", "drop_policy", "change_column_tags"),
    *("create_secret", "revoke_secret", "create_issuer", "change_issuer", "drop_issuer"),
    *("create_own_token", "rotate_own_token", "revoke_own_token"),
    *("create_storage_profile", "drop_storage_profile", "apply_governance"),
    *("open_duckdb_login", "close_duckdb_login"),
    *("create_materialized_view", "schedule_materialized_view"),
    *("refresh_materialized_view", "drop_materialized_view"),
    *("set_lake_policies", "save_query_result"),
}
NAMESPACES = "/v1/namespaces"
TABLES = f"{NAMESPACES}/ns/tables"
VIEWS = f"{NAMESPACES}/ns/views"
VERSION: Json = {
    "version-id": 1,
    "timestamp-ms": 1,
    "schema-id": 0,
    "summary": {},
    "default-namespace": ["ns"],
    "representations": [{"type": "sql", "sql": "SELECT 1 AS id", "dialect": "duckdb"}],
}
CREATE = {"type": "assert-create"}
NUMBERS: Json = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "type": "int", "required": False}],
}


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def http(services: Services, serve: Callable[[FastAPI], httpx.Client], log: io.StringIO) -> httpx.Client:
    client = serve(create_app(services, log=make_logger(log)))
    client.timeout = httpx.Timeout(30)
    return client


def trail(services: Services) -> list[AuditEntry]:
    with services.database.reading() as cursor:
        return read_entries(cursor, AuditFilter(), 1000)


def newest(services: Services) -> int:
    with services.database.reading() as cursor:
        ((found,),) = cursor.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchall()
    return int(found)


def lines(log: io.StringIO) -> list[Json]:
    return [line for line in map(orjson.loads, log.getvalue().splitlines()) if line["event"] == "audit"]


def setting(**properties: str) -> Json:
    return {"requirements": [], "updates": [{"action": "set-properties", "updates": properties}]}


def make_table(http: httpx.Client, *names: str) -> None:
    http.post(NAMESPACES, json={"namespace": ["ns"]})
    for name in names:
        http.post(TABLES, json={"name": name, "schema": SCHEMA}).raise_for_status()


def test_every_change_has_an_entry_with_the_snapshot_that_it_made(http: httpx.Client, services: Services) -> None:
    renamed = {"source": {"namespace": ["ns"], "name": "t"}, "destination": {"namespace": ["ns"], "name": "u"}}
    steps: list[tuple[str, str, Any, str, str]] = [
        ("POST", NAMESPACES, {"namespace": ["ns"]}, "create_namespace", "ns"),
        ("POST", f"{NAMESPACES}/ns/properties", {"updates": {"a": "b"}}, "update_properties", "ns"),
        ("POST", TABLES, {"name": "t", "schema": SCHEMA}, "create_table", "ns.t"),
        ("POST", f"{TABLES}/t", setting(color="blue"), "commit_table", "ns.t"),
        ("POST", "/v1/tables/rename", renamed, "rename_table", "ns.t"),
        ("DELETE", f"{TABLES}/u", None, "drop_table", "ns.u"),
        (
            "POST",
            VIEWS,
            {"name": "v", "schema": NUMBERS, "view-version": VERSION, "properties": {}},
            "create_view",
            "ns.v",
        ),
        ("POST", f"{VIEWS}/v", setting(color="red"), "commit_view", "ns.v"),
        ("DELETE", f"{VIEWS}/v", None, "drop_view", "ns.v"),
        ("DELETE", f"{NAMESPACES}/ns", None, "drop_namespace", "ns"),
    ]
    made = []
    for method, path, body, *_ in steps:
        before = newest(services)
        answer = http.request(method, path, json=body, headers={"x-request-id": f"r{len(made)}"})
        assert answer.is_success, answer.text
        made.append(newest(services) if newest(services) > before else None)
    found = trail(services)
    assert [(entry.operation, entry.resource, entry.snapshot_id) for entry in found] == [
        (operation, resource, snapshot) for (*_, operation, resource), snapshot in zip(steps, made, strict=True)
    ]
    assert {entry.result for entry in found} == {"ok"}
    assert [entry.request_id for entry in found] == [f"r{number}" for number in range(len(steps))]
    assert {(entry.principal, entry.address) for entry in found} == {("anonymous", "127.0.0.1")}
    assert (found[3].detail, found[4].detail) == ({"updates": ["set-properties"]}, {"to": "ns.u"})
    assert made[0] is not None
    assert made[1] is None


def test_transaction_has_an_entry_for_each_table_with_its_own_snapshot(http: httpx.Client, services: Services) -> None:
    make_table(http, "a", "b")
    field = {"id": 9, "name": "more", "type": "long", "required": False}
    wider = {**SCHEMA, "schema-id": 1, "fields": [*SCHEMA["fields"], field]}
    updates = [{"action": "add-schema", "schema": wider}, {"action": "set-current-schema", "schema-id": -1}]
    changes = [
        {"identifier": {"namespace": ["ns"], "name": name}, "requirements": [], "updates": updates} for name in "ab"
    ]
    http.post("/v1/transactions/commit", json={"table-changes": changes}).raise_for_status()
    first, second = trail(services)[-2:]
    assert (first.operation, second.operation) == ("commit", "commit")
    assert (first.resource, first.snapshot_id) == ("ns.a", newest(services) - 1)
    assert (second.resource, second.snapshot_id) == ("ns.b", newest(services))


def test_what_changes_nothing_is_called_unchanged(http: httpx.Client, services: Services) -> None:
    make_table(http, "t")
    for _ in range(2):
        http.post(f"{TABLES}/t", json=setting(color="blue")).raise_for_status()
        http.post(f"{NAMESPACES}/ns/properties", json={"updates": {"a": "b"}}).raise_for_status()
    assert [(entry.operation, entry.result, entry.snapshot_id) for entry in trail(services)[2:]] == [
        ("commit_table", "ok", None),
        ("update_properties", "ok", None),
        ("commit_table", "unchanged", None),
        ("update_properties", "unchanged", None),
    ]


@pytest.mark.parametrize(
    ("method", "path", "body", "resource", "result"),
    [
        ("POST", f"{TABLES}/gone", setting(), "ns.gone", "NoSuchTableException 404"),
        ("DELETE", f"{TABLES}/gone", None, "ns.gone", "NoSuchTableException 404"),
        ("POST", TABLES, {"name": "t", "schema": SCHEMA}, "ns.t", "AlreadyExistsException 409"),
        ("POST", NAMESPACES, {"namespace": ["ns", "a.b"], "properties": 1}, "ns.a%2Eb", "BadRequestException 400"),
        ("POST", NAMESPACES, {"namespace": "ns"}, "", "BadRequestException 400"),
        ("DELETE", f"{NAMESPACES}/ns", None, "ns", "NamespaceNotEmptyException 409"),
        ("POST", f"{TABLES}/t", "no object", "ns.t", "BadRequestException 400"),
        ("POST", f"{TABLES}/t", {"requirements": [CREATE], "updates": []}, "ns.t", "CommitFailedException 409"),
        (
            "POST",
            "/v1/tables/rename",
            {"source": {"namespace": ["ns"], "name": "x"}, "destination": {"namespace": ["ns"], "name": "y"}},
            "ns.x",
            "NoSuchTableException 404",
        ),
    ],
)  # fmt: skip
def test_refusal_has_an_entry_by_the_time_it_is_answered(
    http: httpx.Client, services: Services, method: str, path: str, body: Any, resource: str, result: str
) -> None:
    make_table(http, "t")
    before = trail(services)
    assert not http.request(method, path, json=body).is_success
    (entry,) = trail(services)[len(before) :]
    assert (entry.resource, entry.result, entry.snapshot_id) == (resource, result, None)
    assert (entry.principal, entry.address) == ("anonymous", "127.0.0.1")


def test_refused_transaction_has_an_entry_for_each_table(http: httpx.Client, services: Services) -> None:
    make_table(http, "t")
    changes = [{"identifier": {"namespace": ["ns"], "name": name}, **setting(a="b")} for name in ("t", "gone")]
    assert http.post("/v1/transactions/commit", json={"table-changes": changes}).status_code == 404
    assert [(entry.resource, entry.result) for entry in trail(services)[2:]] == [
        ("ns.t", "NoSuchTableException 404"),
        ("ns.gone", "NoSuchTableException 404"),
    ]


def test_reads_and_unknown_routes_have_no_entries(http: httpx.Client, services: Services) -> None:
    make_table(http, "t")
    before = trail(services)
    http.get(f"{TABLES}/t").raise_for_status()
    assert http.get(f"{TABLES}/gone").status_code == 404
    assert http.post("/v1/nothing").status_code == 404
    assert http.delete("/v1/config").status_code == 405
    assert trail(services) == before


def test_request_that_is_sent_again_with_its_key_has_one_entry(http: httpx.Client, services: Services) -> None:
    make_table(http, "t")
    before = trail(services)
    for _ in range(2):
        http.post(f"{TABLES}/t", json=setting(a="b"), headers={"idempotency-key": uuid7()}).raise_for_status()
    assert [entry.result for entry in trail(services)[len(before) :]] == ["ok", "unchanged"]
    key = {"idempotency-key": uuid7()}
    for _ in range(2):
        http.post(f"{TABLES}/t", json=setting(a="c"), headers=key).raise_for_status()
    assert [entry.result for entry in trail(services)[len(before) + 2 :]] == ["ok"]


def test_entry_is_there_exactly_if_the_change_is(http: httpx.Client, services: Services, database_url: str) -> None:
    make_table(http, "t")
    before = trail(services)
    with psycopg.connect(database_url) as saboteur:
        saboteur.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'too late'; END $$"
        )
        saboteur.execute(
            "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON ducklake_snapshot DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    assert http.delete(f"{TABLES}/t").status_code == 500
    (entry,) = trail(services)[len(before) :]
    assert entry.result == "CommitStateUnknownException 500"
    assert http.get(f"{TABLES}/t").status_code == 200


def test_entries_are_log_lines_once_they_are_committed(
    http: httpx.Client, services: Services, log: io.StringIO
) -> None:
    make_table(http, "t")
    assert http.delete(f"{TABLES}/gone").status_code == 404
    found = trail(services)
    wait_until(lambda: len(lines(log)) == len(found))
    assert [(line["id"], line["operation"], line["result"]) for line in lines(log)] == [
        (entry.id, entry.operation, entry.result) for entry in found
    ]
    assert lines(log)[1]["snapshot_id"] == found[1].snapshot_id


@pytest.mark.crash
def test_refusal_while_postgres_is_away_stands_in_the_log(
    services: Services, serve: Callable[[FastAPI], httpx.Client], log: io.StringIO
) -> None:
    with closing(open_lake_database("postgresql://127.0.0.1:1/nothing", 1)) as dead:
        http = serve(create_app(replace(services, database=dead), log=make_logger(log)))
        assert http.delete(f"{TABLES}/t", timeout=30).status_code == 503
    wait_until(lambda: bool(lines(log)))
    (line,) = lines(log)
    assert (line["operation"], line["resource"]) == ("drop_table", "ns.t")
    assert line["result"] == "ServiceUnavailableException 503"
    assert "id" not in line


def test_every_route_that_could_change_something_is_audited_or_said_not_to_be() -> None:
    routes = [route for route in create_routes().router.routes if isinstance(route, APIRoute)]
    changing = {route.name for route in routes if {"POST", "DELETE", "PUT", "PATCH"} & (route.methods or set())}
    assert changing - UNAUDITED_ROUTES == AUDITED
    assert {route.name for route in routes} >= AUDITED_READ_ROUTES
    assert changing >= UNAUDITED_ROUTES


def test_entries_name_who_was_refused_and_strangers_stand_in_the_log_alone(
    services: Services, serve: Callable[[FastAPI], httpx.Client]
) -> None:
    server = Server()
    reader = OAuthClient("ann", SECRET, ("ns:main:r",))
    http = serve(server.app(services, server.authentication(reader)))
    http.timeout = httpx.Timeout(30)
    assert http.delete(f"{NAMESPACES}/main/tables/t").status_code == 401
    assert http.delete(f"{NAMESPACES}/main/tables/t", headers=bearing("wrong")).status_code == 401
    assert trail(services) == []
    ann = bearing(token(http, "ann"))
    assert http.delete(f"{NAMESPACES}/main/tables/t", headers=ann).status_code == 403
    assert http.post(NAMESPACES, json={"namespace": ["hr"]}, headers=ann).status_code == 403
    assert [(entry.principal, entry.operation, entry.resource, entry.result) for entry in trail(services)] == [
        ("ann", "drop_table", "main.t", "ForbiddenException 403"),
        ("ann", "create_namespace", "hr", "ForbiddenException 403"),
    ]
    wait_until(lambda: len(lines(server.log)) > 3)
    report = [(line["principal"], line["operation"], line["result"]) for line in lines(server.log)]
    assert report[:2] == [("", "drop_table", "NotAuthorizedException 401")] * 2
    assert len(report) == 4
    assert SECRET not in server.log.getvalue()


def test_refusal_has_few_entries_and_short_ones(http: httpx.Client, services: Services) -> None:
    changes = [
        {"identifier": {"namespace": ["gone"], "name": f"{number}-{'x' * 1000}"}, "requirements": [], "updates": []}
        for number in range(100)
    ]
    assert http.post("/v1/transactions/commit", json={"table-changes": changes}).status_code == 404
    assert http.delete(f"{TABLES}/{'x' * 3000}").status_code == 400
    *first, more, last = trail(services)
    assert [entry.resource[:8] for entry in first] == [f"gone.{number}-x"[:8] for number in range(20)]
    assert more.resource == "and 80 more"
    assert {len(entry.resource) for entry in (*first, last)} == {500}


def test_name_that_is_too_long_is_said_to_be(http: httpx.Client) -> None:
    letters = Random(8)

    def name(size: int) -> str:
        return "".join(chr(letters.randrange(0x4E00, 0x9FFF)) for _ in range(size))

    longest, more = name(600), name(700)
    assert http.post(NAMESPACES, json={"namespace": [longest]}).status_code == 200
    for namespace in ([more], [longest, longest[:100]]):
        refused = http.post(NAMESPACES, json={"namespace": namespace})
        assert refused.status_code == 400
        assert "it may have 2000 at most" in refused.json()["error"]["message"]
    assert http.get(NAMESPACES).json()["namespaces"] == [["main"], [longest]]
