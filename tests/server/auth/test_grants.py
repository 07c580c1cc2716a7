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
from duckicelake.lake.ducklake.dropped import set_retention
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
        workers, known = [], []
        for _ in range(2):
            database = stack.enter_context(closing(open_lake_database(url, pool_size=4)))
            services = replace(services_of(database, tmp_path), rights=RightsCache.of_first(database))
            known.append(services.rights)
            server = Server()
            uri = stack.enter_context(running(server.app(services, server.authentication(*clients))))
            workers.append(stack.enter_context(httpx.Client(base_url=uri, timeout=60)))
        lake = Governed(url, services, workers)
        for who in (*PEOPLE, "reader"):
            lake.sql("INSERT INTO duckicelake_principal (name, kind) VALUES (%s, 'service')", who)
        for role in ("analysts", "staff"):
            lake.sql("INSERT INTO duckicelake_principal (name, kind) VALUES (%s, 'role')", role)
        lake.join("boss", "admin")
        with services.database.transaction() as cursor:
            set_retention(cursor, 3600)
        for namespace in (["sales"], ["hr"], ["sales", "eu"]):
            assert lake.status("root", "POST", "/v1/namespaces", {"namespace": namespace}) == 200
        for path in ("sales", "hr"):
            for name in ("t", "t2"):
                body = {"name": name, "schema": SCHEMA}
                assert lake.status("root", "POST", f"/v1/namespaces/{path}/tables", body) == 200
            assert lake.status("root", "POST", f"/v1/namespaces/{path}/views", creation("v")) == 200
        lake.give("owner", "ownership", "namespace:sales")
        grants.set_grants(services, is_on=True)
        for rights in known:  # else each would learn of it within seconds
            assert rights is not None
            assert rights.look().is_on
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


def rename(source: str, target: str) -> Any:
    (from_, name), (to, other) = source.split("."), target.split(".")
    return {"source": {"namespace": [from_], "name": name}, "destination": {"namespace": [to], "name": other}}


def test_move_gives_the_mover_nothing(governed: Governed) -> None:
    lake = governed
    path = "/v1/tables/rename"
    lake.give("ann", "select drop", "table:sales.t")
    lake.give("ann", "create insert", "namespace:hr")
    assert lake.status("ann", "POST", path, rename("sales.t", "hr.moved")) == 403
    lake.take("ann", "insert", "namespace:hr")
    lake.take("ann", "select", "table:sales.t")
    assert lake.status("ann", "POST", path, rename("sales.t", "hr.moved")) == 403
    lake.give("ann", "select", "table:sales.t")
    assert lake.status("ann", "POST", path, rename("sales.t", "nowhere.moved")) == 403
    assert lake.status("ann", "POST", path, rename("sales.t", "hr.moved")) == 204
    assert lake.status("ann", "GET", f"{HR}/tables/moved") == 200
    assert lake.status("ann", "POST", f"{HR}/tables/moved/rows", ROWS) == 403
    assert lake.status("owner", "GET", f"{HR}/tables/moved") == 403


def test_grants_follow_what_is_renamed_and_not_its_name(governed: Governed) -> None:
    lake = governed
    lake.give("ann", "select", "table:sales.t")
    lake.give("bob", "select", "view:sales.v")
    assert lake.status("boss", "POST", "/v1/tables/rename", rename("sales.t", "sales.renamed")) == 204
    assert lake.status("boss", "POST", "/v1/views/rename", rename("sales.v", "sales.w")) == 204
    body = {"name": "t", "schema": SCHEMA}
    assert lake.status("boss", "POST", f"{SALES}/tables", body) == 200
    assert lake.status("ann", "GET", f"{SALES}/tables/renamed", worker=1) == 200
    assert lake.status("bob", "GET", f"{SALES}/views/w", worker=1) == 200
    time.sleep(1)
    assert lake.status("ann", "GET", T, worker=1) == 403


