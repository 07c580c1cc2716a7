"""Grants on a real lake over HTTP: what privileges open, how soon they end, and attempts to get more of them."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from duckicelake.catalog import grants
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.grants import GrantChange, parse_object
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.conftest import new_lake, services_of
from tests.server.routes.test_idempotency import uuid7
from tests.support.client import SCHEMA
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import running
from tests.support.view_requests import creation

PEOPLE = ("ann", "bob", "eve", "owner", "boss")
"""Clients with the scope `grants`. The boss is in the role admin, the owner owns the namespace sales."""


class Governed:
    """A lake with grants on, served by two workers. root has the scope * and no grants, reader the scope ns:sales:r."""

    def __init__(self, url: str, services: Services, workers: list[httpx.Client]) -> None:
        self.url, self.services, self.workers = url, services, workers
        http = workers[0]
        self.tokens = {who: token(http, who) for who in (*PEOPLE, "root", "reader")}

    def ask(
        self, who: str, method: str, path: str, body: Any = None, *, worker: int = 0, **headers: str
    ) -> httpx.Response:
        content = None if body is None else json.dumps(body).encode()
        given = bearing(self.tokens[who]) | {"Content-Type": "application/json"}
        given |= {name.replace("_", "-"): text for name, text in headers.items()}
        return self.workers[worker].request(method, path, content=content, headers=given)

    def status(self, who: str, method: str, path: str, body: Any = None, **more: Any) -> int:
        return self.ask(who, method, path, body, **more).status_code

    def give(self, who: str, privileges: str, target: str) -> None:
        grants.change_grants(self.services, [_change(who, privileges, target)])

    def take(self, who: str, privileges: str, target: str) -> None:
        grants.change_grants(self.services, (), [_change(who, privileges, target)])

    def sql(self, statement: str, *parameters: Any) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(statement, parameters)
            return found.fetchall() if found.description else []

    def join(self, member: str, container: str) -> None:
        self.sql(
            "INSERT INTO duckicelake_membership SELECT c.principal_id, m.principal_id "
            "FROM duckicelake_principal c, duckicelake_principal m WHERE c.name = %s AND m.name = %s",
            container,
            member,
        )


def _change(who: str, privileges: str, target: str) -> GrantChange:
    return GrantChange(who, tuple(privileges.split()), parse_object(target))


@pytest.fixture
def governed(postgres: EmbeddedPostgres, tmp_path: Path) -> Iterator[Governed]:
    with new_lake(postgres, tmp_path) as url, ExitStack() as stack:
        clients = [OAuthClient(who, SECRET, ("grants",)) for who in PEOPLE]
        clients += [OAuthClient("root", SECRET, ("*",)), OAuthClient("reader", SECRET, ("ns:sales:r",))]
        workers = []
        for _ in range(2):
            database = stack.enter_context(closing(open_lake_database(url, pool_size=4)))
            services = replace(services_of(database, tmp_path), rights=RightsCache.of_first(database))
            server = Server()
            uri = stack.enter_context(running(server.app(services, server.authentication(*clients))))
            workers.append(stack.enter_context(httpx.Client(base_url=uri, timeout=60)))
        lake = Governed(url, services, workers)
        for who in (*PEOPLE, "reader"):
            lake.sql("INSERT INTO duckicelake_principal (name, kind) VALUES (%s, 'service')", who)
        for role in ("analysts", "staff"):
            lake.sql("INSERT INTO duckicelake_principal (name, kind) VALUES (%s, 'role')", role)
        lake.join("boss", "admin")
        for namespace in (["sales"], ["hr"], ["sales", "eu"]):
            assert lake.status("root", "POST", "/v1/namespaces", {"namespace": namespace}) == 200
        for path in ("sales", "hr"):
            for name in ("t", "t2"):
                body = {"name": name, "schema": SCHEMA}
                assert lake.status("root", "POST", f"/v1/namespaces/{path}/tables", body) == 200
            assert lake.status("root", "POST", f"/v1/namespaces/{path}/views", creation("v")) == 200
        lake.give("owner", "ownership", "namespace:sales")
        grants.set_grants(services, is_on=True)
        time.sleep(1.5)
        yield lake


SALES, HR = "/v1/namespaces/sales", "/v1/namespaces/hr"
T = f"{SALES}/tables/t"
ROWS = [{"id": 1}]


def test_grants_decide_and_scopes_are_their_bound(governed: Governed) -> None:
    lake = governed
    assert lake.status("root", "GET", T) == 403
    assert lake.status("boss", "GET", T) == lake.status("owner", "GET", T) == 200
    assert lake.status("ann", "GET", T) == lake.status("reader", "GET", T) == 403
    lake.give("ann", "select", "table:sales.t")
    lake.give("reader", "select insert", "namespace:sales")
    assert lake.status("ann", "GET", T) == lake.status("reader", "GET", T) == 200
    assert lake.status("ann", "GET", f"{SALES}/tables/t2") == 403
    assert lake.status("reader", "POST", f"{T}/rows", ROWS) == 403
    assert lake.status("owner", "POST", f"{T}/rows", ROWS) == 200
    assert lake.status("ann", "POST", f"{T}/rows", ROWS) == 403


def test_roles_in_roles_give_what_they_have(governed: Governed) -> None:
    lake = governed
    lake.join("ann", "analysts")
    lake.join("analysts", "staff")
    lake.give("staff", "select", "warehouse")
    assert lake.status("ann", "GET", T) == lake.status("ann", "GET", f"{HR}/views/v") == 200
    lake.sql("UPDATE duckicelake_principal SET is_disabled = true WHERE name = 'staff'")
    time.sleep(1)
    assert lake.status("ann", "GET", T) == 403


def eventually_refused(lake: Governed, who: str, path: str, worker: int) -> float:
    """Seconds until a load is refused."""
    begun = time.monotonic()
    while lake.status(who, "GET", path, worker=worker) == 200:
        assert time.monotonic() < begun + 5
    return time.monotonic() - begun


def test_revoked_right_ends_within_a_second_on_every_worker(governed: Governed) -> None:
    lake = governed
    lake.give("ann", "select insert", "table:sales.t")
    key = str(uuid7())
    assert lake.status("ann", "POST", f"{T}/rows", ROWS, Idempotency_Key=key) == 200
    assert lake.status("ann", "POST", f"{T}/rows", ROWS, Idempotency_Key=key) == 200
    for worker in (0, 1):
        for _ in range(20):  # from memory
            assert lake.status("ann", "GET", T, worker=worker) == 200
    lake.take("ann", "select insert", "table:sales.t")
    assert lake.status("ann", "POST", f"{T}/rows", ROWS, worker=1) == 403
    assert lake.status("ann", "POST", f"{T}/rows", ROWS, Idempotency_Key=key) == 403
    assert eventually_refused(lake, "ann", T, 0) < 1
    assert eventually_refused(lake, "ann", T, 1) < 1


def test_new_grant_and_new_table_count_at_once_on_every_worker(governed: Governed) -> None:
    lake = governed
    lake.give("ann", "create", "namespace:hr")
    body = {"name": "own", "schema": SCHEMA}
    assert lake.status("ann", "POST", f"{HR}/tables", body) == 200
    assert lake.status("ann", "GET", f"{HR}/tables/own", worker=1) == 200
    assert lake.status("ann", "POST", f"{HR}/tables/own/rows", ROWS, worker=1) == 200
    assert names(lake, "ann", f"{HR}/tables", worker=1) == ["own", "t", "t2"]
    lake.give("bob", "select", "table:hr.own")
    assert lake.status("bob", "GET", f"{HR}/tables/own", worker=1) == 200
    assert names(lake, "bob", f"{HR}/tables", worker=1) == ["own"]


def names(lake: Governed, who: str, path: str, **more: Any) -> list[str]:
    answer = lake.ask(who, "GET", path, **more)
    assert answer.status_code == 200, answer.text
    return [one["name"] for one in answer.json()["identifiers"]]


def test_lists_show_what_one_may_see(governed: Governed) -> None:
    lake = governed
    assert lake.ask("ann", "GET", "/v1/namespaces").json()["namespaces"] == []
    assert lake.status("ann", "GET", f"{SALES}/tables") == 403
    lake.give("ann", "insert", "table:sales.t2")
    lake.give("ann", "select", "view:sales.v")
    assert lake.ask("ann", "GET", "/v1/namespaces").json()["namespaces"] == [["sales"]]
    assert names(lake, "ann", f"{SALES}/tables") == ["t2"]
    assert names(lake, "ann", f"{SALES}/views") == ["v"]
    assert lake.ask("ann", "GET", "/v1/namespaces?parent=sales").json()["namespaces"] == []
    assert lake.status("ann", "GET", "/v1/namespaces?parent=hr") == 403
    assert {one["table"] for one in lake.ask("boss", "GET", "/pipeline/v1/tables").json()["tables"]} == {"t", "t2"}
    assert lake.ask("ann", "GET", "/pipeline/v1/tables").json()["tables"] == []


def test_refusals_say_the_same_of_what_there_is_and_of_what_there_is_not(governed: Governed) -> None:
    lake = governed
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/rows"), ("GET", "/history"), ("GET", "/credentials")):
        for kind in ("t", "absent"):
            answer = lake.ask("ann", method, f"{HR}/tables/{kind}{path}", ROWS if method == "POST" else None)
            assert answer.status_code == 403, (path, answer.text)
            assert answer.json()["error"]["message"] == (
                f"The caller's scopes and grants don't allow this on hr.{kind}, if there is such a thing"
            )


def commit(operation: str, *more: Any) -> Any:
    snapshot = {
        "snapshot-id": 1,
        "sequence-number": 1,
        "timestamp-ms": int(time.time() * 1000),
        "manifest-list": "file:///nowhere/list.avro",
        "summary": {"operation": operation},
        "schema-id": 0,
    }
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1},
    ]
    return {"requirements": [], "updates": [*updates, *more]}


PROPERTY = {"action": "set-properties", "updates": {"a": "b"}}
BRANCH = {"action": "set-snapshot-ref", "ref-name": "b", "type": "branch", "snapshot-id": 1}


@pytest.mark.parametrize(
    ("body", "enough", "short"),
    [
        (commit("append"), "insert", "update delete alter"),
        (commit("delete"), "delete", "update insert alter"),
        (commit("overwrite"), "update", "insert alter"),
        (commit("replace"), "insert delete", "delete alter"),
        (commit("append", PROPERTY), "insert alter", "insert update delete"),
        (commit("append", BRANCH), "insert alter", "insert update delete"),
        ({"requirements": [], "updates": [PROPERTY]}, "alter", "insert update delete"),
        ({"requirements": [], "updates": [{"action": "set-location", "location": "file:///x"}]}, "alter", "insert"),
    ],
)
def test_commit_takes_the_privilege_of_its_updates(governed: Governed, body: Any, enough: str, short: str) -> None:
    lake = governed
    lake.give("ann", f"select {short}", "table:sales.t")
    changes = {"table-changes": [{"identifier": {"namespace": ["sales"], "name": "t"}, **body}]}
    refusal = "scopes and grants"
    for path, asked in ((T, body), ("/v1/transactions/commit", changes)):
        assert refusal in lake.ask("ann", "POST", path, asked).text
    lake.take("ann", short, "table:sales.t")
    lake.give("ann", enough, "table:sales.t")
    for path, asked in ((T, body), ("/v1/transactions/commit", changes)):
        answer = lake.ask("ann", "POST", path, asked)
        assert answer.status_code != 500
        assert refusal not in answer.text


def test_renamed_namespace_keeps_its_grants_and_moves_give_nothing(governed: Governed) -> None:
    lake = governed
    lake.give("ann", "select", "namespace:sales.eu")
    lake.give("bob", "select alter drop create", "namespace:sales")
    lake.give("eve", "ownership", "namespace:hr")
    lake.give("eve", "select drop", "namespace:sales")
    rename = f"{SALES}/rename"
    for who, destination in (("ann", ["x"]), ("bob", ["x"]), ("bob", ["hr", "x"]), ("eve", ["hr", "x"])):
        assert lake.status(who, "POST", rename, {"destination": destination}) == 403, who
    assert lake.status("owner", "POST", rename, {"destination": ["x"]}) == 403  # it may create nothing there
    lake.give("bob", "create", "warehouse")
    answer = lake.ask("bob", "POST", rename, {"destination": ["trade"]})
    assert answer.status_code == 200, answer.text
    for worker in range(2):
        assert lake.status("owner", "GET", "/v1/namespaces/trade/tables/t", worker=worker) == 200
        assert lake.status("ann", "GET", "/v1/namespaces/trade%1Feu", worker=worker) == 200
        assert lake.status("ann", "GET", "/v1/namespaces/trade/tables/t", worker=worker) == 403
        assert lake.status("owner", "GET", T, worker=worker) == 403
