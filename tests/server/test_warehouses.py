"""Several warehouses in one server: found by name and prefix, opened and closed at run time, apart from one another."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from starlette.routing import Route

import duckicelake
from duckicelake.catalog.context.hooks import ReadObserver
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.context.storage_access import StorageAccess
from duckicelake.catalog.warehouse_places import NewWarehouse
from duckicelake.catalog.warehouse_registry import create_warehouse
from duckicelake.catalog.warehouses import (
    RESERVED_NAMES,
    WarehouseWiring,
    build_prefix,
    open_warehouse,
)
from duckicelake.changelog.doctor import examine_lake
from duckicelake.changelog.writer import follow_in_background
from duckicelake.cli.serve.background_tasks import run_warehouse_tasks
from duckicelake.lake.ducklake.database import build_attach_source
from duckicelake.pipeline.maintenance import MaintainRequest, read_states
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from duckicelake.server.api import App, create_routes
from duckicelake.server.app import Edge, create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.middleware.quotas import Rates
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.server.warehouses import ROUTE_ROOTS, split_warehouse
from duckicelake.settings.model import Settings
from tests.conftest import new_duckdb
from tests.support.client import SCHEMA
from tests.support.logins import SECRET, Server
from tests.support.servers import Serve
from tests.support.waits import wait_until

LOG = StringIO()
NAMES = ("north", "south")
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})


@dataclass
class Site:
    """A server with three warehouses: the first, north, south."""

    services: Services
    wiring: WarehouseWiring
    app: App
    http: httpx.Client

    def url(self, warehouse: str, path: str) -> str:
        return f"/v1/{warehouse}/{path}" if warehouse else f"/v1/{path}"

    def create_table(self, warehouse: str, name: str = "t") -> None:
        created = self.http.post(self.url(warehouse, "namespaces"), json={"namespace": ["ns"]})
        assert created.status_code in (200, 409), created.text
        answer = self.http.post(self.url(warehouse, "namespaces/ns/tables"), json={"name": name, "schema": SCHEMA})
        assert answer.status_code == 200, answer.text

    def post_rows(self, warehouse: str, *rows: dict[str, Any], headers: dict[str, str] | None = None) -> httpx.Response:
        url = self.url(warehouse, "namespaces/ns/tables/t/rows")
        return self.http.post(url, json=list(rows), headers=headers)

    def names(self, warehouse: str) -> list[str]:
        answer = self.http.get(self.url(warehouse, "namespaces/ns/tables"))
        return [one["name"] for one in answer.json().get("identifiers", ())]


def site_of(services: Services, folder: Path, serve: Serve, edge: Edge | None = None, **wiring: Any) -> Site:
    made = WarehouseWiring(roots=(str(folder / "warehouses"),), **wiring)
    app = create_app(services, edge=edge, log=make_logger(LOG), wiring=made)
    return Site(services, made, app, serve(app))


@pytest.fixture
def site(services: Services, tmp_path: Path, serve: Serve) -> Iterator[Site]:
    site = site_of(services, tmp_path, serve)
    for name in NAMES:
        answer = site.http.post("/management/v1/warehouses", json={"name": name})
        assert answer.status_code == 200, answer.text
    yield site
    site.app.warehouses.close()


def test_config_gives_the_prefix_of_all_but_the_first(site: Site) -> None:
    for warehouse, overrides in (("", {}), ("duckicelake", {}), ("north", {"prefix": "north"})):
        answer = site.http.get("/v1/config", params={"warehouse": warehouse} if warehouse else {})
        assert answer.json()["overrides"] == overrides
    assert site.http.get("/v1/south/config").json()["overrides"] == {"prefix": "south"}
    for unknown in ("west", "North", "a/b", "../north", "%6eorth"):
        answer = site.http.get("/v1/config", params={"warehouse": unknown})
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NoSuchWarehouseException")
    lost = site.http.get("/v1/west/namespaces")
    assert (lost.status_code, lost.json()["error"]["type"]) == (404, "NoSuchWarehouseException")


def test_first_warehouse_has_its_routes_with_and_without_prefix(site: Site) -> None:
    site.create_table("")
    assert site.names("duckicelake") == site.names("") == ["t"]
    assert site.names("north") == []


def test_clients_of_a_warehouse_ask_its_own_routes(site: Site) -> None:
    for warehouse in ("", "north"):
        site.create_table(warehouse, f"t_{warehouse}")
    first, north = (CatalogClient(Connection(str(site.http.base_url), warehouse=name)) for name in (None, "north"))
    job = {"id": str(uuid4()), "kind": "compact", "engine": "test", "lease-seconds": 60}
    north.begin_job(("ns",), "t_north", job)
    assert [one["table"] for one in north.jobs()] == ["t_north"]
    assert list(first.jobs()) == []
    assert north.run(("ns",), "t_north", "none") is None
    tables = [[state.table for state in read_states(client, MaintainRequest())] for client in (first, north)]
    assert tables == [["t_"], ["t_north"]]


def test_no_client_builds_the_path_of_a_route_without_the_warehouse() -> None:
    """`CatalogClient.own` and `.pipeline` do, which a path written out would forget."""
    package = Path(duckicelake.__file__).parent
    files = [
        file for folder in ("rest", "client", "pipeline", "shell", "cli") for file in (package / folder).rglob("*.py")
    ]
    written = re.compile(r"""["'](f["'])?/(pipeline|lineage|sql|duckdb|mcp)/v1/""")
    assert [str(file) for file in files if written.search(file.read_text())] == []


def test_each_route_has_a_place_for_the_warehouse() -> None:
    """A name that a warehouse may have is no part of a route, and each route of a lake is below a root."""
    paths = [route.path for route in create_routes().router.routes if isinstance(route, Route)]
    of_server = re.compile(r"/(healthz|readyz|metrics|openapi\.json|\.well-known/.*|ui(/.*)?|management/v1/.*)?")
    for path in paths:
        if of_server.fullmatch(path):
            continue
        root = next((root for root in ROUTE_ROOTS if path.startswith(root)), None)
        assert root is not None, f"{path} has no place for the name of a warehouse"
        rest = path.removeprefix(root)
        assert rest.partition("/")[0] in RESERVED_NAMES, f"a warehouse may have the name of {path}"
        assert split_warehouse(path) is None
        assert split_warehouse(f"{root}north/{rest}") == ("north", path)
        for name in RESERVED_NAMES:
            assert split_warehouse(f"{root}{build_prefix(name)}/{rest}") == (name, path)
        assert split_warehouse(f"{root}_north/{rest}") == ("north", path)
        assert split_warehouse(f"{root}__north/{rest}") is None


def test_warehouse_with_the_name_of_a_route_is_reached(site: Site) -> None:
    """It had its name before the route was there."""
    site.create_table("north")
    with site.services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_warehouse SET name = 'queries' WHERE name = 'north'")
    config = site.http.get("/v1/config", params={"warehouse": "queries"})
    assert config.json()["overrides"]["prefix"] == "_queries", config.text
    assert site.names("_queries") == ["t"]
    loaded = site.http.get("/v1/_queries/namespaces/ns/tables/t")
    assert loaded.status_code == 200, loaded.text
    listed = site.http.get("/management/v1/warehouses").json()["warehouses"]
    assert "_queries" in {row["prefix"] for row in listed}
    assert site.http.get("/management/v1/warehouses/queries/grants").status_code == 200
    assert site.http.post("/management/v1/warehouses", json={"name": "calls"}).status_code == 400
    advice = [finding.advice for finding in examine_lake(site.services, list) if finding.name == "warehouse name"]
    assert advice == ["rename it: duckicelake warehouse rename queries NAME"]
    renamed = site.http.post("/management/v1/warehouses/queries/rename", json={"name": "north"})
    assert renamed.json()["prefix"] == "north"
    assert site.names("north") == ["t"]


def test_warehouses_know_nothing_of_each_others_tables_rows_and_keys(site: Site) -> None:
    """The same requests, keys and batches in each warehouse have each its own effect."""
    key, producer = {"Idempotency-Key": "0190b9a0-0000-7000-8000-000000000001"}, str(uuid4())
    uuids, tags = set(), set()
    for number, warehouse in enumerate(("", *NAMES)):
        body = {"namespace": ["keyed"], "properties": {"owner": f"of {warehouse}"}}
        assert site.http.post(site.url(warehouse, "namespaces"), json=body, headers=key).status_code == 200
        answer = site.http.get(site.url(warehouse, "namespaces/keyed")).json()
        assert answer["properties"]["owner"] == f"of {warehouse}"
        site.create_table(warehouse)
        assert site.post_rows(warehouse, *[{"id": i, "name": warehouse} for i in range(number + 1)]).status_code == 200
        for _ in range(3):  # by the route, by memory, and as the same bytes again
            loaded = site.http.get(site.url(warehouse, "namespaces/ns/tables/t"))
        metadata = loaded.json()["metadata"]
        uuids.add(metadata["table-uuid"])
        tags.add(loaded.headers["etag"])
        assert metadata["snapshots"][-1]["summary"]["total-records"] == str(number + 1)
        place = f"warehouses/{warehouse}/data" if warehouse else "warehouse/data"
        assert place in metadata["location"]
    assert len(uuids) == len(tags) == 3
    other = site.http.get(site.url("north", "namespaces/ns/tables/t"), headers={"If-None-Match": tags.pop()})
    assert other.status_code in (200, 304)
    assert producer


def test_same_bytes_again_are_answered_by_the_warehouse_that_was_asked(site: Site) -> None:
    for warehouse in NAMES:
        site.create_table(warehouse)
    site.create_table("north", "only")
    for _ in range(4):
        assert site.http.head(site.url("north", "namespaces/ns/tables/only")).status_code == 204
        assert site.http.head(site.url("south", "namespaces/ns/tables/only")).status_code == 404
        assert site.http.head(site.url("", "namespaces/ns/tables/only")).status_code == 404


def test_dropped_warehouse_answers_nothing_from_memory(site: Site) -> None:
    site.create_table("north")
    url = site.url("north", "namespaces/ns/tables/t")
    for _ in range(3):
        assert site.http.get(url).status_code == 200
    refused = site.http.delete("/management/v1/warehouses/north")
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "ConflictException")
    assert "1 table" in refused.json()["error"]["message"]
    assert site.http.get(url).status_code == 200
    dropped = site.http.delete("/management/v1/warehouses/north", params={"force": "true"})
    assert (dropped.status_code, dropped.json()) == (200, {"tables": 1, "views": 0, "namespaces": 1})
    assert site.http.get(url).status_code == 404
    again = site.http.post("/management/v1/warehouses", json={"name": "north"})
    assert again.status_code == 200, again.text
    assert site.http.get(url).json()["error"]["type"] == "NoSuchTableException"
    site.create_table("north")


