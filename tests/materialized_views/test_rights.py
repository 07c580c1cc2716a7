"""Whose rights a materialized view reads with: the definer's, as they are at each refresh. No guarded table is read."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from duckicelake.catalog import grants
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.grants import GrantChange, parse_object
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.query import service
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.conftest import new_lake, services_of
from tests.materialized_views.conftest import LIMITS
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.policies import restrict
from tests.support.servers import running

VIEWS = "/v1/namespaces/sales/materialized-views"
FIELDS = [
    {"id": 1, "name": "k", "type": "int", "required": False},
    {"id": 2, "name": "email", "type": "string", "required": False},
]
CLIENTS = {"root": "*", "ann": "grants", "bob": "grants"}


@dataclass(frozen=True, slots=True)
class GrantedLake:
    """A warehouse with grants on: ann may make views in `sales` and read its table `t`, bob nothing."""

    services: Services
    http: httpx.Client
    tokens: dict[str, str]

    def ask(self, who: str, method: str, path: str, body: Any = None) -> httpx.Response:
        return self.http.request(method, path, json=body, headers=bearing(self.tokens[who]))

    def done(self, who: str, method: str, path: str, body: Any = None) -> Any:
        answer = self.ask(who, method, path, body)
        assert answer.is_success, (method, path, answer.text)
        return answer.json() if answer.content else None

    def refused(self, who: str, method: str, path: str, body: Any = None) -> str:
        answer = self.ask(who, method, path, body)
        assert answer.status_code == 403, answer.text
        return str(answer.json()["error"]["message"])

    def create(self, name: str, query: str = "SELECT k FROM t", who: str = "ann") -> Any:
        return self.done(who, "POST", VIEWS, {"name": name, "query": query})

    def change(self, who: str, privilege: str, on: str, *, is_revoked: bool = False) -> None:
        change = GrantChange(who, (privilege,), parse_object(on))
        given, taken = ([], [change]) if is_revoked else ([change], [])
        grants.change_grants(self.services, given, taken)
        self.look()

    def look(self) -> None:
        """Have the server know of changes at once, which it else does within a second."""
        assert self.services.rights is not None
        self.services.rights.look()


@pytest.fixture(scope="module")
def granted(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrantedLake]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with new_lake(postgres, warehouse) as url, closing(open_lake_database(url, pool_size=6)) as database:
        services = replace(services_of(database, warehouse), rights=RightsCache.of_first(database))
        service._limits[database] = LIMITS
        server = Server()
        clients = [OAuthClient(who, SECRET, (scope,)) for who, scope in CLIENTS.items()]
        with (
            running(server.app(services, server.authentication(*clients))) as uri,
            httpx.Client(base_url=uri, timeout=60) as http,
        ):
            lake = GrantedLake(services, http, {who: token(http, who) for who in CLIENTS})
            lake.done("root", "POST", "/v1/namespaces", {"namespace": ["sales"]})
            for name in ("t", "guarded"):
                body = {"name": name, "schema": {"type": "struct", "schema-id": 0, "fields": FIELDS}}
                lake.done("root", "POST", "/v1/namespaces/sales/tables", body)
                rows = [{"k": 1, "email": "a@b"}, {"k": 2, "email": "c@d"}]
                lake.done("root", "POST", f"/v1/namespaces/sales/tables/{name}/rows", rows)
            for who in CLIENTS:
                lake.done("root", "POST", "/management/v1/principals", {"name": who, "kind": "service"})
            lake.change("root", "ownership", "warehouse")
            lake.change("ann", "create", "namespace:sales")
            for name in ("t", "guarded"):
                lake.change("ann", "select", f"table:sales.{name}")
            grants.set_grants(services, is_on=True)
            lake.look()
            yield lake
        service.end_processes()
        service._limits.pop(database)


def test_who_may_not_read_a_source_makes_no_view_of_it(granted: GrantedLake) -> None:
    granted.change("bob", "create", "namespace:sales")
    said = granted.refused("bob", "POST", VIEWS, {"name": "stolen", "query": "SELECT k FROM t"})
    absent = granted.refused("bob", "POST", VIEWS, {"name": "stolen", "query": "SELECT k FROM absent"})
    assert said.replace("sales.t", "…") == absent.replace("sales.absent", "…")


def test_definer_who_may_no_longer_read_ends_the_refreshes(granted: GrantedLake) -> None:
    granted.create("mine")
    granted.change("ann", "select", "table:sales.t", is_revoked=True)
    assert "don't allow this on sales.t" in granted.refused("root", "POST", f"{VIEWS}/mine/refresh", {})
    shown = granted.done("ann", "GET", f"{VIEWS}/mine")
    assert "don't allow this on sales.t" in shown["error"]
    assert shown["definer"] == "ann"
    granted.change("ann", "select", "table:sales.t")
    assert "error" not in granted.done("root", "POST", f"{VIEWS}/mine/refresh", {})


def test_definer_who_is_disabled_ends_the_refreshes(granted: GrantedLake) -> None:
    granted.create("hers")
    granted.done("root", "POST", "/management/v1/principals/ann", {"is-disabled": True})
    granted.look()
    try:
        assert "deleted or disabled" in granted.refused("root", "POST", f"{VIEWS}/hers/refresh", {})
    finally:
        granted.done("root", "POST", "/management/v1/principals/ann", {"is-disabled": False})
        granted.look()
    granted.done("root", "POST", f"{VIEWS}/hers/refresh", {})


def test_view_is_a_table_of_its_own_to_grants(granted: GrantedLake) -> None:
    granted.create("shared")
    granted.refused("bob", "GET", f"{VIEWS}/shared")
    granted.change("bob", "select", "table:sales.shared")
    assert granted.done("bob", "GET", f"{VIEWS}/shared")["name"] == "shared"
    listed = granted.done("bob", "GET", "/v1/materialized-views")["materialized-views"]
    assert [view["name"] for view in listed] == ["shared"]
    granted.refused("bob", "POST", f"{VIEWS}/shared/refresh", {})
    granted.refused("bob", "DELETE", f"{VIEWS}/shared")
    granted.change("bob", "update", "table:sales.shared")
    granted.done("bob", "POST", f"{VIEWS}/shared/refresh", {})
    granted.done("ann", "DELETE", f"{VIEWS}/shared")


def test_guarded_table_is_no_source_whoever_asks(granted: GrantedLake) -> None:
    granted.create("before", "SELECT k, email FROM guarded")
    restrict(granted.services, "sales.guarded", False, to=("bob",))
    for who in ("ann", "root"):
        said = granted.refused(who, "POST", VIEWS, {"name": "leak", "query": "SELECT email FROM guarded"})
        assert "Policies hide rows or values of sales.guarded" in said
    assert "Policies hide" in granted.refused("root", "POST", f"{VIEWS}/before/refresh", {})
