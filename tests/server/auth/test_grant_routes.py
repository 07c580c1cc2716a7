"""Every route with every single privilege, on the object itself and above it: who gets through where grants are on.

A route about something in the lake that has no row here fails. Allowed requests are such that they change nothing.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import httpx
import pytest

from duckicelake.catalog import grants
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.grants import GrantChange, parse_object
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.auth.permissions import AnyToken, InPath, Public
from duckicelake.server.hooks import list_needs
from tests.conftest import new_lake, services_of
from tests.server.auth.test_permissions import (
    ABSENT,
    BODIES,
    JOBS,
    MATERIALIZED,
    NAMESPACE,
    TABLE,
    VIEW,
    Lake,
    path_of,
    served,
)
from tests.support.client import SCHEMA
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import running
from tests.support.view_requests import creation

NAMES = ("select", "insert", "update", "delete", "create", "drop", "alter", "manage-grants", "ownership")
ANY, OWNER = set(NAMES), {"ownership"}
DATA = {"insert", "update", "delete"}
READS, UPKEEP, COMMITS = {"select"} | OWNER, DATA | {"alter"} | OWNER, DATA | {"alter", "create"} | OWNER
EITHER = DATA | READS
CREATES, DROPS, ALTERS = ({name} | OWNER for name in ("create", "drop", "alter"))

ON_NAMESPACE: dict[str, set[str]] = {
    f"DELETE {NAMESPACE}": DROPS,
    f"POST {NAMESPACE}/properties": ALTERS,
    f"POST {NAMESPACE}/tables": CREATES,
    f"POST {NAMESPACE}/views": CREATES,
    f"POST {MATERIALIZED}": CREATES,
    f"POST {NAMESPACE}/query-results": CREATES,
    f"POST {NAMESPACE}/register": CREATES,
    f"POST {NAMESPACE}/register-view": OWNER,  # the view whose file the body names must be read, too
    f"POST {NAMESPACE}/clone": OWNER,  # so must the table
    f"POST {NAMESPACE}/undrop": OWNER,  # create and drop
    f"POST {NAMESPACE}/rename": OWNER,  # alter, and create above it
    "POST /v1/namespaces": CREATES,
}
"""Privileges of which one alone, on the namespace or above it, lets a request through."""

SEEING = (
    {f"{method} {NAMESPACE}" for method in ("GET", "HEAD")}
    | {f"GET {NAMESPACE}/{what}" for what in ("tables", "views", "materialized-views", "history")}
    | {f"GET /pipeline{NAMESPACE}/policies"}
)
"""Routes for which any privilege will do, on the namespace, above it, or on something in it."""

ON_OBJECT: dict[str, set[str]] = {
    f"GET {TABLE}": READS,
    f"HEAD {TABLE}": ANY,
    f"GET {MATERIALIZED}/{{table}}": READS,
    f"POST {MATERIALIZED}/{{table}}": ALTERS,
    f"POST {MATERIALIZED}/{{table}}/refresh": {"update"} | OWNER,
    f"DELETE {MATERIALIZED}/{{table}}": DROPS,
    f"POST {TABLE}": COMMITS,
    f"DELETE {TABLE}": DROPS,
    f"POST {TABLE}/unregister": DROPS,
    f"POST {TABLE}/restore": {"update"} | OWNER,
    f"POST {TABLE}/expire": ALTERS,
    f"POST {TABLE}/metrics": EITHER,
    f"POST {TABLE}/plan": READS,
    f"GET {TABLE}/plan/{{plan_id}}": READS,
    f"DELETE {TABLE}/plan/{{plan_id}}": READS,
    f"POST {TABLE}/tasks": READS,
    f"POST {TABLE}/explain": READS,
    f"POST {TABLE}/rows": {"insert"} | OWNER,
    f"DELETE {TABLE}/rows": {"delete"} | OWNER,
    f"POST {TABLE}/rows/flush": UPKEEP,
    f"GET {TABLE}/rows/producers/{{app_id}}": EITHER,
    f"GET {TABLE}/credentials": EITHER,
    f"POST {TABLE}/sign": EITHER,
    f"GET {TABLE}/history": READS,
    f"GET {TABLE}/diff": READS,
    f"GET {TABLE}/snapshots": READS,
    f"GET {VIEW}": READS,
    f"HEAD {VIEW}": ANY,
    f"POST {VIEW}": ALTERS,
    f"DELETE {VIEW}": DROPS,
    f"GET {VIEW}/history": READS,
    f"POST {JOBS}": UPKEEP,
    f"POST {JOBS}/{{job}}": UPKEEP,
    f"POST {JOBS}/{{job}}/end": UPKEEP,
    f"GET /pipeline{TABLE}/runs": READS,
    f"GET /pipeline{TABLE}/files": {"insert"} | READS,
    f"POST /pipeline{TABLE}/file-batches": {"insert"} | OWNER,
    f"POST /pipeline{TABLE}/file-batches/{{batch}}": {"insert"} | OWNER,
    f"GET /pipeline{TABLE}/policies": READS,
    f"POST /pipeline{TABLE}/upkeep": ALTERS,
    f"POST /pipeline{TABLE}/orphans": UPKEEP,
    "POST /v1/tables/rename": OWNER,  # alter of the table and create in its namespace
    "POST /v1/views/rename": OWNER,
    "POST /v1/transactions/commit": COMMITS,
}
"""The same on a table or view, on its namespace or above that."""

NEEDS = {f"{method} {path}": need for (method, path), need in list_needs().items()}
OPEN = {route for route, need in NEEDS.items() if isinstance(need, Public | AnyToken)} | {
    "GET /v1/namespaces",
    "GET /v1/events",
}
"""Routes that every caller gets through; what they show is filtered, and the use case may refuse."""
REFUSED = {route for route, need in NEEDS.items() if route not in OPEN and not isinstance(need, InPath)} - {
    *ON_NAMESPACE,
    *ON_OBJECT,
}
"""Routes that take the scope * or something on the warehouse."""
BY_USE_CASE = {"POST /management/v1/grants"} | {route for route in NEEDS if "/management/v1/me/tokens" in route}


@pytest.fixture(scope="module")
def lake(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with new_lake(postgres, warehouse) as url, closing(open_lake_database(url, pool_size=4)) as database:
        services = replace(services_of(database, warehouse), rights=RightsCache.of_first(database))
        who = [f"{name}-{place}" for name in NAMES for place in ("here", "above")] + ["nothing", "elsewhere"]
        clients = [OAuthClient(name, SECRET, ("grants",)) for name in who]
        clients += [OAuthClient("bounded", SECRET, ("ns:hr:*",)), OAuthClient("root", SECRET, ("*",))]
        server = Server()
        with (
            running(server.app(services, server.authentication(*clients))) as uri,
            httpx.Client(base_url=uri, timeout=60) as http,
        ):
            made = object.__new__(Lake)
            made.http, made.view, made.headers = http, "", {"root": bearing(token(http, "root"))}
            for namespace in (["hr"], ["sales"], ["sales", "eu"]):
                made.done("POST", "/v1/namespaces", {"namespace": namespace})
            for name in ("t", "t2"):
                made.done("POST", "/v1/namespaces/sales%1Feu/tables", {"name": name, "schema": SCHEMA})
            for name in ("v", "v2"):
                made.done("POST", "/v1/namespaces/sales%1Feu/views", creation(name))
            made.view = made.ask("root", "GET", path_of(f"GET {VIEW}")).json()["metadata-location"]
            with database.transaction() as cursor:
                for name in (*who, "bounded"):
                    cursor.execute("INSERT INTO duckicelake_principal (name, kind) VALUES (%s, 'service')", (name,))
            given = [("elsewhere", "ownership", "namespace:hr"), ("bounded", "ownership", "warehouse")]
            for name in NAMES:
                given += [(f"{name}-here", name, place) for place in ("table:sales.eu.t", "view:sales.eu.v")]
                given.append((f"{name}-above", name, "namespace:sales"))
            grants.change_grants(services, [GrantChange(one, (name,), parse_object(on)) for one, name, on in given])
            grants.set_grants(services, is_on=True)
            assert services.rights is not None
            services.rights.look()
            made.headers |= {name: bearing(token(http, name)) for name in (*who, "bounded")}
            yield made


def test_every_route_about_the_lake_has_a_row() -> None:
    listed = [OPEN, REFUSED, set(ON_NAMESPACE), set(ON_OBJECT), SEEING]
    assert sum(map(len, listed)) == len(set().union(*listed))
    assert set().union(*listed) == served()


def may(route: str, who: str) -> bool | None:
    """Whether a caller gets through; None: only the use case knows."""
    name, _, place = who.rpartition("-")
    if route in BY_USE_CASE or (route in ABSENT and place == "here"):
        return None
    if route in OPEN:
        return True
    if route in REFUSED or not name:
        return False
    if route in SEEING:
        return True
    if route in ON_NAMESPACE:
        return place == "above" and name in ON_NAMESPACE[route]
    owner_moves = route.endswith("/rename") and place == "here"  # it takes the right to create in the namespace
    return name in ON_OBJECT[route] and not owner_moves


@pytest.mark.parametrize("route", sorted(NEEDS))
def test_route_lets_through_whom_grants_let(lake: Lake, route: str) -> None:
    method, _ = route.split()
    path = path_of(route, table="no", view="no") if route in ABSENT else path_of(route)
    for who in sorted(set(lake.headers) - {"root"}):
        expected = may(route, who)
        answer = lake.ask(who, method, path, BODIES.get(route) or ([{"id": "x"}] if path.endswith("/rows") else None))
        if expected is None or (route in OPEN and isinstance(NEEDS[route], AnyToken) and answer.status_code == 403):
            continue
        assert (answer.status_code not in {401, 403}) == expected, (who, answer.status_code, answer.text)
        assert answer.status_code < 500, answer.text
        if not expected and method != "HEAD":
            assert "t2" not in answer.text
            assert "v2" not in answer.text.replace(SECRET, "")
