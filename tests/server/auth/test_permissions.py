"""Every route with every kind of scope, on a real lake: who gets through, and what a refusal doesn't tell.

Allowed requests are such that they change nothing: they read, or ask for what can't be done.
"""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import Route

from duckicelake.catalog.context.caller import EVERYTHING, GRANTED, Capability, Grant, Principal, parse_scope
from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.api import create_routes
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.hooks import list_needs
from duckicelake.server.routes.dependencies import AppServices, guard_routes
from tests.conftest import new_lake, services_of
from tests.server.routes.test_idempotency import uuid7
from tests.support.client import SCHEMA
from tests.support.logins import SECRET, Server, bearing, login, token
from tests.support.servers import running
from tests.support.view_requests import creation

TARGET = "sales%1Feu"
"""The namespace [sales, eu]; beside it are its parent, [sales2], [sales, eu2], [sales, eu, west] and [hr]."""

FILLED = {"sales", "sales.eu", "hr"}
"""Namespaces with the tables t and t2 and the views v and v2."""

SCOPES = {
    "elsewhere": "ns:hr:*",
    "alike": "ns:sale:* ns:sales2:* ns:sales.e:* ns:sales.eu2:* ns:eu:*",
    "below": "ns:sales.eu.west:*",
    "r": "ns:sales.eu:r",
    "w": "ns:sales.eu:w",
    "rw": "ns:sales.eu:rw",
    "halves": "ns:sales.eu:r ns:sales:w",
    "manager": "ns:sales.eu:*",
    "parent-r": "ns:sales:r",
    "parent-w": "ns:sales:w",
    "parent": "ns:sales:*",
    "root": "*",
}
READERS = {"r", "rw", "halves", "manager", "parent-r", "parent", "root"}
WRITERS = {"w", "rw", "halves", "manager", "parent-w", "parent", "root"}
MANAGERS = {"manager", "parent", "root"}
SEEING = READERS | WRITERS | {"below"}
ANYBODY = {*SCOPES, "nobody"}
KNOWN = set(SCOPES)

NAMESPACE = "/v1/namespaces/{namespace}"
TABLE, VIEW = f"{NAMESPACE}/tables/{{table}}", f"{NAMESPACE}/views/{{view}}"
MATERIALIZED = f"{NAMESPACE}/materialized-views"
JOBS = "/pipeline/v1/namespaces/{namespace}/tables/{table}/jobs"
NO_JOB = "00000000-0000-4000-8000-000000000000"