def test_drop_takes_grants_out_of_use_and_undrop_brings_them_back(governed: Governed) -> None:
    lake = governed
    lake.give("ann", "select", "table:sales.t")
    assert lake.status("owner", "DELETE", T) == 204
    assert lake.status("owner", "POST", f"{SALES}/tables", {"name": "t", "schema": SCHEMA}) == 200
    time.sleep(1)
    assert lake.status("ann", "GET", T) == 403
    assert [one["name"] for one in lake.ask("ann", "GET", "/v1/dropped").json()["dropped"]] == ["t"]
    assert lake.ask("bob", "GET", "/v1/dropped").json()["dropped"] == []
    undrop = {"kind": "table", "name": "t", "new-name": "back"}
    for who in ("ann", "bob", "root"):
        assert lake.status(who, "POST", f"{SALES}/undrop", undrop) == 403
    lake.give("ann", "create", "namespace:sales")
    assert lake.status("ann", "POST", f"{SALES}/undrop", undrop) == 403
    assert lake.status("ann", "POST", f"{SALES}/undrop", undrop | {"name": "never"}) == 403
    assert lake.status("owner", "POST", f"{SALES}/undrop", undrop) == 200
    assert lake.status("ann", "GET", f"{SALES}/tables/back", worker=1) == 200


def test_namespace_comes_back_with_its_grants(governed: Governed) -> None:
    lake = governed
    lake.give("ann", "select", "namespace:sales.eu")
    assert lake.status("owner", "DELETE", "/v1/namespaces/sales%1Feu") == 204
    assert lake.status("ann", "GET", "/v1/namespaces/sales%1Feu") == 403
    undrop = {"kind": "namespace"}
    assert lake.status("ann", "POST", "/v1/namespaces/sales%1Feu/undrop", undrop) == 403
    assert lake.status("owner", "POST", "/v1/namespaces/sales%1Feu/undrop", undrop) == 200
    assert lake.status("ann", "GET", "/v1/namespaces/sales%1Feu") == 200
    granted = "SELECT count(*) FROM duckicelake_grant WHERE object_kind = 'namespace' AND privilege = 'ownership'"
    assert lake.sql(granted) == [(1,)]


def test_files_of_what_one_may_not_read_are_not_taken(governed: Governed) -> None:
    lake = governed
    lake.give("ann", "create", "namespace:sales")
    lake.give("ann", "select insert delete", "table:sales.t2")  # a registered table writes where the other one does
    for name, status in (("t", 403), ("t2", 200)):
        clone = {"name": f"clone_{name}", "source": {"namespace": ["hr"], "name": name}}
        assert lake.status("ann", "POST", f"{SALES}/clone", clone) == 403
        clone["source"] = {"namespace": ["sales"], "name": name}
        assert lake.status("ann", "POST", f"{SALES}/clone", clone) == status
        where = lake.ask("boss", "GET", f"{SALES}/tables/{name}").json()["metadata-location"]
        register = {"name": f"registered_{name}", "metadata-location": where}
        assert lake.status("ann", "POST", f"{SALES}/register", register) == status
    where = lake.ask("boss", "GET", f"{SALES}/tables/t2").json()["metadata-location"]
    register = {"name": "t", "metadata-location": where, "overwrite": True}
    assert lake.status("ann", "POST", f"{SALES}/register", register) == 403
    view = lake.ask("boss", "GET", f"{HR}/views/v").json()["metadata-location"]
    body = {"name": "w", "metadata-location": view}
    assert lake.status("ann", "POST", f"{SALES}/register-view", body) == 403


def test_table_is_not_placed_into_the_folder_of_another(governed: Governed) -> None:
    lake = governed
    lake.give("ann", "create alter", "namespace:sales")
    place = lake.ask("boss", "GET", T).json()["metadata"]["location"]
    other = lake.ask("boss", "GET", f"{HR}/tables/t").json()["metadata"]["location"]
    for location in (place, f"{place}/below", other, other.rpartition("/")[0] + "/mine"):
        body = {"name": "own", "schema": SCHEMA, "location": location}
        assert lake.status("ann", "POST", f"{SALES}/tables", body) in {400, 403}


def test_transaction_is_refused_whole(governed: Governed) -> None:
    lake = governed
    lake.give("ann", "select alter", "table:sales.t")
    lake.give("ann", "select", "table:sales.t2")
    change = {"requirements": [], "updates": [PROPERTY]}
    for other in ("sales.t2", "hr.t", "nowhere.t"):
        changes = [
            {"identifier": {"namespace": [namespace], "name": name}, **change}
            for namespace, name in (("sales", "t"), other.split("."))
        ]
        for order in (changes, changes[::-1]):
            assert lake.status("ann", "POST", "/v1/transactions/commit", {"table-changes": order}) == 403
    assert "a" not in lake.ask("boss", "GET", T).json()["metadata"]["properties"]


