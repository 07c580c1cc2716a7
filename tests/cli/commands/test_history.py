"""`duckicelake history` beside a server, and without one."""

import json
from pathlib import Path

import httpx
import pytest

from tests.cli.test_commands import lake, run, serving
from tests.support.commands import run_here

__all__ = ["lake"]


@pytest.mark.commands
def test_history_lists_filters_and_forgets_with_and_without_a_server(lake: Path) -> None:
    with serving(lake, "--workers", "2") as served:
        for name in ("ns", "bad%1b"):
            httpx.post(f"{served.uri}/v1/namespaces", json={"namespace": [name]}, timeout=30).raise_for_status()
        schema = {"type": "struct", "fields": [{"id": 1, "name": "i", "type": "int", "required": False}]}
        table = {"name": "t", "schema": schema}
        httpx.post(f"{served.uri}/v1/namespaces/ns/tables", json=table, timeout=30).raise_for_status()
        listed = run("history", "--lake", str(lake))
        as_json = run_here("history", "ns.t", "--lake", str(lake), "--json", "--since", "1h")
    without = run_here("history", "ns", "--lake", str(lake), "--kind", "create-table", "--engine", "python-httpx")
    unknown = run_here("history", "ns.never", "--lake", str(lake))
    forgotten = run_here("history", "--lake", str(lake), "--prune-older-than", "0s")
    heading, main, ns, _, made = listed.stdout.splitlines()
    assert " ".join(heading.split()) == "version when (UTC) who source engine what kind operation metrics notes"
    assert main.split()[3:] == ["duckdb", "DuckDB", "main", "create-namespace"]
    assert ns.split()[0] == "1"
    agent = f"python-httpx/{httpx.__version__}"
    assert ns.split()[3:] == ["anonymous", "rest", agent, "ns", "create-namespace", "create_namespace"]
    assert made.split()[3:] == ["anonymous", "rest", agent, "ns.t", "create-table", "create_table"]
    (entry,) = map(json.loads, as_json.stdout.splitlines())
    assert (entry["kind"], entry["namespace"], entry["name"], entry["version"]) == ("create-table", ["ns"], "t", 3)
    assert without.stdout.splitlines()[1].split() == made.split()
    assert unknown.returncode == 2
    assert unknown.stderr == "duckicelake: There is no table, view or namespace ns.never, and none is remembered\n"
    assert forgotten.stdout == "forgot 4 changes\n"