EXPECTED: dict[str, tuple[set[str], int]] = {
    "GET /healthz": (ANYBODY, 200),
    "HEAD /healthz": (ANYBODY, 200),
    "GET /readyz": (ANYBODY, 200),
    "GET /openapi.json": (ANYBODY, 200),
    "HEAD /openapi.json": (ANYBODY, 200),
    "GET /": (ANYBODY, 307),
    "HEAD /": (ANYBODY, 307),
    "GET /ui": (ANYBODY, 200),
    "HEAD /ui": (ANYBODY, 200),
    "GET /ui/login": (ANYBODY, 200),
    "HEAD /ui/login": (ANYBODY, 200),
    "GET /ui/w/{path:path}": (ANYBODY, 200),
    "HEAD /ui/w/{path:path}": (ANYBODY, 200),
    "GET /ui/console/{file}": (ANYBODY, 200),
    "HEAD /ui/console/{file}": (ANYBODY, 200),
    "GET /ui/": (ANYBODY, 307),
    "HEAD /ui/": (ANYBODY, 307),
    "GET /ui/lineage": (ANYBODY, 307),
    "HEAD /ui/lineage": (ANYBODY, 307),
    "GET /ui/assets/{asset}": (ANYBODY, 200),
    "HEAD /ui/assets/{asset}": (ANYBODY, 200),
    "GET /metrics": ({"root"}, 200),
    "POST /v1/oauth/tokens": (ANYBODY, 400),
    "GET /v1/oauth/logins": (ANYBODY, 200),
    "POST /v1/oauth/logins": (ANYBODY, 400),
    "GET /management/v1/warehouses": ({"root"}, 200),
    "POST /management/v1/warehouses": ({"root"}, 400),
    "GET /management/v1/warehouses/{warehouse}": ({"root"}, 404),
    "DELETE /management/v1/warehouses/{warehouse}": ({"root"}, 404),
    "POST /management/v1/warehouses/{warehouse}/rename": ({"root"}, 400),
    "POST /management/v1/warehouses/{warehouse}/database": ({"root"}, 400),
    "GET /management/v1/warehouses/{warehouse}/options": ({"root"}, 404),
    "POST /management/v1/warehouses/{warehouse}/options": ({"root"}, 400),
    "GET /management/v1/storage-profiles": ({"root"}, 200),
    "POST /management/v1/storage-profiles": ({"root"}, 400),
    "GET /management/v1/storage-profiles/{profile}": ({"root"}, 404),
    "DELETE /management/v1/storage-profiles/{profile}": ({"root"}, 404),
    "GET /management/v1/grants": (KNOWN, 200),
    "POST /management/v1/grants": ({"root"}, 200),
    "GET /management/v1/policies": (KNOWN, 200),
    "POST /management/v1/policies": (KNOWN, 400),
    "GET /management/v1/policies/{policy_id}": (KNOWN, 404),
    "DELETE /management/v1/policies/{policy_id}": (KNOWN, 404),
    "GET /management/v1/column-tags": (KNOWN, 200),
    "POST /management/v1/column-tags": (KNOWN, 200),
    "GET /v1/actions": (KNOWN, 200),
    "GET /v1/whoami": (KNOWN, 200),
    "GET /v1/search": (KNOWN, 400),
    f"GET {NAMESPACE}/actions": (KNOWN, 200),
    f"GET {TABLE}/actions": (KNOWN, 200),
    f"GET {VIEW}/actions": (KNOWN, 200),
    f"GET {TABLE}/changes": (READERS, 200),
    "GET /v1/materialized-views": (KNOWN, 200),
    f"GET {MATERIALIZED}": (READERS, 200),
    f"POST {MATERIALIZED}": (WRITERS, 400),
    f"POST {NAMESPACE}/query-results": (WRITERS, 400),
    f"GET {MATERIALIZED}/{{table}}": (READERS, 404),
    f"POST {MATERIALIZED}/{{table}}": (WRITERS, 404),
    f"POST {MATERIALIZED}/{{table}}/refresh": (WRITERS, 404),
    f"DELETE {MATERIALIZED}/{{table}}": (WRITERS, 404),
    "GET /management/v1/server": ({"root"}, 200),
    "GET /management/v1/settings": ({"root"}, 200),
    "GET /management/v1/decision": ({"root"}, 400),
    "GET /management/v1/governance": ({"root"}, 200),
    "POST /management/v1/governance": ({"root"}, 400),
    "GET /management/v1/principals": ({"root"}, 200),
    "POST /management/v1/principals": ({"root"}, 400),
    "GET /management/v1/principals/{principal}": ({"root"}, 404),
    "POST /management/v1/principals/{principal}": ({"root"}, 404),
    "DELETE /management/v1/principals/{principal}": ({"root"}, 404),
    "GET /management/v1/principals/{principal}/members": ({"root"}, 404),
    "POST /management/v1/principals/{principal}/members": ({"root"}, 400),
    "DELETE /management/v1/principals/{principal}/members/{member}": ({"root"}, 404),
    "GET /management/v1/principals/{principal}/secrets": ({"root"}, 404),
    "POST /management/v1/principals/{principal}/secrets": ({"root"}, 400),
    "DELETE /management/v1/principals/{principal}/secrets/{secret_id}": ({"root"}, 404),
    # Of registered principals, who are in test_own_tokens.
    "GET /management/v1/me/tokens": (set(), 403),
    "POST /management/v1/me/tokens": (set(), 403),
    "POST /management/v1/me/tokens/{secret_id}/rotate": (set(), 403),
    "DELETE /management/v1/me/tokens/{secret_id}": (set(), 403),
    "GET /management/v1/issuers": ({"root"}, 200),
    "POST /management/v1/issuers": ({"root"}, 400),
    "GET /management/v1/issuers/{issuer}": ({"root"}, 404),
    "POST /management/v1/issuers/{issuer}": ({"root"}, 400),
    "DELETE /management/v1/issuers/{issuer}": ({"root"}, 404),
    "GET /.well-known/oauth-protected-resource": (ANYBODY, 404),
    "GET /v1/config": (KNOWN, 200),
    "GET /v1/namespaces": (KNOWN, 200),
    "POST /v1/namespaces": (MANAGERS, 409),
    f"GET {NAMESPACE}": (READERS, 200),
    f"HEAD {NAMESPACE}": (SEEING, 204),
    f"DELETE {NAMESPACE}": (MANAGERS, 409),
    f"POST {NAMESPACE}/properties": (MANAGERS, 422),
    f"POST {NAMESPACE}/rename": (MANAGERS, 409),
    f"GET {NAMESPACE}/tables": (READERS, 200),
    f"POST {NAMESPACE}/tables": (WRITERS, 409),
    f"GET {TABLE}": (READERS, 200),
    f"HEAD {TABLE}": (READERS, 204),
    f"POST {TABLE}": (WRITERS, 409),
    f"DELETE {TABLE}": (WRITERS, 404),
    f"POST {TABLE}/unregister": (WRITERS, 404),
    f"POST {TABLE}/restore": (WRITERS, 400),
    f"POST {TABLE}/expire": (WRITERS, 200),
    "GET /v1/dropped": (KNOWN, 200),
    f"POST {NAMESPACE}/undrop": (WRITERS, 404),
    "DELETE /v1/dropped/{kind}/{object_id}": ({"root"}, 404),
    f"POST {TABLE}/metrics": (READERS | WRITERS, 204),
    f"POST {TABLE}/plan": (READERS, 200),
    f"GET {TABLE}/plan/{{plan_id}}": (READERS, 404),
    f"DELETE {TABLE}/plan/{{plan_id}}": (READERS, 204),
    f"POST {TABLE}/tasks": (READERS, 404),
    f"POST {TABLE}/explain": (READERS, 200),
    "POST /sql/v1/query": (KNOWN, 400),
    "POST /mcp/v1/calls": (KNOWN, 400),
    "GET /v1/audit": ({"root"}, 200),
    "GET /v1/doctor": ({"root"}, 200),
    "GET /v1/orphans": ({"root"}, 200),
    "DELETE /v1/orphans": ({"root"}, 400),
    "POST /duckdb/v1/logins": (KNOWN, 400),
    "DELETE /duckdb/v1/logins": (KNOWN, 400),
    "GET /sql/v1/queries": (KNOWN, 200),
    "GET /sql/v1/queries/{query_id}": (KNOWN, 404),
    "DELETE /sql/v1/queries/{query_id}": (KNOWN, 404),
    f"POST {TABLE}/rows": (WRITERS, 400),
    f"DELETE {TABLE}/rows": (WRITERS, 400),
    f"POST {TABLE}/rows/flush": (WRITERS, 200),
    f"GET {TABLE}/rows/producers/{{app_id}}": (READERS | WRITERS, 200),
    f"GET {TABLE}/credentials": (READERS | WRITERS, 0),
    f"POST {TABLE}/sign": (READERS | WRITERS, 0),
    f"POST {NAMESPACE}/register": (WRITERS, 409),
    f"POST {NAMESPACE}/clone": (WRITERS & READERS, 409),  # the table that the body names must be read
    "POST /v1/tables/rename": (WRITERS, 409),
    "POST /v1/transactions/commit": (WRITERS, 409),
    "GET /v1/events": (KNOWN, 200),
    "POST /v1/events": (KNOWN, 400),
    f"GET {NAMESPACE}/views": (READERS, 200),
    f"POST {NAMESPACE}/views": (WRITERS, 409),
    f"GET {VIEW}": (READERS, 200),
    f"HEAD {VIEW}": (READERS, 204),
    f"POST {VIEW}": (WRITERS, 409),
    f"DELETE {VIEW}": (WRITERS, 404),
    f"POST {NAMESPACE}/register-view": (WRITERS & READERS, 409),  # the file that the body names must be read
    "POST /v1/views/rename": (WRITERS, 409),
    "GET /v1/history": (KNOWN, 200),
    f"GET {NAMESPACE}/history": (READERS, 200),
    f"GET {TABLE}/history": (READERS, 200),
    f"GET {TABLE}/diff": (READERS, 200),
    f"GET {TABLE}/snapshots": (READERS, 200),
    f"GET {VIEW}/history": (READERS, 200),
    "GET /pipeline/v1/jobs": (KNOWN, 200),
    f"POST {JOBS}": (WRITERS, 400),
    f"POST {JOBS}/{{job}}": (WRITERS, 404),
    f"POST {JOBS}/{{job}}/end": (WRITERS, 404),
    f"GET /pipeline{TABLE}/runs": (READERS, 400),
    f"GET /pipeline{TABLE}/files": (READERS | WRITERS, 200),
    f"POST /pipeline{TABLE}/file-batches": (WRITERS, 400),
    f"POST /pipeline{TABLE}/file-batches/{{batch}}": (WRITERS, 404),
    "GET /pipeline/v1/plan": (KNOWN, 200),
    "GET /pipeline/v1/tables": (KNOWN, 200),
    "GET /pipeline/v1/upkeep": (KNOWN, 200),
    "POST /pipeline/v1/upkeep": ({"root"}, 400),
    f"POST /pipeline{TABLE}/upkeep": (WRITERS, 400),
    "GET /pipeline/v1/policies": (KNOWN, 200),
    "PUT /pipeline/v1/policies": ({"root"}, 400),
    f"GET /pipeline{NAMESPACE}/policies": (READERS, 200),
    f"GET /pipeline{TABLE}/policies": (READERS, 200),
    f"POST /pipeline{TABLE}/orphans": (WRITERS, 400),
    "GET /lineage/v1/graph": (KNOWN, 400),
    "GET /lineage/v1/export": (KNOWN, 400),
    "GET /lineage/v1/datasets": (KNOWN, 200),
    "GET /lineage/v1/runs/{run}": (KNOWN, 404),
    "GET /lineage/v1/facets/{facet}.json": (ANYBODY, 404),
    "POST /api/v1/lineage": (KNOWN, 400),
    "POST /api/v1/lineage/batch": (KNOWN, 400),
    "GET /api/v1/namespaces": (KNOWN, 200),
    "GET /api/v1/namespaces/{space}/datasets": (KNOWN, 200),
    "GET /api/v1/namespaces/{space}/datasets/{dataset}": (KNOWN, 404),
    "GET /api/v1/namespaces/{space}/datasets/{dataset}/versions": (KNOWN, 404),
    "GET /api/v1/jobs": (KNOWN, 200),
    "GET /api/v1/namespaces/{space}/jobs": (KNOWN, 200),
    "GET /api/v1/namespaces/{space}/jobs/{job}": (KNOWN, 404),
    "GET /api/v1/namespaces/{space}/jobs/{job}/runs": (KNOWN, 200),
    "GET /api/v1/jobs/runs/{run}": (KNOWN, 404),
    "GET /api/v1/jobs/runs/{run}/facets": (KNOWN, 404),
    "GET /api/v1/lineage": (KNOWN, 400),
    "GET /api/v1/lineage/": (KNOWN, 400),
    "GET /api/v1/column-lineage": (KNOWN, 400),
    "GET /api/v1/events/lineage": (KNOWN, 200),
    "GET /api/v1/search": (KNOWN, 400),
    "GET /api/v1/search/": (KNOWN, 400),
    "GET /api/v1/tags": (KNOWN, 200),
    "GET /api/v1/stats/lineage-events": (KNOWN, 200),
    "GET /api/v1/stats/{counted}": (KNOWN, 200),
}
"""Who gets through each route, and with what status: 0 is whatever the route says but a refusal of the caller."""

