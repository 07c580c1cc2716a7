"""A lake whose server asks an outside service: on every route, in every list, and after every way round."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from time import monotonic, sleep
from typing import Any

import httpx
import psycopg
import pytest

from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.changelog.writer import write_all_changes
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.auth.opa import OpaDecisions, OpaOptions
from duckicelake.server.auth.permissions import (
    Administration,
    AnyToken,
    InBody,
    InPath,
    InQuery,
    Need,
    Public,
    WholeCatalog,
)
from duckicelake.server.hooks import list_needs
from tests.conftest import new_lake, services_of
from tests.server.auth.test_opa import FAULTS, Clock, speaking
from tests.server.auth.test_permissions import ABSENT, BODIES, EXPECTED, SCOPES, Lake, commits, path_of, rename, serving
from tests.support.client import SCHEMA
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.opa import OpaServer, Policy, deciding
from tests.support.servers import running

CHECKED_BY_THEMSELVES = {"GET /v1/namespaces/{namespace}/tables/{table}/changes"}
"""Routes for any token that check the right to a table as a query does."""
KEPT_SECONDS = 0.2
NEEDS = {f"{method} {path}": need for (method, path), need in list_needs().items()}
EU = ["sales", "eu"]
TABLES = "/v1/namespaces/sales%1Feu/tables"


class Limited:
    """The lake of test_permissions, and the service that is asked about it."""

    def __init__(self, lake: Lake, opa: OpaServer, url: str, services: Services) -> None:
        self.lake, self.opa, self.url, self.services = lake, opa, url, services

    def decide(self, policy: Policy = lambda *_: True, **changes: Any) -> None:
        """Change the policy, and wait until no decision by the former one is kept."""
        wanted = policy, changes.get("status", 200)
        if wanted != (self.opa.policy, self.opa.status):
            self.opa.policy, self.opa.status = wanted
            sleep(KEPT_SECONDS * 1.2)
        self.opa.inputs.clear()

    def ask(self, who: str, route: str, *, is_absent: bool = False) -> httpx.Response:
        path = path_of(route, table="no", view="no") if is_absent else path_of(route)
        return self.lake.ask(who, route.split(maxsplit=1)[0], path, BODIES.get(route))

    def get(self, path: str, who: str = "root") -> Any:
        answer = self.lake.ask(who, "GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def statistics(self) -> Mapping[str, int]:
        assert self.services.rights is not None
        assert self.services.rights.outside is not None
        return self.services.rights.outside.statistics()

    def sql(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(statement).fetchall()


@pytest.fixture(scope="module")
def served(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with (
        new_lake(postgres, warehouse) as url,
        deciding() as opa,
        closing(open_lake_database(url, pool_size=4)) as database,
        closing(OpaDecisions(OpaOptions(opa.url, seconds=5, cache_seconds=KEPT_SECONDS))) as decisions,
    ):
        services = replace(services_of(database, warehouse), rights=RightsCache.of_first(database, decisions))
        for lake in serving(services):
            yield Limited(lake, opa, url, services)


@pytest.fixture
def limited(served: Limited) -> Limited:
    served.decide()
    return served


def is_asked(need: Need) -> bool:
    return isinstance(need, InPath | InBody) or (isinstance(need, WholeCatalog) and bool(need.privileges))


@pytest.mark.parametrize("route", EXPECTED)
def test_service_that_allows_all_changes_nothing(limited: Limited, route: str) -> None:
    through, status = EXPECTED[route]
    for who in ("nobody", "elsewhere", "r", "w", "manager", "root"):
        answer = limited.ask(who, route, is_absent=route in ABSENT)
        if who in through:
            assert answer.status_code == status or (status == 0 and answer.status_code not in {401, 403}), answer.text
        else:
            assert answer.status_code == (401 if who == "nobody" else 403), (who, answer.text)


def test_service_that_refuses_all_refuses_each_route_that_names_something(limited: Limited) -> None:
    limited.decide(lambda *_: False)
    for route, need in NEEDS.items():
        answer = limited.ask("root", route)
        if is_asked(need) or route in CHECKED_BY_THEMSELVES:
            assert answer.status_code == 403, (route, answer.status_code, answer.text)
        else:
            assert isinstance(need, Public | AnyToken | InQuery | WholeCatalog | Administration)
            assert answer.status_code == EXPECTED[route][1], (route, answer.status_code, answer.text)


def test_routes_that_name_something_are_closed_while_the_service_is_away(limited: Limited) -> None:
    limited.decide(status=500)
    for route, need in NEEDS.items():
        answer = limited.ask("root", route)
        if is_asked(need):
            assert answer.status_code == 503, (route, answer.status_code, answer.text)
            assert answer.headers["Retry-After"] == "1"
            if answer.request.method != "HEAD":
                assert "outside decision can't be had now" in answer.json()["error"]["message"]
        elif isinstance(need, Public | WholeCatalog):
            assert answer.status_code == EXPECTED[route][1], (route, answer.status_code, answer.text)
        else:  # lists, as far as there is something to be decided
            assert answer.status_code in {EXPECTED[route][1], 503}, (route, answer.status_code, answer.text)
    for path in ("/healthz", "/readyz", "/v1/config"):
        assert limited.lake.ask("root", "GET", path).status_code == 200


FLOODS = ("an endless body", "a slow body", "a body that unzips to 64 MiB", "endless heads", "no HTTP")


def test_floods_of_the_service_end_as_refusals_and_hold_no_other(limited: Limited) -> None:
    fault = FLOODS[0]
    clock = Clock()
    with (
        speaking(lambda client: FAULTS[fault][1](client)) as place,  # noqa: PLW0108 - the fault of the moment
        closing(OpaDecisions(OpaOptions(f"http://{place}", seconds=0.5, cache_seconds=0), clock)) as decisions,
    ):
        server, rights = Server(), RightsCache.of_first(limited.services.database, decisions)
        services = replace(limited.services, rights=rights)
        app = server.app(services, server.authentication(OAuthClient("root", SECRET, ("*",))))
        with running(app) as uri, httpx.Client(base_url=uri, timeout=60) as http, ThreadPoolExecutor(12) as clients:
            root = bearing(token(http, "root"))
            for number, fault in enumerate(FLOODS):
                begun, clock.now = monotonic(), 10.0 * number  # the failure before isn't known any more
                asked = decisions.statistics()["requests"]
                answers = [clients.submit(http.get, f"{TABLES}/t", headers=root) for _ in range(12)]
                assert http.get("/healthz").status_code == 200
                assert monotonic() - begun < 3, "who asks nothing of the service doesn't wait for it"
                assert {answer.result(timeout=20).status_code for answer in answers} == {503}, fault
                assert decisions.statistics()["requests"] > asked, fault


def test_service_is_not_asked_about_what_scopes_refuse(limited: Limited) -> None:
    limited.decide()
    for route, need in NEEDS.items():
        if is_asked(need):
            limited.ask("elsewhere", route)
    assert {name for name, _ in limited.opa.asked} <= {"*"}


def test_lists_show_what_the_service_allows(limited: Limited) -> None:
    hidden = ("hr", "sales.eu.t", "sales.eu.v")
    names = ["/v1/namespaces", TABLES, "/v1/namespaces/sales%1Feu/views", "/v1/history?limit=1000"]
    names += ["/pipeline/v1/tables", "/v1/events?limit=1000", "/v1/dropped"]
    write_all_changes(limited.services)
    before = {path: limited.get(path) for path in names}
    limited.decide(lambda _, __, name: not any(name == one or name.startswith(f"{one}.") for one in hidden))
    after = {path: limited.get(path) for path in names}
    assert [name["name"] for name in after[TABLES]["identifiers"]] == ["t2"]
    assert ["hr"] in before["/v1/namespaces"]["namespaces"]
    assert ["hr"] not in after["/v1/namespaces"]["namespaces"]
    for path in names[3:]:
        shown = {"seen": json.dumps(before[path]), "left": json.dumps(after[path])}
        assert '"hr"' not in shown["left"], path
        assert '"t2"' in shown["left"] or path == "/v1/dropped", path
    left = [(entry["namespace"], entry.get("name")) for entry in after["/v1/history?limit=1000"]["history"]]
    assert "sales.eu.t2" in {f"{'.'.join(of)}.{name}" if isinstance(of, list) else f"{of}.{name}" for of, name in left}
    assert not {name for of, name in left if of in (EU, "sales.eu")} & {"t", "v"}
    statistics = after["/pipeline/v1/tables"]["tables"]
    assert [(row["namespace"], row["table"]) for row in statistics if row["namespace"] == EU] == [(EU, "t2")]


def test_list_is_one_request(limited: Limited) -> None:
    limited.lake.done("POST", "/v1/namespaces", {"namespace": ["many"]})
    for number in range(30):
        limited.lake.done("POST", "/v1/namespaces/many/tables", {"name": f"t{number:02}", "schema": SCHEMA})
    limited.decide(lambda _, __, name: not name.endswith("7"))
    found = limited.get("/v1/namespaces/many/tables")["identifiers"]
    assert [one["name"] for one in found] == [f"t{number:02}" for number in range(30) if number % 10 != 7]
    assert len(limited.opa.inputs) == 2  # the namespace, and its tables
    assert len(limited.get("/v1/namespaces/many/tables?pageSize=10&pageToken=")["identifiers"]) == 9


def test_ways_round_a_refusal_are_closed(limited: Limited) -> None:
    secret = limited.get(f"{TABLES}/t")["metadata-location"]
    limited.decide(lambda _, __, name: name != "sales.eu.t")
    for method, path, body in (
        ("POST", "/v1/namespaces/hr/clone", {"name": "copy", "source": {"namespace": EU, "name": "t"}}),
        ("POST", "/v1/namespaces/hr/register", {"name": "copy", "metadata-location": secret}),
        ("POST", "/v1/tables/rename", rename("t", EU, ["hr"])),
        ("POST", "/v1/transactions/commit", commits((EU, "t2"), (EU, "t"))),
        ("GET", f"{TABLES}/t/credentials", None),
        ("GET", f"{TABLES}/t?snapshots=all", None),
        ("GET", "/v1/namespaces/sales%1Feu/tables/%74", None),
    ):
        answer = limited.lake.ask("root", method, path, body)
        assert answer.status_code == 403, (path, answer.status_code, answer.text)
    limited.decide(lambda _, operation, name: (operation, name) != ("create", "hr"))
    moved = limited.lake.ask("root", "POST", "/v1/tables/rename", rename("t", EU, ["hr"]))
    assert moved.status_code == 403


def test_refusal_is_the_same_whether_or_not_there_is_such_a_thing(limited: Limited) -> None:
    limited.decide(lambda _, __, name: not name.startswith("sales.eu."))
    answers = {
        limited.lake.ask("root", "GET", f"{TABLES}/{name}").text.replace(f".{name}", ".<name>") for name in ("t", "no")
    }
    assert len(answers) == 1
    assert "outside" in answers.pop()


def test_load_from_memory_ends_with_the_decision(limited: Limited) -> None:
    with httpx.Client(base_url=limited.lake.http.base_url, headers=limited.lake.headers["r"]) as http:
        assert [http.get(f"{TABLES}/t").status_code for _ in range(5)] == [200] * 5
        assert len(limited.opa.inputs) == 1
        limited.decide(lambda *_: False)
        assert http.get(f"{TABLES}/t").status_code == 403
        limited.decide()
        assert http.get(f"{TABLES}/t").status_code == 200


def test_refused_reads_are_audited_and_decisions_counted(limited: Limited) -> None:
    limited.decide(lambda *_: False)
    before = limited.statistics()
    assert limited.lake.ask("r", "GET", f"{TABLES}/t2").status_code == 403
    found = limited.sql(
        "SELECT principal, resource, result FROM duckicelake_audit WHERE result LIKE '%403' ORDER BY id DESC LIMIT 1"
    )
    assert found == [("r", "sales.eu.t2", "ForbiddenException 403")]
    limited.lake.ask("r", "GET", f"{TABLES}/t2")
    text = limited.lake.ask("root", "GET", "/metrics").text
    after = limited.statistics()
    assert after["asked"] > before["asked"]
    assert after["cached"] > before["cached"]
    assert f'duckicelake_outside_decisions_total{{outcome="asked"}} {after["asked"]}.0' in text
    assert "duckicelake_outside_seconds_total" in text


def test_scopes_are_those_of_the_other_tests() -> None:
    assert {"r", "w", "manager", "root", "elsewhere"} <= SCOPES.keys()
