"""A lake with logins of before there were principals, grants and outside decisions: after the upgrade all is as it was.

`scopes_before.json` has what the server of commit d7832f43 answered about the same lake to each form of scope:
this test writes it there, with DUCKICELAKE_TEST_RECORD=1.
"""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg

from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import prepare_catalog
from duckicelake.lake.setup.migrations import load_migrations
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.postgres.queries import load_queries
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.conftest import Attach, new_database, services_of
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import running

ANSWERS: Final = Path(__file__).with_name("scopes_before.json")
LAST: Final = 53
"""The last migration of that commit."""
SCOPES: Final = {
    "all": "*",
    "reader": "ns:sales:r",
    "writer": "ns:sales:w",
    "both": "ns:sales.eu:rw",
    "manager": "ns:sales:*",
    "several": "ns:hr:r ns:sales.eu:w",
    "spelled": "ns:Caf%C3%A9:rw",
    "alike": "ns:sale:* ns:eu:*",
    "north": "wh:north:*",
    "northern": "wh:north:ns:sales:rw",
}
NAMES: Final = ("sales", "sales%1Feu", "hr", "Caf%C3%A9", "main", "no")
CHANGES: Final = (
    ("POST", "tables/t", {"requirements": [{"type": "assert-create"}], "updates": []}),
    ("POST", "tables/t/rows", "no rows"),
    ("DELETE", "tables/no", None),
    ("DELETE", "", None),
    ("POST", "properties", {"removals": ["a"], "updates": {"a": "b"}}),
    ("POST", "register", {"name": "t", "metadata-location": "file:///nowhere/m.json"}),
)


def ask_all(http: httpx.Client) -> dict[str, dict[str, Any]]:
    """Ask for everything with each scope; the answers without what differs from lake to lake."""
    found: dict[str, dict[str, Any]] = {}
    for who in SCOPES:
        http.headers.update(bearing(token(http, who)))
        paths = ["/v1/namespaces", "/v1/namespaces?parent=sales", "/metrics", "/v1/dropped", "/v1/config"]
        paths += ["/pipeline/v1/tables", "/management/v1/warehouses"]
        for name in NAMES:
            paths += [f"/v1/namespaces/{name}{rest}" for rest in ("", "/tables", "/views", "/tables/t", "/tables/no")]
        answers = {path: reduce_answer(path, http.get(path)) for path in paths}
        for name in NAMES:
            for method, rest, body in CHANGES:
                path = f"/v1/namespaces/{name}/{rest}".rstrip("/")
                if not (rest == "" and name in {"Caf%C3%A9", "no"}):
                    answers[f"{method} {path}"] = http.request(method, path, json=body).status_code
        found[who] = answers
        http.headers.pop("Authorization")
    return found


def reduce_answer(path: str, answer: httpx.Response) -> Any:
    if answer.status_code != 200 or path in {"/metrics", "/v1/config"}:
        return answer.status_code
    body = answer.json()
    if "metadata" in body:
        summary = body["metadata"]["snapshots"][-1]["summary"]
        return [body["metadata"]["schemas"][-1]["fields"], summary["total-records"]]
    if "properties" in body:
        return body["namespace"]
    if "tables" in body:
        return [[row["namespace"], row["table"]] for row in body["tables"]]
    return body.get("identifiers", body.get("namespaces", body.get("warehouses", body)))


@contextmanager
def open_old_lake(postgres: EmbeddedPostgres, attach: Attach, warehouse: Path) -> Iterator[str]:
    """A lake as that commit makes it, with rows of DuckDB."""
    with new_database(postgres, "template1") as url:
        queries, migrate = load_queries("lake", "format"), load_queries("lake", "migrate")
        with psycopg.connect(url) as connection:
            connection.execute(queries.create_tables)
            connection.execute(queries.insert_initial_rows, {"data_path": f"{warehouse}/ducklake/"})
            connection.execute(migrate.create_table)
            for migration in load_migrations():
                if migration.number <= LAST:
                    connection.execute(migration.sql)
                    connection.execute(migrate.record, {"number": migration.number, "name": migration.name})
        duckdb = attach(url)
        for schema in ("sales", "sales.eu", "hr", "Café"):
            duckdb.execute(f'CREATE SCHEMA lake."{schema}"')
            duckdb.execute(f"CREATE TABLE lake.\"{schema}\".t AS SELECT i::INTEGER AS i, 'x' AS s FROM range(7) r (i)")
            duckdb.execute(f'CREATE VIEW lake."{schema}".v AS SELECT i FROM lake."{schema}".t')
        yield url


def test_scopes_are_worth_what_they_were(postgres: EmbeddedPostgres, attach: Attach, tmp_path: Path) -> None:
    server = Server()
    clients = [OAuthClient(who, SECRET, tuple(scopes.split())) for who, scopes in SCOPES.items()]
    with (
        open_old_lake(postgres, attach, tmp_path) as url,
        closing(open_lake_database(url, pool_size=4)) as database,
    ):
        prepare_catalog(database, f"{tmp_path}/ducklake/")
        services = services_of(database, tmp_path)
        with (
            running(server.app(services, server.authentication(*clients))) as uri,
            httpx.Client(base_url=uri, timeout=60) as http,
        ):
            found = json.loads(json.dumps(ask_all(http)))
    if "DUCKICELAKE_TEST_RECORD" in os.environ:
        ANSWERS.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    expected = json.loads(ANSWERS.read_text())
    for who, answers in expected.items():
        assert found[who] == answers, who