WRONG_UUID: dict[str, Any] = {"type": "assert-table-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}
WRONG_VIEW_UUID = {**WRONG_UUID, "type": "assert-view-uuid"}
EU = ["sales", "eu"]


def rename(name: str, source: list[str] = EU, destination: list[str] = EU) -> Any:
    return {
        "source": {"namespace": source, "name": name},
        "destination": {"namespace": destination, "name": f"{name}2"},
    }


def commits(*names: tuple[list[str], str]) -> Any:
    changes = [
        {"identifier": {"namespace": namespace, "name": name}, "requirements": [WRONG_UUID], "updates": []}
        for namespace, name in names
    ]
    return {"table-changes": changes}


BODIES: dict[str, Any] = {
    f"POST {MATERIALIZED}/{{table}}": {},
    f"POST {MATERIALIZED}/{{table}}/refresh": {},
    "POST /management/v1/column-tags": {},
    "POST /management/v1/principals/{principal}": {},
    "POST /v1/namespaces": {"namespace": EU},
    "POST /management/v1/grants": {
        "revoke": [{"principal": "admin", "privileges": ["select"], "object": {"kind": "warehouse"}}]
    },
    f"POST {NAMESPACE}/properties": {"removals": ["a"], "updates": {"a": "b"}},
    f"POST {NAMESPACE}/rename": {"destination": EU},
    f"POST {NAMESPACE}/tables": {"name": "t", "schema": SCHEMA},
    f"POST {TABLE}": {"requirements": [WRONG_UUID], "updates": []},
    f"POST {TABLE}/metrics": {"report-type": "scan-report"},
    f"POST {TABLE}/plan": {"filter": True},
    f"POST {TABLE}/tasks": {"plan-task": "none"},
    f"POST {TABLE}/explain": {"where": "true"},
    f"POST {TABLE}/sign": {"region": "us-east-1", "uri": "https://bucket/key", "method": "GET", "headers": {}},
    f"POST {NAMESPACE}/register": {"name": "t", "metadata-location": "file:///nowhere/metadata.json"},
    f"POST {TABLE}/restore": {"to": "no time"},
    f"POST {TABLE}/expire": {"older-than-ms": 0},
    f"POST {NAMESPACE}/undrop": {"name": "never"},
    f"POST {NAMESPACE}/clone": {"name": "t", "source": {"namespace": ["sales", "eu"], "name": "t"}},
    "POST /v1/tables/rename": rename("t"),
    "POST /v1/transactions/commit": commits((EU, "t")),
    f"POST {NAMESPACE}/views": creation("v"),
    f"POST {VIEW}": {"requirements": [WRONG_VIEW_UUID], "updates": []},
    f"POST {NAMESPACE}/register-view": {"name": "v", "metadata-location": "<view>"},
    "POST /v1/views/rename": rename("v"),
    f"POST {JOBS}": {},
    f"POST {JOBS}/{{job}}": {},
    f"POST {JOBS}/{{job}}/end": {"result": "done"},
    f"POST /pipeline{TABLE}/file-batches/{{batch}}": {},
}
ABSENT = {f"DELETE {TABLE}", f"POST {TABLE}/unregister", f"DELETE {VIEW}"}
"""Routes that would change something if what they name existed."""


class Lake:
    """The served lake, and a token of each kind."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.view = ""
        self.headers = {who: bearing(token(http, who)) for who in SCOPES} | {"nobody": {}}

    def ask(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        content = None if body is None else json.dumps(body).replace("<view>", self.view).encode()
        return self.http.request(method, path, content=content, headers=self.headers[who] | headers)

    def done(self, method: str, path: str, body: Any = None) -> None:
        answer = self.ask("root", method, path, body)
        assert answer.is_success, answer.text


@pytest.fixture(scope="module")
def lake(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with new_lake(postgres, warehouse) as url, closing(open_lake_database(url, pool_size=4)) as database:
        yield from serving(services_of(database, warehouse))


def serving(services: Services) -> Iterator[Lake]:
    server = Server()
    clients = [OAuthClient(who, SECRET, tuple(scopes.split())) for who, scopes in SCOPES.items()]
    with (
        running(server.app(services, server.authentication(*clients))) as uri,
        httpx.Client(base_url=uri, timeout=60) as http,
    ):
        lake = Lake(http)
        for namespace in ("sales", "sales.eu", "sales.eu2", "sales.eu.west", "sales2", "hr"):
            lake.done("POST", "/v1/namespaces", {"namespace": namespace.split(".")})
            path = "/v1/namespaces/" + namespace.replace(".", "%1F")
            for number in ("", "2") if namespace in FILLED else ():
                lake.done("POST", f"{path}/tables", {"name": f"t{number}", "schema": SCHEMA})
                lake.done("POST", f"{path}/views", creation(f"v{number}"))
        lake.view = lake.ask("root", "GET", path_of(f"GET {VIEW}")).json()["metadata-location"]
        yield lake


def refusal(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()["error"]
    assert body["code"] == answer.status_code
    return answer.status_code, body["message"]


def path_of(route: str, namespace: str = TARGET, table: str = "t", view: str = "v") -> str:
    names = {"namespace": namespace, "table": table, "view": view, "job": NO_JOB, "app_id": "a", "asset": "index.css"}
    names |= {
        "principal": "nothing",
        "member": "nothing",
        "secret_id": NO_JOB,
        "batch": NO_JOB,
        "query_id": NO_JOB,
        "policy_id": NO_JOB,
        "issuer": "nothing",
    }
    names |= {"kind": "table", "object_id": "99", "plan_id": "none", "warehouse": "x", "profile": "x"}
    names |= {"run": NO_JOB, "facet": "nothing", "space": "file", "dataset": "nothing", "counted": "jobs"}
    names |= {"file": "licenses.txt", "page": "lake"}
    return route.split(maxsplit=1)[1].replace("{path:path}", "{page}").format(**names)


def served() -> set[str]:
    routes = [route for route in create_routes().router.routes if isinstance(route, APIRoute | Route)]
    return {f"{method} {route.path}" for route in routes for method in route.methods or ()}


def test_every_route_is_expected_here_and_has_its_need() -> None:
    assert served() == set(EXPECTED)
    assert {f"{method} {path}" for method, path in list_needs()} == set(EXPECTED)


@pytest.mark.parametrize("route", EXPECTED)
def test_route_lets_through_whom_it_should(lake: Lake, route: str) -> None:
    through, status = EXPECTED[route]
    method, _ = route.split()
    path = path_of(route, table="no", view="no") if route in ABSENT else path_of(route)
    for who in ("nobody", *SCOPES):
        answer = lake.ask(who, method, path, BODIES.get(route))
        if who in through:
            allowed = answer.status_code == status or (status == 0 and answer.status_code not in {401, 403})
            assert allowed, (who, answer.status_code, answer.text)
        else:
            refused = 401 if who == "nobody" else 403
            assert answer.status_code == refused, (who, answer.status_code, answer.text)
            if method != "HEAD":
                kind = "NotAuthorizedException" if who == "nobody" else "ForbiddenException"
                assert answer.json()["error"]["type"] == kind


@pytest.mark.parametrize("route", [route for route in EXPECTED if re.search("{namespace}.*(?<!/actions)$", route)])
def test_refusal_is_the_same_whether_or_not_there_is_such_a_thing(lake: Lake, route: str) -> None:
    method, _ = route.split()
    for who in ("elsewhere", "alike"):
        answers = {
            (answer.status_code, answer.text.replace("sales.eu", "<ns>").replace("secret.plans", "<ns>"))
            for namespace in (TARGET, "secret%1Fplans")
            for name in ("t", "v", "no")
            for answer in [lake.ask(who, method, path_of(route, namespace, name, name), BODIES.get(route))]
        }
        assert len(answers) == 1
        assert answers.pop()[0] == 403


def test_refused_request_is_not_parsed_and_bad_names_are_still_400(lake: Lake) -> None:
    path = f"/v1/namespaces/{TARGET}/tables"
    assert lake.ask("r", "POST", path, "not even an object").status_code == 403
    assert lake.ask("w", "POST", path, "not even an object").status_code == 400
    assert lake.ask("r", "GET", "/v1/namespaces/%FF/tables").status_code == 400
    assert lake.ask("nobody", "GET", "/v1/namespaces/%FF/tables").status_code == 401


@pytest.mark.parametrize("namespace", ["sales%1feu", "s%61les%1Feu", "%73ales%1F%65u"])
def test_other_spellings_of_a_name_are_the_same_name(lake: Lake, namespace: str) -> None:
    assert lake.ask("r", "GET", f"/v1/namespaces/{namespace}/tables/t").status_code == 200
    assert lake.ask("alike", "GET", f"/v1/namespaces/{namespace}/tables/t").status_code == 403


@pytest.mark.parametrize(
    ("namespace", "report"),
    [
        ("sales.eu", "sales%2Eeu"),
        ("sales%2Eeu", "sales%2Eeu"),
        ("sales%1Feu.west", "sales.eu%2Ewest"),
        ("sales%1FEU", "sales.EU"),
        ("sales%1Feu%20", "sales.eu "),
    ],
)
def test_names_that_only_look_like_it_are_others(lake: Lake, namespace: str, report: str) -> None:
    answer = lake.ask("manager", "GET", f"/v1/namespaces/{namespace}/tables/t")
    assert answer.status_code == 403
    assert f"in namespace {report}, if" in answer.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["tables", "views"])
@pytest.mark.parametrize(
    ("who", "source", "destination", "status"),
    [
        ("w", EU, ["hr"], 403),
        ("elsewhere", EU, ["hr"], 403),
        ("w", EU, ["nowhere"], 403),
        ("w", EU, ["sales", "eu", "nowhere"], 404),
        ("w", ["sales"], EU, 403),
        ("parent", EU, ["sales2"], 403),
        ("root", EU, ["hr"], 409),
        ("parent", EU, ["sales"], 409),
    ],
)
def test_rename_needs_both_ends(
    lake: Lake, kind: str, who: str, source: list[str], destination: list[str], status: int
) -> None:
    answer = lake.ask(who, "POST", f"/v1/{kind}/rename", rename(kind[0], source, destination))
    assert refusal(answer)[0] == status


def test_transaction_needs_every_table(lake: Lake) -> None:
    for changes, status in (
        (commits((EU, "t"), (["hr"], "t")), 403),
        (commits((["hr"], "t"), (EU, "t")), 403),
        (commits((EU, "t"), (["sales", "eu", "west"], "t")), 404),
        (commits((EU, "t"), (["secret"], "t")), 403),
        ({"table-changes": [{"requirements": [], "updates": []}]}, 400),
        ({"table-changes": []}, 204),
    ):
        assert lake.ask("w", "POST", "/v1/transactions/commit", changes).status_code == status


def test_namespace_is_created_by_who_manages_it_and_siblings_stay_unnamed(lake: Lake) -> None:
    for namespace, who, status in (
        (["sales", "eu", "new"], "manager", 200),
        (["sales", "new"], "manager", 403),
        (["new"], "manager", 403),
        (["new"], "parent", 403),
        (["SALES"], "root", 400),
    ):
        assert lake.ask(who, "POST", "/v1/namespaces", {"namespace": namespace}).status_code == status
    lake.done("DELETE", "/v1/namespaces/sales%1Feu%1Fnew")


def listed(lake: Lake, who: str, **query: str) -> list[str]:
    answer = lake.http.get("/v1/namespaces", params=query, headers=lake.headers[who])
    assert answer.status_code == 200, answer.text
    return [".".join(levels) for levels in answer.json()["namespaces"]]


def test_lists_show_what_the_caller_sees(lake: Lake) -> None:
    assert listed(lake, "root") == ["hr", "main", "sales", "sales2"]
    assert listed(lake, "r") == listed(lake, "below") == listed(lake, "parent") == ["sales"]
    assert listed(lake, "alike") == ["sales", "sales2"]
    assert listed(lake, "elsewhere") == ["hr"]
    assert listed(lake, "parent", parent="sales") == ["sales.eu", "sales.eu2"]
    assert listed(lake, "r", parent="sales") == listed(lake, "below", parent="sales") == ["sales.eu"]
    assert listed(lake, "below", parent="sales\x1feu") == ["sales.eu.west"]
    for who, parent in (("r", "hr"), ("r", "nowhere"), ("r", "sales\x1feu2"), ("elsewhere", "sales")):
        answer = lake.http.get("/v1/namespaces", params={"parent": parent}, headers=lake.headers[who])
        assert refusal(answer)[0] == 403


def test_pages_are_full_though_most_is_not_shown(lake: Lake) -> None:
    for number in range(9):
        lake.done("POST", "/v1/namespaces", {"namespace": [f"a{number}"]})
        if number % 3 == 0:
            lake.done("POST", "/v1/namespaces", {"namespace": ["sales", f"b{number}"]})
    pages, following = [], ""
    while following is not None:
        query = {"pageSize": "2", "pageToken": following}
        page = lake.http.get("/v1/namespaces", params=query, headers=lake.headers["alike"]).json()
        pages.append([levels[-1] for levels in page["namespaces"]])
        following = page["next-page-token"]
    assert pages == [["sales", "sales2"]]
    answer = lake.http.get(
        "/v1/namespaces", params={"pageSize": "2", "pageToken": "", "parent": "sales"}, headers=lake.headers["parent-r"]
    ).json()
    assert answer["namespaces"] == [["sales", "b0"], ["sales", "b3"]]
    assert answer["next-page-token"]


def test_answer_kept_for_a_key_is_for_its_principal_alone(lake: Lake) -> None:
    path, body, key = f"/v1/namespaces/{TARGET}/tables", {"name": "once", "schema": SCHEMA}, uuid7()
    first = lake.ask("rw", "POST", path, body, **{"Idempotency-Key": key})
    assert first.status_code == 200
    assert lake.ask("rw", "POST", path, body, **{"Idempotency-Key": key}).json() == first.json()
    other = lake.ask("manager", "POST", path, body, **{"Idempotency-Key": key})
    assert refusal(other)[0] == 422
    assert lake.ask("r", "POST", path, body, **{"Idempotency-Key": key}).status_code == 403
    renamed, key = rename("once"), uuid7()
    assert lake.ask("rw", "POST", "/v1/tables/rename", renamed, **{"Idempotency-Key": key}).status_code == 204
    assert lake.ask("rw", "POST", "/v1/tables/rename", renamed, **{"Idempotency-Key": key}).status_code == 204
    assert lake.ask("elsewhere", "POST", "/v1/tables/rename", renamed, **{"Idempotency-Key": key}).status_code == 403
    lake.done("DELETE", f"{path}/once2")


def test_tag_of_another_does_not_help_who_may_not_read(lake: Lake) -> None:
    path = f"/v1/namespaces/{TARGET}/tables/t"
    tag = lake.ask("r", "GET", path).headers["etag"]
    assert lake.ask("parent-r", "GET", path, **{"If-None-Match": tag}).status_code == 304
    assert lake.ask("w", "GET", path, **{"If-None-Match": tag}).status_code == 403
    assert lake.ask("nobody", "GET", path, **{"If-None-Match": tag}).status_code == 401


def test_unknown_routes_and_methods_are_as_ever(lake: Lake) -> None:
    for who in ("nobody", "r", "root"):
        assert lake.ask(who, "GET", "/v1/nothing").status_code == 404
        assert lake.ask(who, "PATCH", "/v1/namespaces").status_code == 405


def test_narrow_token_of_a_great_client_is_narrow(lake: Lake) -> None:
    narrow = bearing(token(lake.http, "root", scope="ns:sales.eu:r"))
    assert lake.http.get(f"/v1/namespaces/{TARGET}/tables", headers=narrow).status_code == 200
    assert lake.http.get("/v1/namespaces/hr/tables", headers=narrow).status_code == 403
    assert login(lake.http, "r", scope="*").status_code == 400


def without_entry(services: AppServices) -> str:
    raise AssertionError("nobody may get here")


def without_admission(services: AppServices) -> str:
    raise AssertionError("nobody has looked at the body")


@pytest.mark.parametrize("is_on", [False, True])
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1/forgotten", "No permission rule for this route"),
        ("/v1/tables/rename", "the endpoint must take an admission"),
    ],
)
def test_route_that_was_forgotten_is_refused_to_everybody(
    services: Services, path: str, says: str, is_on: bool
) -> None:
    router = APIRouter()
    router.post("/v1/forgotten")(without_entry)
    router.post("/v1/tables/rename")(without_admission)
    server = Server()
    app = server.app(services, server.authentication(OAuthClient("root", SECRET, ("*",))) if is_on else None)
    app.router.routes[:0] = guard_routes(router.routes, list_needs())
    with running(app) as uri, httpx.Client(base_url=uri, timeout=60) as http:
        headers = bearing(token(http, "root")) if is_on else {}
        status, message = refusal(http.post(path, json=rename("t"), headers=headers))
    assert status == 403
    assert says in message


def test_metrics_may_be_opened(lake: Lake, postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    with new_lake(postgres, tmp_path) as url, closing(open_lake_database(url, pool_size=2)) as database:
        server = Server()
        app = server.app(
            services_of(database, tmp_path),
            server.authentication(OAuthClient("r", SECRET, ("ns:a:r",))),
            metrics_public=True,
        )
        with running(app) as uri:
            assert httpx.get(f"{uri}/metrics", timeout=60).status_code == 200
            assert httpx.get(f"{uri}/v1/config", timeout=60).status_code == 401


@pytest.mark.parametrize(
    ("scope", "namespace"),
    [
        ("ns:a:r", ("a",)),
        ("ns:a.b:r", ("a", "b")),
        ("ns:a%2Eb:r", ("a.b",)),
        ("ns:a:b:r", ("a:b",)),
        ("ns:100%25:r", ("100%",)),
        ("ns:a+b:r", ("a+b",)),
        ("ns:a%20b%2Cc%7Cd:r", ("a b,c|d",)),
        ("ns:sk%C3%A5ne:r", ("skåne",)),
    ],
)
def test_scope_names_any_namespace(scope: str, namespace: tuple[str, ...]) -> None:
    assert parse_scope(scope).namespace == namespace


@pytest.mark.parametrize(
    "scope",
    [
        "",
        "ns",
        "ns:a",
        "ns:a:",
        "ns::r",
        "ns:a:x",
        "ns:a:wr",
        "ns:.a:r",
        "ns:a..b:r",
        "ns:a b:r",
        "ns:å:r",
        "ns:%FF:r",
        "**",
        "NS:a:r",
    ],
)
def test_what_is_no_scope_is_refused(scope: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_scope(scope)


def test_principal_holds_what_its_grants_add_up_to() -> None:
    principal = Principal("p", (parse_scope("ns:a:r"), parse_scope("ns:a.b:w")))
    assert principal.holds(parse_scope("ns:a.b.c:rw"))
    assert not principal.holds(parse_scope("ns:a:rw"))
    assert not principal.holds(parse_scope("ns:a.b:*"))
    assert not principal.holds(Grant((), parse_scope("ns:a:r").capability))


def test_the_scope_grants_alone_gives_nothing_and_only_who_has_everything_holds_it() -> None:
    granted = Principal("p", (GRANTED,))
    capabilities = (Capability.READ, Capability.WRITE, Capability.MANAGE, EVERYTHING)
    assert not any(granted.may(capability, namespace) for capability in capabilities for namespace in ((), ("a",)))
    assert not granted.sees(())
    assert not granted.sees(("a",))
    assert granted.readable_schemas() == ()
    assert granted.holds(GRANTED)
    assert granted.in_warehouse("other").holds(GRANTED)
    assert not granted.holds(parse_scope("ns:a:r"))
    holders = {scope: Principal("p", (parse_scope(scope),)).holds(GRANTED) for scope in ("*", "wh:x:*", "ns:a:*")}
    assert holders == {"*": True, "wh:x:*": False, "ns:a:*": False}
