"""A server that has planned a scan is killed: others answer its plan tasks, for nothing was only in its memory."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import httpx
import psycopg
import pytest
from duckdb_extensions import import_extension

from scripts.demo_job.server import info
from tests.cli.serve.test_bad_days import cluster, settings
from tests.cli.test_commands import COMMAND, children, environment, lake, printed_uri, serving

__all__ = ["cluster", "lake", "settings"]
TABLE = "/v1/namespaces/main/tables/t"
FILES = 2_100
"""Which is more than an answer has."""
LONG = {"type": "not-in", "term": "k", "values": [-(10**12) - 7919 * number for number in range(2_000)]}
"""A filter that is too long for tokens, which every row passes."""

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]


@contextmanager
def mortal(lake: Path, *arguments: str, **settings: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Serve until the test kills it."""
    output = lake.parent / "mortal"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--lake", str(lake), "--port", "0", *arguments],
            cwd=lake.parent,
            env=environment(**settings),
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    try:
        yield printed_uri(process, output), process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a server and its workers at once."""
    for pid in (process.pid, *children(process.pid)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def make_files(lake: Path, settings: Mapping[str, str]) -> None:
    """Make a table of many files, a row in each."""
    for extension in ("ducklake", "postgres_scanner"):
        import_extension(extension)
    with duckdb.connect() as duck:
        duck.execute(f"ATTACH '{info(lake, environment(**settings))['ducklake-attach']}' AS lake")
        duck.execute("CREATE TABLE lake.t (k BIGINT)")
        duck.execute("ALTER TABLE lake.t SET PARTITIONED BY (k)")
        duck.execute(f"INSERT INTO lake.t SELECT range FROM range({FILES})")


def paths(answer: Any) -> list[str]:
    return [task["data-file"]["file-path"] for task in answer["file-scan-tasks"]]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_plan_tasks_are_answered_after_their_planner_was_killed(
    settings: dict[str, str], lake: Path, workers: str
) -> None:
    lake.mkdir()
    with mortal(lake, "--create", "--workers", workers, **settings) as (uri, planner):
        make_files(lake, settings)
        with httpx.Client(base_url=uri, timeout=120) as client:
            plans = [client.post(f"{TABLE}/plan", json=body) for body in ({}, {"filter": LONG})]
        kill(planner)
    plans = [plan.raise_for_status().json() for plan in plans]
    assert all(plan["plan-tasks"] for plan in plans)
    with psycopg.connect(settings["DUCKICELAKE_DATABASE_URL"]) as connection:
        found = connection.execute("SELECT count(*) FROM ducklake_data_file").fetchone()
    assert found == (FILES,)
    with serving(lake, "--workers", workers, **settings) as served, ThreadPoolExecutor(4) as many:

        def fetch(task: str) -> Any:
            with httpx.Client(base_url=served.uri, timeout=120) as client:  # of its own, so that each worker has some
                return client.post(f"{TABLE}/tasks", json={"plan-task": task}).raise_for_status().json()

        for plan in plans:
            fetched = list(many.map(fetch, plan["plan-tasks"]))
            every = [*paths(plan), *(path for answer in fetched for path in paths(answer))]
            assert len(every) == len(set(every)) == FILES
            assert not any(answer.get("plan-tasks") for answer in fetched)
