"""`duckicelake work` as a process: killed in the middle or stopped, nothing is lost or doubled, and another goes on."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.jobs import list_jobs
from duckicelake.maintenance.policy import AUTOMATIC
from duckicelake.upkeep import queue
from duckicelake.upkeep.planner import plan_lake
from duckicelake.upkeep.queue import QueuedTask, TaskFilter
from tests.support.client import Client, duckdb_rows
from tests.support.waits import wait_until

pytestmark = pytest.mark.crash
ROWS = 20_000
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(database_url: str, warehouse: Path) -> Start:
    """Start a worker on the lake."""
    settings = {"DUCKICELAKE_WAREHOUSE": str(warehouse)}

    def start_worker(*options: str, url: str = database_url) -> subprocess.Popen[bytes]:
        command = (str(Path(sys.executable).with_name("duckicelake")), "work", *options)
        environment = {**os.environ, **settings, "DUCKICELAKE_DATABASE_URL": url}
        return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

    return start_worker


@pytest.fixture
def lake(client: Client, ducklake: duckdb.DuckDBPyConnection) -> Client:
    """A lake with a task that takes a while: many rows are to go from Postgres to a file."""
    with client.services.database.transaction() as cursor:
        queue.write_policies(cursor, {AUTOMATIC: "flush"})
    client.create()
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 1000000)")
    ducklake.execute(f"INSERT INTO lake.ns.t SELECT range, 'x' FROM range({ROWS})")
    assert plan_lake(client.services, 0.001, is_forced=True) == 1
    return client


def find_task(services: Services) -> QueuedTask:
    with services.database.reading() as cursor:
        (found,) = queue.list_tasks(cursor, TaskFilter(), None)
    return found


def end_leases(services: Services) -> None:
    """Let so much time go by that others may take what a dead worker had."""
    with services.database.transaction() as cursor:
        for table in ("duckicelake_upkeep_task", "duckicelake_job"):
            cursor.execute(f"UPDATE {table} SET lease_until = clock_timestamp() - interval '1 second'")


def test_worker_that_is_killed_loses_the_task_to_the_next(
    lake: Client, ducklake: duckdb.DuckDBPyConnection, start: Start
) -> None:
    before = duckdb_rows(ducklake)
    for _ in range(3):
        worker = start()
        wait_until(lambda: find_task(lake.services).state in {"running", "done"})
        worker.kill()
        worker.wait()
        end_leases(lake.services)
    assert start("--once").wait(120) == 0
    assert find_task(lake.services).state == "done"
    assert duckdb_rows(ducklake) == before
    ((flushes,),) = ducklake.sql("SELECT count(*) FROM lake.snapshots() WHERE changes::text LIKE '%flush%'").fetchall()
    assert flushes == 1


def test_worker_that_is_stopped_gives_its_task_back(lake: Client, start: Start) -> None:
    worker = start()
    wait_until(lambda: find_task(lake.services).state in {"running", "done"})
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert find_task(lake.services).state in {"queued", "done"}
    assert start("--once").wait(120) == 0
    assert find_task(lake.services).state == "done"


def test_worker_that_is_stopped_before_it_has_opened_its_lake_ends_well(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        worker = start(url=f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/nothing")
        with silent.accept()[0]:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(30) == 0


def test_worker_that_is_killed_at_a_sort_leaves_no_process_and_no_folder(
    client: Client, ducklake: duckdb.DuckDBPyConnection, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    client.create()
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute(f"INSERT INTO lake.ns.t SELECT range, md5(range::VARCHAR) FROM range({50 * ROWS})")
    sums = "SELECT count(*), bit_xor(hash(rowid, id, name)) FROM lake.ns.t"
    before = ducklake.execute(sums).fetchall()
    with client.services.database.transaction() as cursor:
        queue.write_policies(cursor, {AUTOMATIC: "sort", "maintenance.sort.order": "name"})
    assert plan_lake(client.services, 0.001, is_forced=True) == 1
    worker = start()
    wait_until(lambda: any(folder.glob("duckicelake-process-*/made/*")))
    worker.kill()
    worker.wait()
    wait_until(lambda: not [*folder.glob("duckicelake-*")])
    end_leases(client.services)
    assert start("--once").wait(120) == 0
    assert find_task(client.services).state == "done"
    assert ducklake.execute(sums).fetchall() == before
    assert [*folder.glob("duckicelake-*")] == []


def test_two_servers_do_each_task_once(
    client: Client, ducklake: duckdb.DuckDBPyConnection, database_url: str, warehouse: Path
) -> None:
    flushed, compacted = [f"f{number}" for number in range(20)], [f"c{number}" for number in range(5)]
    for name in (*flushed, *compacted):
        client.create(name)
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 1000)")
    for name in flushed:
        ducklake.execute(f"INSERT INTO lake.ns.{name} SELECT range, 'x' FROM range(9)")
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    for name in compacted * 5:
        ducklake.execute(f"INSERT INTO lake.ns.{name} SELECT range, 'x' FROM range(9)")
    before = {name: duckdb_rows(ducklake, name) for name in (*flushed, *compacted)}
    with client.services.database.transaction() as cursor:
        queue.write_policies(cursor, {AUTOMATIC: "flush,compact", "maintenance.flush.min-rows": "9"})
    settings = {
        "DUCKICELAKE_DATABASE_URL": database_url,
        "DUCKICELAKE_WAREHOUSE": str(warehouse),
        "DUCKICELAKE_UPKEEP_WORKERS": "2",
        "DUCKICELAKE_UPKEEP_TASKS": "4",
        "DUCKICELAKE_UPKEEP_SECONDS": "1",
    }
    command = (str(Path(sys.executable).with_name("duckicelake")), "serve", "--port", "0")
    servers = [
        subprocess.Popen(command, env={**os.environ, **settings}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    try:
        wait_until(lambda: count_done(client.services) == len(before), 150)
        time.sleep(3)  # for plans that would find the same again
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(60)
    jobs = list_jobs(client.services, PageRequest()).items
    found = sorted((job.table, job.kind, str(job.result)) for job in jobs)
    assert found == sorted([(name, "flush", "done") for name in flushed] + [(n, "compact", "done") for n in compacted])
    assert len({job.engine for job in jobs}) > 1, "more than one worker took part"
    with client.services.database.reading() as cursor:
        assert {task.attempts for task in queue.list_tasks(cursor, TaskFilter(), None)} == {1}
    for name in flushed:
        files = f"SELECT count(*) FROM ducklake_list_files('lake', '{name}', schema => 'ns')"
        assert ducklake.sql(files).fetchall() == [(1,)], name
    for name in compacted:
        operations = [snapshot["summary"]["operation"] for snapshot in client.metadata(name)["snapshots"]]
        assert operations.count("replace") == 1, operations
    assert {name: duckdb_rows(ducklake, name) for name in before} == before


def count_done(services: Services) -> int:
    with services.database.reading() as cursor:
        return sum(task.state == "done" for task in queue.list_tasks(cursor, TaskFilter(), None))
