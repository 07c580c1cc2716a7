"""Disks that fill up under a task. Others go on meanwhile, and so does the task once there is room."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.upkeep.planner import request_tasks
from duckicelake.upkeep.worker import Worker, WorkerLimits
from tests.catalog.commit.test_crashes import assert_whole_catalog
from tests.catalog.test_full_disk import MIB, filled, small_disk
from tests.support.client import Client
from tests.upkeep.test_queue import LIMITS, jobs, make_ready, only, set_policies

Duck = duckdb.DuckDBPyConnection
SUMS = "SELECT count(*), bit_xor(hash(rowid, id, name)) FROM lake.ns.t"
POLICIES = {
    "maintenance.flush.min-rows": "3",
    "maintenance.compaction.min-files": "2",
    "maintenance.sort.order": "name",
    "maintenance.statistics.enabled": "false",
}
pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system"),
]


@pytest.fixture
def warehouse() -> Iterator[Path]:
    """The lake's files lie on a disk of their own."""
    with small_disk(256 * MIB) as folder:
        yield folder / "warehouse"


def fill_postgres(duck: Duck) -> None:
    duck.execute("CALL lake.set_option('data_inlining_row_limit', 1000000)")
    duck.execute("INSERT INTO lake.ns.t SELECT range, md5(range::VARCHAR) FROM range(40000)")


def fill_files(duck: Duck) -> None:
    duck.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    for number in range(3):
        duck.execute(f"INSERT INTO lake.ns.t SELECT range, md5(range::VARCHAR) FROM range({number}, 100000, 3)")


FILLS: dict[str, Callable[[Duck], None]] = {"flush": fill_postgres, "compact": fill_files, "sort": fill_files}


@pytest.mark.parametrize("kind", FILLS)
def test_disk_of_the_store_that_is_full_keeps_a_task_waiting(
    services: Services, client: Client, ducklake: Duck, warehouse: Path, kind: str
) -> None:
    fill(client, ducklake, kind)
    before = ducklake.execute(SUMS).fetchall()
    with filled(warehouse.parent):
        assert Worker(LIMITS).work(services)
        found = only(services)
        assert (found.state, "No space left" in str(found.message)) == ("waiting", True), found.message
        assert ducklake.execute(SUMS).fetchall() == before, "readers go on"
        assert jobs(services)[0].message == found.message
    finish(services, ducklake, before)
    assert_whole_catalog(services)


@pytest.mark.parametrize("kind", FILLS)
def test_disk_of_the_worker_that_is_full_keeps_a_task_waiting(
    services: Services, client: Client, ducklake: Duck, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fill(client, ducklake, kind)
    before = ducklake.execute(SUMS).fetchall()
    with small_disk(MIB // 2) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        assert Worker(LIMITS).work(services)
        found = only(services)
        assert found.state == "waiting", found.message
        assert "No space left" in str(found.message) or "full" in str(found.message), found.message
        assert [path.name for path in disk.iterdir()] == [], "nothing stays on it"
        assert ducklake.execute(SUMS).fetchall() == before
        monkeypatch.setattr(tempfile, "tempdir", None)
    finish(services, ducklake, before)
    assert_whole_catalog(services)


def test_sort_that_spills_more_than_it_may_says_which_setting_to_raise(
    services: Services, client: Client, ducklake: Duck
) -> None:
    client.create()
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    names = " || ".join(f"md5(concat(range, {number}))" for number in range(5))
    ducklake.execute(f"INSERT INTO lake.ns.t SELECT range, {names} FROM range(500000)")
    before = ducklake.execute(SUMS).fetchall()
    ask(client, "sort")
    limits = replace(LIMITS, memory_bytes=192 * MIB, disk_bytes=MIB)
    assert Worker(limits).work(services)
    found = only(services)
    assert (found.state, "DUCKICELAKE_UPKEEP_DISK_BYTES" in str(found.message)) == ("blocked", True), found.message
    assert ducklake.execute(SUMS).fetchall() == before
    ask(client, "sort")
    finish(services, ducklake, before, replace(LIMITS, memory_bytes=1024 * MIB))


def fill(client: Client, duck: Duck, kind: str) -> None:
    """Give the table a reason for a task of the kind, and ask for it."""
    client.create()
    FILLS[kind](duck)
    client.metadata()
    ask(client, kind)


def ask(client: Client, kind: str) -> None:
    set_policies(client.services, POLICIES if kind == "sort" else POLICIES | {"maintenance.sort.order": ""})
    assert [item.task.kind for item in request_tasks(client.services, None, None, (kind,))] == [kind]


def finish(services: Services, duck: Duck, rows: list[tuple[object, ...]], limits: WorkerLimits = LIMITS) -> None:
    """Let a worker do the task, now that there is room."""
    make_ready(services)
    assert Worker(limits).work(services)
    assert only(services).state == "done", only(services).message
    assert duck.execute(SUMS).fetchall() == rows
