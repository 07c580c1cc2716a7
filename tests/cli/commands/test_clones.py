"""`duckicelake restore`, `clone` and `expire` beside a running server."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.cli.test_commands import lake, run, serving
from tests.support.commands import run_here

__all__ = ["lake"]

Command = Callable[..., subprocess.CompletedProcess[str]]


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
        what = f"snapshot {snapshots[0]}: 0 files come and 1 go, 0 rows come and 1 go"
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
