"""A server without an optional feature: it starts and serves, and refuses to write the tables that use the feature."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.delta.import_.sources import DeltaPosition, record_source
from duckicelake.features.registry import FEATURES, find_features
from duckicelake.lake.side_tables import reader
from duckicelake.server.app import create_app
from tests.support.feature_outcome import NAMESPACE, TABLES
from tests.support.servers import Serve

PROPERTIES = {"constrained": {"constraint.positive": "id > 0"}, "logged": {"delta.enabled": "true"}}
REFUSED = {"constraints": {"constrained"}, "delta": {"logged", "followed"}}
"""The tables that a server without the feature doesn't write."""
COMMANDS = {
    "constraints": "constraints",
    "delta": "delta",
    "lineage": "lineage",
    "file_lake": "import-lake",
    "query": "sql",
    "materialized_views": "materialized-view",
    "row_changes": "changes",
    "mcp": "mcp",
    "shell": "shell",
    "duckdb_login": "connect",
}
"""A command of each feature that has any."""
CLAIMS = {"constrained": "constraint.positive", "logged": "delta.enabled", "followed": "follows a Delta table"}


@pytest.fixture
def lake(services: Services, serve: Serve, ducklake: duckdb.DuckDBPyConnection) -> Services:
    """Tables that use features, of which DuckDB has written one since."""
    http = serve(create_app(services))
    http.post("/v1/namespaces", json={"namespace": [NAMESPACE]}).raise_for_status()
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
    for table in TABLES:
        body = {"name": table, "schema": schema, "properties": PROPERTIES.get(table, {})}
        http.post(f"/v1/namespaces/{NAMESPACE}/tables", json=body).raise_for_status()
    ducklake.execute(f"INSERT INTO {NAMESPACE}.constrained VALUES (1)")
    with services.database.transaction() as cursor:
        table_id = reader.find_table_id(cursor, NAMESPACE, "followed")
        assert table_id is not None
        record_source(cursor, table_id, "/delta/table", DeltaPosition("an id", 0), following=True)
    return services


@pytest.fixture
def run_without(lake: Services, database_url: str, warehouse: Path) -> Callable[[str], Any]:
    def run(feature: str) -> Any:
        modules = ("tests.support.absent_feature", f"duckicelake.{feature}", "tests.support.feature_outcome")
        command = (sys.executable, "-m", *modules, database_url, str(warehouse))
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize(
    "feature", [pytest.param(name, marks=() if name in REFUSED else pytest.mark.commands) for name in FEATURES]
)
def test_server_without_a_feature_serves_and_refuses_what_needs_it(
    run_without: Callable[[str], Any], feature: str
) -> None:
    outcome = run_without(feature)
    needed_by = {one.name for one in find_features() if feature in one.needs}
    others = {command for name, command in COMMANDS.items() if name != feature and name not in needed_by}
    assert not {COMMANDS.get(name) for name in needed_by} & set(outcome["commands"])
    assert COMMANDS.get(feature) not in outcome["commands"]
    assert {"serve", "doctor", "gc"} | others <= set(outcome["commands"])
    assert outcome["lineage"] == ([404, 404] if feature == "lineage" else [200, 307])
    assert outcome["index"] == (200 if feature == "console" else 307)
    for name, table in outcome["tables"].items():
        assert table["loads"] == [200, 200]
        for status, message in (table["commit"], table["rows"]):
            if name in REFUSED.get(feature, ()):
                assert status == 503
                assert f"Table {NAMESPACE}.{name} uses {feature} " in message
                assert CLAIMS[name] in message
                assert f"install duckicelake with {feature}" in message
            else:
                assert status == (403 if name == "followed" else 200), message


def test_rows_that_duckdb_wrote_are_unverified_where_no_feature_checks_them(run_without: Callable[[str], Any]) -> None:
    metadata = run_without("constraints")["tables"]["constrained"]["metadata"]
    snapshot = metadata["current-snapshot-id"]
    assert metadata["properties"]["constraint-unverified.positive"] == str(snapshot)
    assert metadata["snapshots"][-1]["summary"]["constraints.unverified"] == "positive"