def test_other_workers_notice_creations_at_once_and_drops_soon(site: Site, tmp_path: Path, serve: Serve) -> None:
    other = site_of(site.services, tmp_path, serve)
    with closing(other.app.warehouses):
        assert other.http.get("/v1/west/namespaces").status_code == 404
        assert site.http.post("/management/v1/warehouses", json={"name": "west"}).status_code == 200
        assert other.http.get("/v1/west/namespaces").status_code == 200
        assert site.http.delete("/management/v1/warehouses/west").status_code == 200
        wait_until(lambda: other.http.get("/v1/west/namespaces").status_code == 404, seconds=5)


def test_idle_warehouses_are_closed_and_busy_ones_make_room(services: Services, tmp_path: Path, serve: Serve) -> None:
    site = site_of(services, tmp_path, serve, Edge(open_warehouses=2, warehouse_idle_seconds=1.0))
    with closing(site.app.warehouses):
        for name in ("a", "b", "c"):
            create_warehouse(site.services, site.wiring, NewWarehouse(name))
        for name in ("a", "b", "c", "a"):
            site.create_table(name) if not site.names(name) else None
            assert site.names(name) == ["t"]
            assert site.app.warehouses.count_open() <= 2
        pool = services.database.statistics()
        wait_until(lambda: site.app.warehouses.count_open() == 0, seconds=10)
        watch = site.app.state.context.services.rights._watch
        wait_until(lambda: watch.count() <= 1, seconds=10)  # what is closed wakes nothing
        assert [site.names(name) for name in ("a", "b", "c")] == [["t"]] * 3
        assert services.database.statistics()["pool_max"] == pool["pool_max"]


