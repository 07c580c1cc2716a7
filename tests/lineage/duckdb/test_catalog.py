"""What a DuckDB connection tells the catalog joins what the catalog itself has seen: one table is one dataset."""

from datetime import timedelta
from typing import Any

import httpx

from duckicelake.catalog.context.services import Services
from duckicelake.changelog.writer import write_all_changes
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.lineage.duckdb.connection import connect
from duckicelake.lineage.events.generator import EventGenerator
from duckicelake.server.app import create_app
from tests.conftest import DUCKDB_SETTINGS
from tests.support.servers import running

OPTIONS: dict[str, Any] = {"config": DUCKDB_SETTINGS}


def test_tables_of_both_are_the_same_datasets(services: Services, database_url: str, extensions: None) -> None:
    with running(create_app(services)) as uri:
        with connect(catalog_uri=uri, job_name="etl", **OPTIONS) as lake:
            lake.execute("LOAD ducklake; LOAD postgres_scanner").execute(build_duckdb_attach(database_url))
            lake.execute("USE lake; CREATE SCHEMA zoo; CREATE TABLE zoo.birds AS SELECT 'duck' AS name, 2 AS legs")
            lake.execute("CREATE VIEW zoo.names AS SELECT name FROM zoo.birds")
            lake.execute("CREATE TABLE zoo.loud AS SELECT upper(name) AS name FROM zoo.names")
        assert httpx.get(f"{uri}/v1/namespaces/zoo/tables/loud").status_code == 200
        follow(services, uri)
        with connect(catalog_uri=uri, job_name="etl", **OPTIONS) as lake:
            lake.execute("LOAD ducklake; LOAD postgres_scanner").execute(build_duckdb_attach(database_url))
            lake.execute("INSERT INTO lake.zoo.loud SELECT name FROM lake.zoo.names")
        graph = httpx.get(f"{uri}/lineage/v1/graph", params={"node": "zoo.loud", "columns": True}).json()
    tables = sorted((*each["table"]["namespace"], each["table"]["name"]) for each in graph["nodes"])
    assert tables == [("zoo", "birds"), ("zoo", "loud"), ("zoo", "names")]
    jobs = {each["job"]["name"].rpartition(".")[0] for each in graph["edges"]}
    assert jobs == {
        "etl.create.zoo.names",
        "duckicelake.view.zoo.names",
        "etl.create.zoo.loud",
        "etl.insert.lake.zoo.loud",
    }


def follow(services: Services, uri: str) -> None:
    """Let the catalog tell of all that it has seen."""
    write_all_changes(services)
    EventGenerator(services, uri, age=timedelta(0)).advance()
