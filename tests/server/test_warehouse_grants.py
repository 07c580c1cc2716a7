"""Grants of a warehouse beside the first: their rows are in the first one's schema, their names in its own."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from duckicelake.catalog.context.services import Services
from tests.server.test_warehouses import Site, site_of
from tests.support.client import SCHEMA
from tests.support.servers import Serve

GRANTS = "/management/v1/warehouses/north/grants"


@pytest.fixture
def site(services: Services, tmp_path: Path, serve: Serve) -> Iterator[Site]:
    site = site_of(services, tmp_path, serve)
    with closing(site.app.warehouses):
        yield site


def test_grants_of_one_warehouse_are_no_others(site: Site) -> None:
    assert site.http.post("/management/v1/warehouses", json={"name": "north"}).status_code == 200
    for warehouse in ("", "north"):
        site.create_table(warehouse)
    tables = {warehouse: site.url(warehouse, "namespaces/ns/tables/t") for warehouse in ("", "north")}
    with site.services.database.transaction() as cursor:
        cursor.execute("INSERT INTO duckicelake_principal (name, kind) VALUES ('anonymous', 'user')")
        cursor.execute(
            "INSERT INTO duckicelake_warehouse_option SELECT warehouse_id, 'grants', 'on' FROM duckicelake_warehouse"
        )
    time.sleep(1)
    assert site.http.get(tables[""]).status_code == 200
    assert site.http.get(tables["north"]).status_code == 403
    given = {"principal": "anonymous", "privileges": ["select", "create"], "object": {"kind": "warehouse"}}
    assert site.http.post(GRANTS, json={"grant": [given]}).json() == {"granted": 2, "revoked": 0, "grants-on": True}
    assert site.http.get(tables["north"]).status_code == 200
    assert site.http.post(f"{tables['north']}/rows", json=[{"id": 1}]).status_code == 403
    made = {"name": "own", "schema": SCHEMA}
    assert site.http.post(site.url("north", "namespaces/ns/tables"), json=made).status_code == 200
    assert site.http.post(site.url("north", "namespaces/ns/tables/own/rows"), json=[{"id": 1}]).status_code == 200
    listed = site.http.get(GRANTS).json()["grants"]
    assert sorted((one["kind"], one["privilege"], one.get("name")) for one in listed) == [
        ("table", "ownership", "own"),
        ("warehouse", "create", None),
        ("warehouse", "select", None),
    ]
    assert site.http.get("/management/v1/warehouses/duckicelake/grants").json()["grants"] == []
    assert site.http.get(site.url("north", "actions")).json()["actions"] == ["select", "create"]
