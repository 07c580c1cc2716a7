"""README's example of lineage from DuckDB runs as it stands there, and prints what it says."""

import re
from datetime import timedelta
from pathlib import Path

import duckdb
import httpx
import pytest

from duckicelake.catalog.chronicle.folding import fold_all
from duckicelake.catalog.lineage.events import LineageEvents
from duckicelake.catalog.services import Services
from duckicelake.lake.postgres.embedded import duckdb_attach
from duckicelake.server.app import create_app
from tests.server.conftest import running

README = Path(__file__).parents[3] / "README.md"
((CODE,),) = [re.findall(r"<!-- lineage: duckdb -->\n```python\n(.*?)```", README.read_text(), re.DOTALL)]


def test_example_runs_as_it_stands(
    services: Services, ducklake: duckdb.DuckDBPyConnection, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ducklake.execute("CREATE SCHEMA zoo; CREATE TABLE zoo.birds AS SELECT 'duck' AS name, 2 AS legs FROM range(3)")
    attach = re.findall("'(.*)'", duckdb_attach(database_url))[0]
    with running(create_app(services)) as uri:
        placed = CODE.replace("http://localhost:8181", uri).replace("ducklake:postgres:…", attach)
        exec(compile(placed, "README.md", "exec"), {})
        fold_all(services)
        LineageEvents(services, uri, age=timedelta(0)).advance()
        graph = httpx.get(f"{uri}/lineage/v1/graph", params={"node": "zoo.census#legs"}).json()
    assert [each["name"] for each in graph["nodes"]] == ["zoo.census", "zoo.birds"]
    (promised,) = re.findall(r"# -> (.*)", CODE)
    assert promised in capsys.readouterr().out
