"""Lists of the management API in pages: each thing once, in one order, while others come and go."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import httpx
import pytest

from duckicelake.catalog.context import page
from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.client.administration import Administrator
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.database import Database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from duckicelake.server.api import create_routes
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.conftest import new_lake, services_of
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import running

SQL = """
INSERT INTO duckicelake_principal (name, kind) SELECT v, 'service' FROM unnest(%(names)s::text[]) v;
INSERT INTO duckicelake_principal (name, kind) VALUES ('team', 'group');
INSERT INTO duckicelake_membership SELECT c.principal_id, m.principal_id
  FROM duckicelake_principal c, duckicelake_principal m WHERE c.name = 'team' AND m.kind = 'service';
INSERT INTO duckicelake_secret (secret_id, principal_id, kind, hash)
  SELECT gen_random_uuid(), principal_id, 'token', v::text::bytea
  FROM duckicelake_principal, generate_series(1, 7) v WHERE name = 'B';
INSERT INTO duckicelake_issuer (name, url, audience) SELECT v, 'https://' || v, 'lake' FROM unnest(%(names)s::text[]) v;
INSERT INTO duckicelake_storage_profile (profile_id, name, root, path_style)
  SELECT gen_random_uuid(), v, 's3://bucket/' || v, false FROM unnest(%(names)s::text[]) v;
INSERT INTO duckicelake_warehouse (warehouse_id, name, schema_name, location, state, is_adopted)
  SELECT gen_random_uuid(), v, 'schema_' || v, '/nowhere/' || v, 'creating', false FROM unnest(%(names)s::text[]) v;
INSERT INTO duckicelake_grant (grantee_id, warehouse_id, object_kind, object_id, privilege, granted_by)
  SELECT principal_id, %(first)s, k, CASE k WHEN 'warehouse' THEN 0 ELSE o END, p, 'root'
  FROM duckicelake_principal, unnest(ARRAY['warehouse', 'table']) k, unnest(ARRAY[9, 10]) o,
       unnest(ARRAY['select', 'drop']) p
  WHERE kind = 'service' ON CONFLICT DO NOTHING;
INSERT INTO duckicelake_policy (policy_id, warehouse_id, name, tag, mask, created_by)
  SELECT gen_random_uuid(), %(first)s, v, 'pii', 'show-last-4', 'root' FROM unnest(%(names)s::text[]) v;
INSERT INTO duckicelake_policy
  (policy_id, warehouse_id, name, table_id, schema_name, table_name, filter, condition, created_by)
  SELECT gen_random_uuid(), %(first)s, 'same', v, 's', 't' || v, 'false', 'false', 'root' FROM generate_series(9, 12) v;
INSERT INTO duckicelake_policy_tag
  SELECT %(first)s, v, t, 's', 't' || t, c, 'c' || c
  FROM unnest(%(names)s::text[]) v, unnest(ARRAY[9, 10]) t, unnest(ARRAY[2, 11]) c;
"""
NAMES = ["B", "a", "b-1", "b_2", "zß", "ä", "日本", "é", "e"]
"""Names that Postgres's collations and code points order differently."""
LISTS = {
    "/management/v1/principals": "principals",
    "/management/v1/principals/{principal}/members": "members",
    "/management/v1/principals/{principal}/secrets": "secrets",
    "/management/v1/issuers": "issuers",
    "/management/v1/warehouses": "warehouses",
    "/management/v1/storage-profiles": "storage-profiles",
    "/management/v1/grants": "grants",
    "/management/v1/me/tokens": "secrets",
    "/management/v1/policies": "policies",
    "/management/v1/column-tags": "tags",
}
"""The field of each list's answer, by route."""
WITHOUT_PAGES = {
    "/management/v1/warehouses/{warehouse}/options",
    "/management/v1/decision",
    "/management/v1/governance",
}
"""Answers about one thing, and lists that come whole."""
ASKED = {route: route for route in LISTS} | {
    "/management/v1/principals/{principal}/members": "/management/v1/principals/team/members",
    "/management/v1/principals/{principal}/secrets": "/management/v1/principals/B/secrets",
}