def test_background_tasks_run_while_a_warehouse_is_open(services: Services, tmp_path: Path, serve: Serve) -> None:
    def run_tasks(_: object, own: Services) -> Any:
        return follow_in_background(own, print)

    edge = Edge(rows=Rates(requests=1000))
    site = site_of(services, tmp_path, serve, edge, run_tasks=run_tasks)
    with closing(site.app.warehouses), follow_in_background(services, print):
        for name in NAMES:
            create_warehouse(site.services, site.wiring, NewWarehouse(name))
            site.create_table(name, f"of_{name}")

        def events(name: str) -> set[str]:
            answer = site.http.get(site.url(name, "events"))
            assert answer.status_code == 200, answer.text
            return set(re.findall(r"of_\w+", answer.text))

        for name in NAMES:
            wait_until(lambda name=name: events(name) == {f"of_{name}"}, seconds=20)  # type: ignore[misc]
        assert events("") == set()


def test_duckdb_and_rest_write_the_same_tables(site: Site, extensions: None) -> None:
    """Rows of either are read by the other, in each warehouse, and in no other one."""
    url = site.services.database.url
    for name in NAMES:
        shown = site.http.get(f"/management/v1/warehouses/{name}").json()
        site.create_table(name)
        assert site.post_rows(name, {"id": 1, "name": name}).status_code == 200
        with new_duckdb() as duckdb:
            schema = shown["metadata-schema"]
            duckdb.execute(f"ATTACH '{build_attach_source(url)}' AS lake (METADATA_SCHEMA '{schema}')")
            assert duckdb.sql("SELECT id, name FROM lake.ns.t").fetchall() == [(1, name)]
            duckdb.execute("INSERT INTO lake.ns.t SELECT i, 'duckdb' FROM range(100) r(i)")
            duckdb.execute("CREATE TABLE lake.ns.made AS SELECT 7::BIGINT AS id")
        loaded = site.http.get(site.url(name, "namespaces/ns/tables/t")).json()["metadata"]
        assert loaded["snapshots"][-1]["summary"]["total-records"] == "101"
        assert sorted(site.names(name)) == ["made", "t"]
    assert site.names("") == []


