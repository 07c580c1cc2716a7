"""The shell on another Iceberg REST catalog: Iceberg's own reference server, as the compatibility kit starts it."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from duckicelake.client.lake import connect
from duckicelake.errors import CatalogUnreachableError
from scripts.backends_job.processes import free_port
from scripts.rck_job.kit import kit_folder
from scripts.terminal import SECONDS
from tests.shell.conftest import open_terminal, run_shell

pytestmark = [pytest.mark.more_engines, pytest.mark.engine]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The reference server with a namespace of two levels and a table of one row."""
    program, folder = kit_folder() / "start-reference.sh", tmp_path_factory.mktemp("reference")
    if not program.is_file():
        pytest.skip("the compatibility kit is not on this machine: RCK_KIT names its folder")
    port = free_port()
    settings = {"REFERENCE_DIR": str(folder), "REFERENCE_HEAP": "256m", "JAVA_HOME": ""}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, str(port)], env={**os.environ, **settings}, stdout=log, stderr=log, start_new_session=True
        )
    address = f"http://localhost:{port}"
    try:
        _wait_for(address)
        with connect(address) as lake:
            for name in ("zoo", "zoo.old"):
                lake.create_namespace(name)
            for name in ("zoo.birds", "zoo.old.birds"):
                lake.create_table(name, "id long, name string")
        assert run_shell(address, "-c", "INSERT INTO zoo.birds VALUES (1, 'duck')").exit_code == 0
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(address: str) -> None:
    end = time.monotonic() + SECONDS
    while True:
        try:
            connect(address).client.config()
        except CatalogUnreachableError:
            assert time.monotonic() < end
            time.sleep(0.5)
        else:
            return


def read(uri: str, *commands: str) -> list[dict[str, object]]:
    done = run_shell(uri, *(word for command in commands for word in ("-c", command)), "--format", "ndjson")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_describes_over_plain_routes(uri: str) -> None:
    assert [row["name"] for row in read(uri, "\\dn")] == ["zoo", "zoo.old"]
    assert {row["name"] for row in read(uri, "\\dt+")} == {"zoo.birds", "zoo.old.birds"}
    assert [row["name"] for row in read(uri, "\\dt zoo.old")] == ["zoo.old.birds"]
    assert [(row["name"], row["type"]) for row in read(uri, "\\d zoo.old.birds")] == [
        ("id", "long"),
        ("name", "string"),
    ]
    assert [row["operation"] for row in read(uri, "\\snapshots zoo.birds")] == ["append"]
    assert [row["rows"] for row in read(uri, "\\files zoo.birds")] == [1]
    assert [row["files"] for row in read(uri, "\\partitions zoo.birds")] == [1]


def test_queries_run_in_a_local_duckdb(uri: str) -> None:
    assert read(uri, "SELECT id, name FROM zoo.birds") == [{"id": 1, "name": "duck"}]


def test_branches_are_made_and_dropped(uri: str) -> None:
    assert run_shell(uri, "-c", "\\branch zoo.birds audit").exit_code == 0
    assert [row["name"] for row in read(uri, "\\refs zoo.birds")] == ["main", "audit"]
    assert run_shell(uri, "-c", "\\unbranch zoo.birds audit").exit_code == 0


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("\\history", "\\history needs a server of duckicelake, and localhost:"),
        ("\\restore zoo.birds 1", "\\restore needs a server of duckicelake"),
        ("\\maintain zoo.birds", "\\maintain needs a server of duckicelake"),
        ("\\lineage zoo.birds", "\\lineage needs a server of duckicelake"),
        ("\\at 3", "\\at needs duckicelake or DuckLake: write AT (VERSION => 42) behind each table instead"),
        ("\\d zoo.bird", "did you mean zoo.birds"),
        ("FROM zoo.bird", "bird"),
        ('FROM "zoo.old".birds', "the catalog's answer to DuckDB is a page in HTML"),
    ],
)
def test_wrong_input_is_one_clear_line(uri: str, typed: str, message: str) -> None:
    done = run_shell(uri, "-c", typed)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def test_profile_that_is_read_only_refuses_changes_by_name(uri: str, home: dict[str, str]) -> None:
    Path(home["DUCKICELAKE_CLIENT_PROFILES"]).write_text(f'[other]\nuri = "{uri}"\nread-only = true\n')
    for typed, name in (("DELETE FROM zoo.birds", "DELETE"), ("\\branch zoo.birds x", "\\branch")):
        done = run_shell("other", "-c", typed, **home)
        assert (done.exit_code, done.stderr) == (5, f"duckicelake: profile other is read-only: {name} is refused\n")
    assert run_shell("other", "-c", "FROM zoo.birds", **home).exit_code == 0


def test_a_session(uri: str, home: dict[str, str]) -> None:
    with open_terminal(uri, settings=home) as terminal:
        terminal.wait("Ctrl-D leaves.")
        terminal.type("FROM zoo.b\t")
        terminal.wait("FROM zoo.birds")
        terminal.type(";\r")
        terminal.wait("│  1 │ duck │")
        terminal.type("\x04")
        assert terminal.wait_for_end() == 0