@pytest.fixture(scope="module")
def database(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with (
        new_lake(postgres, tmp_path_factory.mktemp("warehouse")) as url,
        closing(open_lake_database(url, pool_size=4)) as database,
    ):
        with database.transaction() as cursor:
            for statement in filter(str.strip, SQL.split(";\n")):
                named = {"names": NAMES, "first": "00000000-0000-0000-0000-000000000000"}
                cursor.execute(statement, {key: value for key, value in named.items() if f"%({key})" in statement})
        yield database


@pytest.fixture(scope="module")
def http(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    services = services_of(database, tmp_path_factory.mktemp("other"))
    services = replace(services, rights=RightsCache.of_first(database))
    server = Server()
    app = server.app(services, server.authentication(OAuthClient("root", SECRET, ("*",)), database=database))
    with running(app) as uri, httpx.Client(base_url=uri, timeout=30) as client:
        client.headers.update(bearing(token(client, "root")))
        yield client


def read(http: httpx.Client, route: str, **query: Any) -> tuple[list[Any], str | None]:
    answer = http.get(ASKED[route], params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()[LISTS[route]], answer.json()["next-page-token"]


def read_all(http: httpx.Client, route: str, size: int) -> list[Any]:
    found: list[Any] = []
    following: str | None = ""
    while following is not None:
        items, following = read(http, route, pageToken=following, pageSize=size)
        assert len(items) <= size
        found += items
    return found


def test_every_list_of_the_management_api_has_pages() -> None:
    paths = create_routes().openapi()["paths"]
    routes = {path for path, item in paths.items() if path.startswith("/management/") and "get" in item}
    paged = {
        path for path in routes if any(one["name"] == "pageToken" for one in paths[path]["get"].get("parameters", ()))
    }
    single = {path for path in routes if path.endswith("}")} | {"/management/v1/server", "/management/v1/settings"}
    unprefixed = {path for path in routes - single - WITHOUT_PAGES if "{warehouse}/grants" not in path}
    assert paged & unprefixed == unprefixed == set(LISTS)


@pytest.mark.parametrize("route", [route for route in LISTS if "me/" not in route])
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_pages_have_everything_once_in_the_order_of_the_whole(http: httpx.Client, route: str, size: int) -> None:
    whole, following = read(http, route)
    assert following is None
    assert len(whole) >= 7
    assert read_all(http, route, size) == whole


@pytest.mark.parametrize("route", [route for route in LISTS if "me/" not in route])
@pytest.mark.parametrize("text", ["nonsense", "YWZ0ZXI6YQ!", PageRequest().token or "eA"])
def test_foreign_token_is_refused(http: httpx.Client, route: str, text: str) -> None:
    assert http.get(ASKED[route], params={"pageToken": text}).status_code == 400


@pytest.mark.parametrize(
    "after", ["x", "a\x1ftable\x1fnone\x1fselect", f"a\x1ftable\x1f{'9' * 30}\x1fselect", "a\x1ftable\x1f٣\x1fselect"]
)
def test_token_of_another_list_is_refused_by_those_whose_keys_have_parts(http: httpx.Client, after: str) -> None:
    text = base64.urlsafe_b64encode(b"after:" + after.encode()).decode().rstrip("=")
    for route in ("grants", "policies", "column-tags"):
        answer = http.get(f"/management/v1/{route}", params={"pageToken": text})
        assert answer.status_code == 400, answer.text


def test_what_stays_is_listed_once_while_others_come_and_go(http: httpx.Client, database: Database) -> None:
    kept = {item["name"] for item in read(http, "/management/v1/principals")[0]}
    following: str | None = ""
    seen: list[str] = []
    count = 0
    while following is not None:
        items, following = read(http, "/management/v1/principals", pageToken=following, pageSize=2)
        seen += [item["name"] for item in items]
        count += 1
        with database.transaction() as cursor:
            cursor.execute("DELETE FROM duckicelake_principal WHERE name LIKE 'guest%%'")
            for letter in ("A", "guest", "zz"):
                name = f"guest{count}" if letter == "guest" else f"{letter}-guest-{count}"
                cursor.execute("INSERT INTO duckicelake_principal (name, kind) VALUES (%s, 'user')", (name,))
    assert [name for name in seen if name in kept] == sorted(kept)
    assert seen == sorted(set(seen))


class CountingClient(CatalogClient):
    """Counts what it asks for."""

    asked = 0

    def get(self, *arguments: Any, **options: Any) -> Any:
        self.asked += 1
        return super().get(*arguments, **options)


def test_administrator_reads_lists_page_by_page(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "DEFAULT_SIZE", 2)
    shown = http.headers["authorization"].removeprefix("Bearer ")
    client = CountingClient(Connection(str(http.base_url).rstrip("/"), token=shown))
    server = Administrator(client)
    lists: Mapping[str, Callable[[], Sequence[Any]]] = {
        "/management/v1/principals": server.list_principals,
        "/management/v1/principals/{principal}/members": lambda: server.list_members("team"),
        "/management/v1/principals/{principal}/secrets": lambda: server.list_secrets("B"),
        "/management/v1/issuers": server.list_issuers,
        "/management/v1/warehouses": server.list_warehouses,
        "/management/v1/storage-profiles": server.list_profiles,
        "/management/v1/grants": lambda: server.list_grants("duckicelake"),
        "/management/v1/policies": lambda: server.list_policies("duckicelake"),
        "/management/v1/column-tags": lambda: server.list_tags("duckicelake"),
    }
    assert {*lists} == {route for route in LISTS if "me/" not in route}  # that one: test_own_tokens
    for route, list_ in lists.items():
        before = client.asked
        found = list_()
        assert len(found) == len(read(http, route)[0]), route
        assert client.asked - before == (len(found) + 1) // 2, route