def test_pyiceberg_writes_two_warehouses_at_once(site: Site) -> None:
    uri = str(site.http.base_url)
    catalogs = [RestCatalog(name, uri=uri, warehouse=name) for name in NAMES]
    for number, catalog in enumerate(catalogs):
        catalog.create_namespace("ns")
        table = catalog.create_table("ns.t", schema=ROWS.schema)
        for _ in range(number + 1):
            table.append(ROWS)
    assert [catalog.load_table("ns.t").scan().to_arrow().num_rows for catalog in catalogs] == [2, 4]
    assert ("ns",) not in RestCatalog("first", uri=uri).list_namespaces()


def test_lake_of_duckdb_is_adopted_and_let_go(site: Site, tmp_path: Path, extensions: None) -> None:
    """A lake in a metadata schema of its own becomes a warehouse, with its tables, and outlives it."""
    url = site.services.database.url
    attach = f"ATTACH '{build_attach_source(url)}' AS old (METADATA_SCHEMA 'old lake'"
    with new_duckdb() as duckdb:
        duckdb.execute(f"{attach}, DATA_PATH '{tmp_path}/warehouses/older/ducklake/')")
        duckdb.execute("CREATE SCHEMA old.ns; CREATE TABLE old.ns.t AS SELECT i AS id FROM range(50) r(i)")
    body = {"name": "old", "location": f"{tmp_path}/warehouses/older", "adopted-schema": "old lake"}
    adopted = site.http.post("/management/v1/warehouses", json=body)
    assert adopted.status_code == 200, adopted.text
    assert adopted.json()["is-adopted"]
    loaded = site.http.get("/v1/old/namespaces/ns/tables/t").json()["metadata"]
    assert loaded["snapshots"][-1]["summary"]["total-records"] == "50"
    assert site.http.delete("/management/v1/warehouses/old", params={"keep-lake": "true"}).status_code == 200
    assert site.http.get("/v1/old/namespaces").status_code == 404
    with new_duckdb() as duckdb:
        assert duckdb.execute(f"{attach})").sql("SELECT count(*) FROM old.ns.t").fetchall() == [(50,)]
    assert site.http.post("/management/v1/warehouses", json=body).status_code == 200
    assert site.names("old") == ["t"]


