"""The route that renames a namespace, with PyIceberg and other workers beside it."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import httpx
import pytest
from fastapi import FastAPI
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError, RESTError

from duckicelake.catalog.context.services import Services
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.server.app import create_app
from tests.conftest import services_of
from tests.support.client import Client, Json

Serve = Callable[[FastAPI], httpx.Client]
KEY = {"Idempotency-Key": "01890a5d-ac96-774b-8cce-b302099a8057"}
RENAME = "/v1/namespaces/ns/rename"


@pytest.fixture
def http(services: Services, client: Client, serve: Serve) -> httpx.Client:
    client.create()
    client.append((1, "a"))
    return serve(create_app(services))


def test_renamed_namespace_is_known_to_every_worker(
    http: httpx.Client, serve: Serve, ducklake: duckdb.DuckDBPyConnection, database_url: str, warehouse: Path
) -> None:
    ducklake.execute("CREATE VIEW ns.v AS FROM ns.t")
    with closing(open_lake_database(database_url, 4)) as database:
        other = serve(create_app(services_of(database, warehouse)))
        catalogs = [load_catalog("lake", type="rest", uri=str(client.base_url)) for client in (http, other)]
        loaded = [catalog.load_table("ns.t") for catalog in catalogs for _ in range(3)]  # from caches, too
        answer = http.post(RENAME, json={"destination": ["archive", "ns"]})
        assert answer.status_code == 200, answer.text
        said = answer.json()
        assert (said["namespace"], said["namespaces"], said["tables"], said["views"]) == (["archive", "ns"], 1, 1, 1)
        assert said["stale-views"] == [{"namespace": ["archive", "ns"], "name": "v"}]
        for catalog in catalogs:
            assert catalog.list_namespaces() == [("archive",), ("main",)]
            assert catalog.list_tables(("archive", "ns")) == [("archive", "ns", "t")]
            with pytest.raises(NoSuchTableError):
                catalog.load_table("ns.t")
            table = catalog.load_table("archive.ns.t")
            assert (table.metadata.table_uuid, table.location()) == (
                loaded[0].metadata.table_uuid,
                loaded[0].location(),
            )
            table.append(table.scan().to_arrow())
        for stale in loaded:
            with pytest.raises(RESTError, match=r"Table does not exist: ns.t"):
                stale.append(stale.scan().to_arrow())
        assert ducklake.execute('SELECT count(*) FROM "archive.ns".t').fetchall() == [(4,)]


def test_request_that_comes_again_with_its_key_renames_once(http: httpx.Client) -> None:
    first, second = (http.post(RENAME, json={"destination": ["x"]}, headers=KEY) for _ in range(2))
    assert (first.status_code, first.json()) == (second.status_code, second.json()) == (200, first.json())
    assert http.post(RENAME, json={"destination": ["x"]}).status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        ({}, 400, "destination"),
        ({"destination": "x"}, 400, "destination"),
        ({"destination": []}, 400, "has no levels"),
        ({"destination": ["x", ""]}, 400, "empty"),
        ({"destination": [".."]}, 400, "can't be part of a URL"),
        ({"destination": ["x"], "force": True}, 400, "force"),
        ({"destination": ["main"]}, 409, "Namespace already exists: main"),
        ({"destination": ["ns", "x"]}, 400, "can't move into itself"),
        ({"destination": ["MAIN"]}, 400, "differs only by case"),
    ],
)
def test_wrong_requests_say_what_is_wrong(http: httpx.Client, body: Json, status: int, problem: str) -> None:
    answer = http.post(RENAME, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, status)
    assert problem in answer.json()["error"]["message"]
