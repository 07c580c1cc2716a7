"""Standard output that can't be written: each command that prints as data comes ends at once, with its own code."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import httpx
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.query import service
from duckicelake.query.processes import QueryLimits
from duckicelake.server.app import create_app
from tests.support.servers import Serve

LIMITS = QueryLimits(processes=2, memory_bytes=256 * 1024**2, disk_bytes=256 * 1024**2, seconds=60.0, rows=1_000_000)
OVER_REST = [
    ("changes", "main.t"),
    ("changes", "main.t", "--follow"),
    ("sql", "FROM main.t"),
    ("sql", "FROM main.t", "--limit", "20000"),
    ("shell", "-c", "FROM main.t"),
    ("shell", "-c", r"\format csv", "-c", "FROM main.t"),
    ("history", "--follow"),
    ("audit", "--follow"),
    ("doctor",),
    ("files", "main.t"),
]
ON_THE_LAKE = [("history", "--follow"), ("audit",), ("audit", "--follow"), ("doctor",), ("info",)]
REPRESENTATIVE = ("changes", "main.t", "--follow")
SECONDS = 60.0
"""In which a command that is not retried has ended, however busy the machine is: retries take ten minutes."""


@pytest.fixture
def server(services: Services, serve: Serve, ducklake: duckdb.DuckDBPyConnection) -> Iterator[httpx.Client]:
    ducklake.execute("CREATE TABLE lake.main.t AS SELECT i, 'name ' || i AS name FROM range(20000) r(i)")
    service._limits[services.database] = LIMITS
    yield serve(create_app(services))
    del service._limits[services.database]
    service.end_processes()


def mark(commands: list[tuple[str, ...]]) -> list[object]:
    return [
        pytest.param(one, id=" ".join(one), marks=() if one == REPRESENTATIVE else pytest.mark.commands)
        for one in commands
    ]


def run_into_closed_pipe(arguments: tuple[str, ...], environment: dict[str, str]) -> tuple[int, str]:
    """Run a command whose reader leaves after the first byte."""
    with start(arguments, environment, subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        process.stdout.close()
        return finish(process)


def run_into_full_disk(arguments: tuple[str, ...], environment: dict[str, str]) -> tuple[int, str]:
    with Path("/dev/full").open("wb") as full, start(arguments, environment, full.fileno()) as process:
        return finish(process)


def start(arguments: tuple[str, ...], environment: dict[str, str], output: int) -> subprocess.Popen[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DUCKICELAKE_")}
    return subprocess.Popen(
        [sys.executable, "-m", "duckicelake.cli.main", *arguments],
        env=kept | environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        bufsize=0,
    )


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    assert process.stderr is not None
    try:
        began = time.monotonic()
        said = process.stderr.read().decode()
        code = process.wait(SECONDS)
        assert time.monotonic() - began < SECONDS
    finally:
        process.kill()
    return code, said


def check(arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    """Check both faults. A short output may lie in the pipe before its reader leaves."""
    code, said = run_into_full_disk(arguments, environment)
    assert "duckicelake: standard output can't be written: No space left on device" in said
    assert (code, said.count("duckicelake:"), "Traceback" in said) == (1, 1, False), said
    code, said = run_into_closed_pipe(arguments, environment)
    assert "duckicelake:" not in said
    assert "Traceback" not in said
    assert code in ({141} if "--follow" in arguments or arguments[0] == "changes" else {0, 1, 141})


@pytest.mark.parametrize("arguments", mark(OVER_REST))
def test_a_command_over_rest_ends_with_its_output(server: httpx.Client, arguments: tuple[str, ...]) -> None:
    check(arguments, {"DUCKICELAKE_CLIENT_URI": str(server.base_url)})


@pytest.mark.parametrize("arguments", mark(ON_THE_LAKE))
@pytest.mark.usefixtures("server")
def test_a_command_on_the_lake_ends_with_its_output(
    database_url: str, warehouse: Path, arguments: tuple[str, ...]
) -> None:
    check(arguments, {"DUCKICELAKE_DATABASE_URL": database_url, "DUCKICELAKE_WAREHOUSE": str(warehouse)})


def test_a_file_of_the_shell_that_is_full_is_named(server: httpx.Client) -> None:
    environment = {"DUCKICELAKE_CLIENT_URI": str(server.base_url)}
    arguments = ("shell", "-c", r"\o /dev/full", "-c", "FROM main.t")
    with start(arguments, environment, subprocess.DEVNULL) as process:
        code, said = finish(process)
    assert code == 2
    assert "/dev/full can't be written: No space left on device" in said
    assert "Traceback" not in said