def test_bad_warehouse_is_refused_and_leaves_nothing(site: Site, tmp_path: Path, subtests: pytest.Subtests) -> None:
    refused: list[tuple[dict[str, Any], int, str]] = [
        ({"name": "north"}, 409, "exists"),
        ({"name": "North"}, 400, "lower-case"),
        ({"name": "a.b"}, 400, "lower-case"),
        ({"name": "-a"}, 400, "lower-case"),
        ({"name": "namespaces"}, 400, "routes"),
        ({"name": "duckicelake"}, 400, "routes"),
        ({"name": "x", "location": "/elsewhere/x"}, 400, "expected a folder below"),
        ({"name": "x", "location": "{roots}"}, 400, "expected a folder below"),
        ({"name": "x", "location": "{roots}/../warehouse/x"}, 400, "expected a folder below"),
        ({"name": "x", "location": "{roots}/north"}, 400, "overlaps"),
        ({"name": "x", "location": "{roots}/north/inner"}, 400, "overlaps"),
        ({"name": "x", "location": "s3://bucket/x"}, 400, "expected a folder below"),
        ({"name": "x", "adopted-schema": "public"}, 400, "first warehouse"),
        ({"name": "x", "adopted-schema": "nothing"}, 400, "no DuckLake catalog"),
        ({"name": "x", "adopted-schema": "warehouse_north"}, 409, "is that of warehouse north"),
        ({"name": "x", "adopted-schema": "pg_catalog"}, 400, "no DuckLake catalog"),
        ({"name": "x", "unknown": 1}, 400, "no such field"),
        ({}, 400, "name"),
    ]
    for body, status, message in refused:
        with subtests.test(f"{body}"):
            sent = {key: value.replace("{roots}", f"{tmp_path}/warehouses") if isinstance(value, str) else value
                    for key, value in body.items()}  # fmt: skip
            answer = site.http.post("/management/v1/warehouses", json=sent)
            assert (answer.status_code, message in answer.text) == (status, True), answer.text
            listed = site.http.get("/management/v1/warehouses").json()["warehouses"]
            assert [one["name"] for one in listed] == ["north", "south"]
            with psycopg.connect(site.services.database.url) as connection:
                schemas = connection.execute(
                    "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'warehouse%' ORDER BY 1"
                )
                assert schemas.fetchall() == [("warehouse_north",), ("warehouse_south",)]


def test_server_without_roots_makes_none(services: Services, serve: Serve) -> None:
    http = serve(create_app(services))
    answer = http.post("/management/v1/warehouses", json={"name": "north"})
    assert (answer.status_code, "DUCKICELAKE_WAREHOUSE_ROOTS" in answer.text) == (400, True)


def test_marker_of_another_lake_keeps_a_warehouse_from_being_made(site: Site, tmp_path: Path) -> None:
    dropped = site.http.delete("/management/v1/warehouses/south", params={"keep-lake": "true"})
    assert dropped.status_code == 200
    body = {"name": "west", "location": f"{tmp_path}/warehouses/south"}
    answer = site.http.post("/management/v1/warehouses", json=body)
    assert (answer.status_code, "belongs to lake" in answer.text) == (400, True)
    assert [one["name"] for one in site.http.get("/management/v1/warehouses").json()["warehouses"]] == ["north"]


def test_changes_are_in_the_audit_trail(site: Site) -> None:
    site.http.delete("/management/v1/warehouses/south")
    with site.services.database.reading() as cursor:
        rows = cursor.execute("SELECT operation, resource, result FROM duckicelake_audit ORDER BY id").fetchall()
    assert rows == [
        ("create_warehouse", "warehouse north", "ok"),
        ("create_warehouse", "warehouse south", "ok"),
        ("drop_warehouse", "warehouse south", "ok"),
    ]


CLIENTS = {
    "root": "*",
    "north": "wh:north:*",
    "reader": "wh:north:ns:ns:r",
    "first": "ns:ns:*",
    "both": "ns:ns:r wh:south:ns:ns:r",
}
MAY_READ = {
    "root": {"", "north", "south"},
    "north": {"north"},
    "reader": {"north"},
    "first": {""},
    "both": {"", "south"},
}


