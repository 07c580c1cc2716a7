"""What the command, a server and its commits do in this process, of a lake whose tables use optional features.

`python -m tests.support.feature_outcome DATABASE_URL WAREHOUSE` prints an `Outcome` as JSON.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
from typer.testing import CliRunner

from duckicelake.cli.main import app as command
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import build_session_settings, require_known
from duckicelake.server.app import create_app
from tests.conftest import services_of
from tests.support.servers import running

NAMESPACE = "sales"
TABLES = ("plain", "constrained", "logged", "followed")


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """Statuses and messages of what was asked of one table, and the metadata of the last load."""

    loads: tuple[int, int]
    commit: tuple[int, str]
    rows: tuple[int, str]
    metadata: dict[str, Any]


@dataclass(slots=True)
class Outcome:
    """commands: as `--help` lists them. lineage: statuses of a route and of its page. index: status of `/`."""

    commands: list[str]
    lineage: tuple[int, int]
    index: int
    tables: dict[str, TableOutcome] = field(default_factory=dict)


def examine(database_url: str, warehouse: str) -> Outcome:
    database = open_lake_database(database_url, pool_size=4, session_settings=build_session_settings())
    require_known(database)
    app = create_app(services_of(database, Path(warehouse)))
    with running(app) as uri, httpx.Client(base_url=uri, timeout=60) as http:
        lineage = http.get("/lineage/v1/datasets").status_code, http.get("/ui/lineage").status_code
        outcome = Outcome(list_commands(), lineage, http.get("/").status_code)
        for table in TABLES:
            outcome.tables[table] = examine_table(http, f"/v1/namespaces/{NAMESPACE}/tables/{table}")
    database.close()
    return outcome


def list_commands() -> list[str]:
    result = CliRunner().invoke(command, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    words = (line.strip("│ ").split() for line in result.output.splitlines() if line.startswith("│"))
    return [found[0] for found in words if found and not found[0].startswith("-")]


def examine_table(http: httpx.Client, path: str) -> TableOutcome:
    update = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"color": "blue"}}]}
    before = http.get(path)
    commit, rows = http.post(path, json=update), http.post(f"{path}/rows", json=[{"id": 2}])
    after = http.get(path)
    loads = (before.status_code, after.status_code)
    return TableOutcome(loads, read_error(commit), read_error(rows), after.json().get("metadata", {}))


def read_error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("error", {}).get("message", "")


if __name__ == "__main__":
    print(json.dumps(asdict(examine(*sys.argv[1:]))))
