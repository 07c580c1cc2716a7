"""Tables whose Delta logs a server of two workers keeps, and the command beside it."""

import time
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from typer.testing import CliRunner

from duckicelake.cli.main import app
from tests.cli.test_commands import SECONDS, lake, serving

__all__ = ["lake"]
FIELDS = [{"id": 1, "name": "id", "type": "long", "required": False}]
TABLE = {"name": "t", "schema": {"type": "struct", "fields": FIELDS}, "properties": {"delta.enabled": "true"}}


def export(lake: Path, name: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["delta", "export", name, "--lake", str(lake)])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.commands
def test_server_keeps_a_log_and_export_waits_for_it(lake: Path) -> None:
    with serving(lake, "--workers", "2") as served:

        def post(path: str, body: object) -> httpx.Response:
            return httpx.post(f"{served.uri}/v1/namespaces{path}", json=body, timeout=30)

        post("/main/tables", TABLE).raise_for_status()
        post("/main/tables/t/rows", [{"id": 1}, {"id": 2}]).raise_for_status()
        status, folder, report = export(lake, "main.t")
        newest, until = DeltaTable(folder.strip()).version(), time.monotonic() + SECONDS
        post("/main/tables/t/rows", [{"id": 3}]).raise_for_status()
        while DeltaTable(folder.strip()).version() == newest:
            assert time.monotonic() < until
        refused = post("/main/tables", {**TABLE, "name": "u", "schema": {"type": "struct", "fields": [TIME]}})
    assert (status, report) == (0, f"main.t: versions 0 to {newest}\n")
    table = QueryBuilder().register("t", DeltaTable(folder.strip())).execute("SELECT id FROM t ORDER BY id")
    assert pa.table(table).to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert (refused.status_code, refused.json()["error"]["type"]) == (406, "UnsupportedOperationException")
    assert "Column c has the type time" in refused.json()["error"]["message"]
    assert "delta-out" in refused.json()["error"]["message"]
    status, _, report = export(lake, "main.u")
    assert status == 2
    assert "does not exist" in report


TIME = {"id": 1, "name": "c", "type": "time", "required": False}