@pytest.fixture
def guarded(site: Site, serve: Serve) -> Iterator[tuple[Site, dict[str, dict[str, str]]]]:
    """The same warehouses behind logins, and the header of each client."""
    for warehouse in ("", *NAMES):
        site.create_table(warehouse)
    clients = [OAuthClient(name, SECRET, tuple(scopes.split())) for name, scopes in CLIENTS.items()]
    log = make_logger(LOG)
    app = create_app(site.services, log=log, authentication=Server().authentication(*clients), wiring=site.wiring)
    http = serve(app)
    headers = {}
    for name in CLIENTS:
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": SECRET}
        token = http.post("/v1/oauth/tokens", data=form).json()["access_token"]
        headers[name] = {"Authorization": f"Bearer {token}"}
    with closing(app.warehouses):
        yield Site(site.services, site.wiring, app, http), headers


def test_scopes_are_for_one_warehouse(guarded: tuple[Site, dict[str, dict[str, str]]]) -> None:
    """Whoever asks, by the route, from memory or as the same bytes again: a scope opens its own warehouse alone."""
    site, headers = guarded
    for client, warehouses in MAY_READ.items():
        for warehouse in ("", *NAMES):
            expected = 200 if warehouse in warehouses else 403
            for path in ("namespaces/ns", "namespaces/ns/tables", "namespaces/ns/tables/t"):
                for _ in range(3):
                    answer = site.http.get(site.url(warehouse, path), headers=headers[client])
                    assert answer.status_code == expected, (client, warehouse, path)
            listed = site.http.get(site.url(warehouse, "namespaces"), headers=headers[client]).json()["namespaces"]
            assert (["ns"] in listed) == (warehouse in warehouses)
            events = site.http.get(site.url(warehouse, "history"), headers=headers[client])
            assert events.status_code == 200
        managed = site.http.get("/management/v1/warehouses", headers=headers[client])
        assert managed.status_code == (200 if client == "root" else 403)
    for client, status in (("reader", 403), ("north", 200)):
        answer = site.http.post("/v1/north/namespaces/ns/tables/t/rows", json=[{"id": 1}], headers=headers[client])
        assert answer.status_code == status
    assert site.http.get("/v1/north/namespaces").status_code == 401


def test_quotas_are_each_warehouses_own(services: Services, tmp_path: Path, serve: Serve) -> None:
    site = site_of(services, tmp_path, serve, Edge(rows=Rates(requests=0.01)))
    with closing(site.app.warehouses):
        for name in NAMES:
            create_warehouse(site.services, site.wiring, NewWarehouse(name))
            site.create_table(name)
        site.create_table("")
        statuses = [site.post_rows(warehouse, {"id": 1}).status_code for warehouse in ("", *NAMES) for _ in range(2)]
        assert statuses == [200, 429] * 3


def test_metrics_and_log_name_the_warehouse(site: Site) -> None:
    site.create_table("north")
    for _ in range(3):
        assert site.http.get("/v1/north/namespaces/ns/tables/t").status_code == 200
    metrics = site.http.get("/metrics").text
    assert "duckicelake_warehouses_open 1.0" in metrics
    assert 'duckicelake_warehouse_requests_total{status="2xx",warehouse="north"} 5.0' in metrics
    line = [json.loads(line) for line in LOG.getvalue().splitlines() if '"north"' in line][-1]
    assert (line["warehouse"], line["path"]) == ("north", "/v1/north/namespaces/ns/tables/t")


def test_interrupted_creation_and_drop_are_completed(site: Site) -> None:
    """What a killed process leaves, a row in between, is served by none, and the same request completes it."""
    with site.services.database.transaction() as cursor:
        cursor.execute("CREATE SCHEMA warehouse_west")
        cursor.execute(
            "INSERT INTO duckicelake_warehouse (name, schema_name, location, is_adopted, state) "
            "VALUES ('west', 'warehouse_west', %s, false, 'creating')",
            [f"{site.wiring.roots[0]}/west"],
        )
        cursor.execute("UPDATE duckicelake_warehouse SET state = 'dropping' WHERE name = 'south'")
    for name in ("west", "south"):
        wait_until(lambda name=name: site.http.get(f"/v1/{name}/namespaces").status_code == 404, 5)  # type: ignore[misc]
    assert site.http.post("/management/v1/warehouses", json={"name": "west"}).status_code == 200
    assert site.http.get("/v1/west/namespaces").status_code == 200
    assert site.http.delete("/management/v1/warehouses/south").status_code == 200
    assert site.http.get("/management/v1/warehouses/south").status_code == 404


SHARED_FIELDS = {"snapshot_ids", "clock", "meter", "publish_audit", "once", "caller"}


