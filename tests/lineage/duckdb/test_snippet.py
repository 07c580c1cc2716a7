"""The example of lineage from DuckDB in docs/lineage.md runs as it stands there, and prints what it says."""

import re
from datetime import timedelta

import duckdb
import httpx
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.changelog.writer import write_all_changes
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.lineage.events.generator import EventGenerator
from duckicelake.server.app import create_app
from tests.support.documents import snippets
from tests.support.servers import running

(SNIPPET,) = snippets("docs/lineage.md")


def test_example_runs_as_it_stands(
    services: Services, ducklake: duckdb.DuckDBPyConnection, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ducklake.execute("CREATE SCHEMA zoo; CREATE TABLE zoo.birds AS SELECT 'duck' AS name, 2 AS legs FROM range(3)")
    attach = re.findall("'(.*)'", build_duckdb_attach(database_url))[0]
    with running(create_app(services)) as uri:
        SNIPPET.run_python({"http://localhost:8181": uri, "ducklake:postgres:…": attach})
        write_all_changes(services)
        EventGenerator(services, uri, age=timedelta(0)).advance()
        graph = httpx.get(f"{uri}/lineage/v1/graph", params={"node": "zoo.census#legs"}).json()
    assert [each["name"] for each in graph["nodes"]] == ["zoo.census", "zoo.birds"]
    (promised,) = SNIPPET.promised
    assert promised in capsys.readouterr().out
