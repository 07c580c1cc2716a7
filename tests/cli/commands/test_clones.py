"""`duckicelake restore`, `clone` and `expire` beside a running server."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.cli.test_commands import lake, run, serving
from tests.support.commands import run_here

__all__ = ["lake"]

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.commands
def test_restore_clone_and_expire_show_what_they_do(lake: Path) -> None:
    with serving(lake) as served, httpx.Client(base_url=f"{served.uri}/v1", timeout=60) as http:
        fields = [{"id": 1, "name": "id", "type": "long", "required": False}]
        schema = {"type": "struct", "schema-id": 0, "fields": fields}
        assert http.post("namespaces", json={"namespace": ["ns"]}).status_code == 200
        assert http.post("namespaces/ns/tables", json={"name": "t", "schema": schema}).status_code == 200
        snapshots = []
        for number in (1, 2):
            assert http.post("namespaces/ns/tables/t/rows", json=[{"id": number}]).status_code == 200
            snapshots.append(http.get("namespaces/ns/tables/t").json()["metadata"]["current-snapshot-id"])

        def answer(*arguments: str, command: Command = run_here) -> tuple[int, str, str]:
            done = command(*arguments, "--lake", str(lake))
            return done.returncode, done.stdout, done.stderr

        dry = answer("restore", "ns.t", "--to", str(snapshots[0]), "--dry-run", command=run)
        what = f"snapshot {snapshots[0]}: 0 files added and 1 removed, 0 rows added and 1 removed"
        assert dry == (0, f"ns.t: would be restored to {what}; this was a dry run\n", "")
        code, out, _ = answer("restore", "ns.t", "--to", str(snapshots[0]))
        assert (code, out.partition(": ")[0]) == (0, "ns.t")
        assert answer("restore", "ns.t", "--to", str(snapshots[0]))[1].endswith("nothing to do\n")
        assert answer("clone", "ns.t", "ns.c", "--with-history")[1].startswith(
            "ns.c: a clone of ns.t with 3 snapshots, at"
        )
        assert answer("clone", "ns.t", "ns.c")[0] == 2
        expired = answer("expire", "ns.t", "--older-than", "0s")
        assert expired == (0, "ns.t: 2 snapshots expired, 1 left; files go with DuckDB's next cleanup\n", "")
        assert answer("restore", "t", "--to", "1") == (
            2,
            "",
            "duckicelake: 't' isn't the full name of a table: write it as sales.orders\n",
        )


@pytest.mark.commands
def test_dropped_and_undrop_show_what_they_do(lake: Path) -> None:
    with serving(lake) as served, httpx.Client(base_url=f"{served.uri}/v1", timeout=60) as http:
        fields = [{"id": 1, "name": "id", "type": "long", "required": False}]
        table = {"name": "t", "schema": {"type": "struct", "schema-id": 0, "fields": fields}}

        def answer(*arguments: str) -> tuple[int, str, str]:
            done = run_here(*arguments, "--lake", str(lake))
            return done.returncode, done.stdout, done.stderr

        assert answer("dropped") == (0, "", "nothing can be brought back\n")
        assert http.post("namespaces", json={"namespace": ["ns"]}).status_code == 200
        assert http.post("namespaces/ns/tables", json=table).status_code == 200
        assert http.delete("namespaces/ns/tables/t").status_code == 204
        assert http.delete("namespaces/ns").status_code == 204
        code, out, _ = answer("dropped")
        assert (code, [line.split()[:2] for line in out.splitlines()]) == (
            0,
            [["kind", "name"], ["namespace", "ns"], ["table", "ns.t"]],
        )
        assert [json.loads(line)["name"] for line in answer("dropped", "--json")[1].splitlines()] == ["ns", "ns.t"]
        code, _, error = answer("undrop", "ns.t")
        assert (code, error) == (
            2,
            "duckicelake: Namespace does not exist: ns; bring that back first, if it was dropped, or create it\n",
        )
        assert answer("undrop", "ns", "--kind", "namespace")[1].startswith(
            "namespace ns is back with 0 tables and 0 views, since DuckLake's snapshot"
        )
        assert answer("undrop", "ns.t", "--as", "u")[1].startswith("table ns.u is back, since DuckLake's snapshot")
        assert answer("undrop", "ns.t")[0] == 2
        wrong_kind = answer("undrop", "ns.t", "--kind", "index")
        assert (wrong_kind[0], "--kind is 'index': expected table" in wrong_kind[2]) == (2, True)
        assert http.head("namespaces/ns/tables/u").status_code == 204