def test_each_part_of_the_services_is_shared_on_purpose_or_the_warehouses_own(site: Site) -> None:
    """A new field of Services that remembers anything must be made anew for each warehouse, or be named here."""
    row = create_warehouse(site.services, site.wiring, NewWarehouse("west"))
    wiring = replace(site.wiring, build_access=lambda _: StorageAccess(), open_reads=ReadObserver)
    first = replace(site.services, trino_catalog="lake", rights=RightsCache.of_first(site.services.database))
    own = open_warehouse(first, wiring, row)
    kept = {field.name for field in fields(Services) if getattr(own, field.name) is getattr(first, field.name)}
    assert kept == SHARED_FIELDS


def test_tables_of_the_same_id_may_have_other_types(site: Site) -> None:
    """Statements of the same text, prepared on shared connections, are planned for the lake that has the connection."""
    kinds = {"": "long", "north": "string", "south": "double"}
    for warehouse, kind in kinds.items():
        fields_ = [{"id": 1, "name": "v", "type": kind, "required": False}]
        site.http.post(site.url(warehouse, "namespaces"), json={"namespace": ["ns"]})
        schema = {"type": "struct", "schema-id": 0, "fields": fields_}
        made = site.http.post(site.url(warehouse, "namespaces/ns/tables"), json={"name": "t", "schema": schema})
        assert made.status_code == 200
    values: dict[str, Any] = {"": 1, "north": "one", "south": 1.5}
    for _ in range(12):
        for warehouse in kinds:
            assert site.post_rows(warehouse, {"v": values[warehouse]}).status_code == 200
            assert site.http.get(site.url(warehouse, "namespaces/ns/tables/t")).status_code == 200
    for warehouse in kinds:
        for _ in range(3):
            url = site.url(warehouse, "namespaces/ns/tables/t/rows")
            where = json.dumps({"type": "eq", "term": "v", "value": values[warehouse]})
            removed = site.http.request("DELETE", url, params={"filter": f"v = {values[warehouse]!r}"}, content=where)
            assert removed.status_code in (200, 400), removed.text
        flushed = site.http.post(site.url(warehouse, "namespaces/ns/tables/t/rows/flush"))
        assert flushed.status_code == 200, flushed.text


def test_drop_waits_for_background_tasks(
    services: Services, tmp_path: Path, serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    """A server's tasks end before the catalog is gone: none of them fails, and nothing is left of them."""
    site = site_of(services, tmp_path, serve, run_tasks=partial(run_warehouse_tasks, Settings(log_format="json")))
    with closing(site.app.warehouses):
        create_warehouse(site.services, site.wiring, NewWarehouse("north"))
        site.create_table("north")
        before = services.database.statistics()["pool_size"]
        dropped = site.http.delete("/management/v1/warehouses/north", params={"force": "true"})
        assert (dropped.status_code, site.app.warehouses.count_open()) == (200, 0)
        time.sleep(1.5)
        assert services.database.statistics()["pool_size"] <= before + 1
    assert [line for line in capfd.readouterr().err.splitlines() if "warning" in line or "error" in line] == []


def test_one_line_checks_loads_of_all_warehouses_beside_the_first(site: Site) -> None:
    """Answers from memory are right for each warehouse when they come over one connection, at once."""
    for warehouse in ("", *NAMES):
        site.create_table(warehouse)
    urls = [site.url(warehouse, "namespaces/ns/tables/t") for warehouse in ("", *NAMES)]
    uuids = [site.http.get(url).json()["metadata"]["table-uuid"] for url in urls]

    def load(number: int) -> bool:
        return bool(site.http.get(urls[number % 3]).json()["metadata"]["table-uuid"] == uuids[number % 3])

    with ThreadPoolExecutor(12) as threads:
        assert all(threads.map(load, range(300)))
    backends = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(site.services.database.url) as connection:
        ((count,),) = connection.execute(backends).fetchall()
    own = 3  # freshness of the first, of all others, and changes of principals
    assert count <= site.services.database.statistics()["pool_size"] + own
    assert site.post_rows("north", {"id": 1}).status_code == 200
    changed = [site.http.get(url).json()["metadata"].get("current-snapshot-id", -1) for url in urls]
    assert [snapshot != -1 for snapshot in changed] == [False, True, False]
