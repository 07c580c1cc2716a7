"""Delta tables that a server follows, and the commands beside it."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from duckicelake.cli.main import app
from tests.cli.test_commands import SECONDS, lake, serving
from tests.support.followed_table import batch

__all__ = ["lake"]


@dataclass(frozen=True, slots=True)
class Shell:
    """The commands on a lake with Delta tables in its warehouse, and what its server answers."""

    lake: Path
    uri: str

    def run(self, *arguments: str, status: int = 0) -> str:
        done = CliRunner().invoke(app, ["delta", *arguments, "--lake", str(self.lake)])
        assert done.exit_code == status, done.output
        return done.output

    def append(self, name: str, rows: int = 3) -> int:
        folder = str(self.lake / "warehouse" / "delta" / name)
        write_deltalake(folder, batch(0, rows), mode="append")
        return DeltaTable(folder).version()

    def imported(self, name: str, *options: str) -> str:
        self.append(name)
        return self.run("import", str(self.lake / "warehouse" / "delta" / name), "--table", f"main.{name}", *options)

    def versions(self, name: str) -> list[int]:
        answer = httpx.get(f"{self.uri}/v1/namespaces/main/tables/{name}", timeout=30).raise_for_status().json()
        return [int(each["summary"]["delta.version"]) for each in answer["metadata"]["snapshots"]]

    def until(self, name: str, version: int) -> None:
        deadline = time.monotonic() + SECONDS
        while self.versions(name)[-1] < version:
            assert time.monotonic() < deadline

    def status(self) -> dict[str, dict[str, object]]:
        lines = map(json.loads, self.run("status", "--json").splitlines())
        return {line["table"]: line for line in lines}


@pytest.mark.commands
def test_followed_table_from_its_import_to_its_adoption(lake: Path) -> None:
    with serving(lake, DUCKICELAKE_UPKEEP_WORKERS="1") as served:
        shell = Shell(lake, served.uri)
        assert shell.run("status") == "no table was imported from Delta\n"
        shell.imported("t", "--follow")
        shell.imported("loose")
        for table in ("t", "loose"):
            shell.append(table)
        shell.until("t", 1)
        assert shell.versions("loose") == [0]
        assert shell.run("sync", "main.loose") == "main.loose: version 1 came\n"
        assert shell.versions("loose") == [0, 1]
        assert shell.run("sync") == "main.t: is at version 1, the newest\n"
        refused = httpx.post(f"{shell.uri}/v1/namespaces/main/tables/t", json=COMMENT, timeout=30)
        assert (refused.status_code, refused.json()["error"]["type"]) == (403, "ReadOnlyTableException")
        assert "duckicelake delta adopt main.t" in refused.json()["error"]["message"]
        stop_going_on(shell.lake / "warehouse" / "delta" / "loose")
        assert "fromTheFuture" in shell.run("sync", "main.loose", status=1)
        report = shell.status()
        assert [report[name]["behind"] for name in ("main.t", "main.loose")] == [0, 1]
        assert "is written here from now on; it has version 1" in shell.run("adopt", "main.t")
        httpx.post(f"{shell.uri}/v1/namespaces/main/tables/t", json=COMMENT, timeout=30).raise_for_status()
        assert "can be written already" in shell.run("adopt", "main.t", status=2)
        assert "wasn't imported from Delta" in shell.run("sync", "main.other", status=2)


COMMENT = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"comment": "ours"}}]}
FUTURE = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["fromTheFuture"],
        "writerFeatures": ["fromTheFuture"],
    }
}


def stop_going_on(folder: Path) -> None:
    """Have the next version need what no one knows."""
    version = DeltaTable(str(folder)).version() + 1
    (folder / "_delta_log" / f"{version:020}.json").write_text(json.dumps(FUTURE) + "\n")