def test_parent_of_what_others_have_gives_its_creator_nothing_below(governed: Governed) -> None:
    lake = governed
    assert lake.status("boss", "POST", "/v1/namespaces", {"namespace": ["deep", "er"]}) == 200
    assert lake.status("boss", "POST", "/v1/namespaces/deep%1Fer/tables", {"name": "t", "schema": SCHEMA}) == 200
    lake.give("ann", "create", "warehouse")
    lake.give("bob", "alter", "warehouse")
    assert lake.status("bob", "POST", "/v1/namespaces/deep/properties", {"updates": {"a": "b"}}) == 200
    assert lake.status("bob", "GET", "/v1/namespaces/deep%1Fer/tables/t") == 403
    assert lake.status("ann", "POST", "/v1/namespaces", {"namespace": ["deep"]}) == 409
    assert lake.status("ann", "POST", "/v1/namespaces", {"namespace": ["own"]}) == 200
    assert lake.status("ann", "POST", "/v1/namespaces/own/tables", {"name": "t", "schema": SCHEMA}) == 200
    assert lake.status("ann", "DELETE", "/v1/namespaces/own/tables/t") == 204
    assert lake.status("ann", "GET", "/v1/namespaces/deep%1Fer/tables/t") == 403


def grant(who: str, privileges: str, **target: Any) -> Any:
    return {"grant": [{"principal": who, "privileges": privileges.split(), "object": target}]}


GRANTS = "/management/v1/grants"
ON_T = {"kind": "table", "namespace": ["sales"], "name": "t"}


def test_one_grants_what_one_has_and_the_right_to_grant_is_no_ownership(governed: Governed) -> None:
    lake = governed
    assert lake.status("ann", "POST", GRANTS, grant("ann", "select", **ON_T)) == 403
    lake.give("ann", "select manage-grants", "table:sales.t")
    for privileges in ("insert", "ownership", "select insert", "select ownership"):
        assert lake.status("ann", "POST", GRANTS, grant("eve", privileges, **ON_T)) == 403
    for target in ({"kind": "warehouse"}, {"kind": "namespace", "namespace": ["sales"]}, {**ON_T, "name": "t2"}):
        assert lake.status("ann", "POST", GRANTS, grant("eve", "select", **target)) == 403
    assert lake.status("eve", "GET", T) == 403
    given = lake.ask("ann", "POST", GRANTS, grant("eve", "select", **ON_T)).json()
    assert given == {"granted": 1, "revoked": 0, "grants-on": True}
    assert lake.status("eve", "GET", T, worker=1) == 200
    revoke = {"revoke": grant("owner", "ownership", kind="namespace", namespace=["sales"])["grant"]}
    assert lake.status("ann", "POST", GRANTS, revoke) == 403
    assert lake.status("owner", "POST", GRANTS, grant("bob", "ownership", **ON_T)) == 200
    assert lake.status("bob", "DELETE", T) == 204
    for wrong in (grant("nobody-at-all", "select", kind="warehouse"), grant("ann", "select", **{**ON_T, "name": "x"})):
        assert lake.status("boss", "POST", GRANTS, wrong) == 404
    for wrong in (
        grant("ann", "fly", kind="warehouse"),
        grant("ann", "select", kind="table"),
        grant("ann", "", **ON_T),
    ):
        assert lake.status("boss", "POST", GRANTS, wrong) == 400
    by = "SELECT DISTINCT principal FROM duckicelake_audit WHERE operation = 'change_grants' AND result = 'ok'"
    assert {("ann",), ("owner",)} <= set(lake.sql(by))


def test_grants_are_listed_for_who_has_or_manages_them(governed: Governed) -> None:
    lake = governed
    lake.give("ann", "select", "table:sales.t")
    lake.give("bob", "select", "table:hr.t")

    def listed(who: str, query: str = "") -> set[tuple[str, str, str]]:
        found = lake.ask(who, "GET", f"{GRANTS}{query}").json()["grants"]
        return {(one["principal"], one["privilege"], ".".join(one["namespace"])) for one in found}

    assert listed("ann") == {("ann", "select", "sales")}
    assert listed("owner") == {("ann", "select", "sales"), ("owner", "ownership", "sales")}
    assert listed("boss") == listed("root") == listed("owner") | {("bob", "select", "hr")}
    assert listed("boss", "?principal=bob") == listed("boss", "?on=table:hr.t") == {("bob", "select", "hr")}


def test_actions_are_what_routes_allow(governed: Governed) -> None:
    lake = governed
    lake.give("ann", "select insert delete", "table:sales.t")

    def actions(who: str, path: str) -> list[str]:
        found: list[str] = lake.ask(who, "GET", f"/v1{path}/actions").json()["actions"]
        return found

    assert actions("ann", "/namespaces/sales/tables/t") == ["select", "insert", "update", "delete"]
    assert actions("ann", "/namespaces/sales") == actions("ann", "") == actions("root", "") == []
    assert actions("ann", "/namespaces/sales/tables/absent") == actions("ann", "/namespaces/no/views/v") == []
    assert "ownership" in actions("owner", "/namespaces/sales/views/absent")
    assert "ownership" in actions("boss", "")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/namespaces/SALES/tables/t",
        "/v1/namespaces/sales/tables/T",
        "/v1/namespaces/sales%2E/tables/t",
        "/v1/namespaces/sales%1Ft",
        "/v1/namespaces/hr/../sales/tables/t2",
        "/v1/namespaces/hr%2F..%2Fsales/tables/t2",
        "/v1/namespaces/hr/tables/..%2F..%2Fsales%2Ftables%2Ft2",
        "/v1/namespaces/s%C3%A0les/tables/t2",
        "/v1/namespaces/sales%20/tables/t",
        "/v1/namespaces/sales.eu/tables/t",
    ],
)
def test_other_spellings_open_nothing(governed: Governed, path: str) -> None:
    lake = governed
    lake.give("ann", "ownership", "table:sales.t")
    assert lake.status("ann", "GET", T) == 200
    assert lake.status("ann", "GET", path) in {400, 403, 404, 405}
    assert lake.status("ann", "DELETE", path) in {400, 403, 404, 405}


def test_names_of_roles_and_groups_are_no_logins(governed: Governed) -> None:
    """A principal whose token says another name has that one's grants only by its own row."""
    lake = governed
    lake.sql("UPDATE duckicelake_principal SET kind = 'role' WHERE name = 'eve'")
    lake.give("eve", "ownership", "warehouse")
    assert lake.status("eve", "GET", T) == 403


def test_feed_history_and_jobs_show_what_one_may_read(governed: Governed) -> None:
    lake = governed
    lake.give("ann", "select", "table:sales.t")
    for name in ("t", "t2"):
        assert lake.status("owner", "POST", f"{SALES}/tables/{name}/rows", ROWS) == 200
    seen = {one["name"] for one in lake.ask("ann", "GET", "/v1/history").json()["history"]}
    assert seen <= {"t"}
    assert lake.status("ann", "GET", f"{T}/history") == 200
    assert lake.status("ann", "GET", f"{SALES}/tables/t2/history") == 403
    told = lake.ask("ann", "GET", "/v1/events").text
    assert '"t2"' not in told


def test_refused_reads_are_in_the_audit_trail(governed: Governed) -> None:
    lake = governed
    assert lake.status("eve", "GET", f"{HR}/tables/t") == 403
    rows = lake.sql("SELECT operation, resource, result FROM duckicelake_audit WHERE principal = 'eve'")
    assert ("load_table", "hr.t", "ForbiddenException 403") in rows


def test_switch_counts_within_a_second_even_where_the_watch_is_late(governed: Governed) -> None:
    """A worker whose thread doesn't get round to looking asks Postgres itself, once it has not looked for so long."""
    lake = governed
    assert lake.services.rights is not None
    lake.services.rights._watch.close()  # of the second worker
    for is_on, status in ((False, 200), (True, 403), (False, 200)):
        grants.set_grants(lake.services, is_on=is_on)
        time.sleep(0.95)
        for worker in (1, 0):
            assert lake.ask("root", "GET", "/v1/whoami", worker=worker).json()["grants-on"] is is_on
            assert lake.status("root", "GET", T, worker=worker) == status
            assert lake.status("root", "GET", T, worker=worker) == status  # from memory, where that may be


def test_grants_off_again_leave_scopes_alone(governed: Governed) -> None:
    lake = governed
    grants.set_grants(lake.services, is_on=False)
    time.sleep(1)
    assert lake.status("root", "GET", T) == lake.status("reader", "GET", T, worker=1) == 200
    assert lake.status("owner", "GET", T) == lake.status("boss", "GET", T, worker=1) == 403
