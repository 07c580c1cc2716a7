"""A worker's rounds over the lakes of a server: what one of them lacks keeps no other from being looked at."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.upkeep_tasks import TaskControl
from duckicelake.catalog.warehouse_places import NewWarehouse
from duckicelake.catalog.warehouse_registry import create_warehouse
from duckicelake.cli.wiring.services import build_warehouse_wiring, open_services
from duckicelake.lake.setup.migrations import load_migrations
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.postgres.database import Database
from duckicelake.postgres.shared_pools import SchemaDatabase
from duckicelake.settings.model import Settings
from duckicelake.upkeep import queue
from duckicelake.upkeep.process import LakeRounds
from duckicelake.upkeep.worker import Worker
from tests.support.waits import wait_until
from tests.upkeep.test_queue import LIMITS, use_action

LAKES = ("north", "south")


@pytest.fixture
def settings(services: Services, database_url: str, warehouse: Path, tmp_path: Path) -> Settings:
    """A server with two warehouses beside its first."""
    roots = (f"{tmp_path}/roots",)
    settings = Settings(
        database_url=database_url, warehouse=str(warehouse), warehouse_roots=roots, delta_sync_seconds=0.05
    )
    for name in LAKES:
        create_warehouse(services, build_warehouse_wiring(settings), NewWarehouse(name))
    return settings


@contextmanager
def run_rounds(settings: Settings) -> Iterator[LakeRounds]:
    """Go round the lakes in a thread, and end that."""
    worker = Worker(LIMITS)
    with open_services(settings) as services:
        rounds = LakeRounds(services, build_warehouse_wiring(settings), worker, settings)
        thread = threading.Thread(target=rounds.run)
        thread.start()
        try:
            yield rounds
            assert thread.is_alive()
        finally:
            worker.stopped.set()
            rounds.stop()
            thread.join()


def change(database: Database, lake: str, *statements: str) -> None:
    with database.transaction() as cursor:
        cursor.execute(f"SET LOCAL search_path TO warehouse_{lake}".encode())
        for statement in statements:
            cursor.execute(statement.encode())


def test_lake_that_no_server_has_opened_since_an_upgrade_is_migrated(settings: Settings, database: Database) -> None:
    undone = "DROP TABLE duckicelake_upkeep_look", "ALTER TABLE duckicelake_delta_source DROP COLUMN listed"
    change(database, "north", *undone, "DELETE FROM duckicelake_migration WHERE number = 103")
    with run_rounds(settings) as rounds:
        wait_until(lambda: rounds._pauses.keys() >= {*LAKES})
    with database.reading() as cursor:
        rows = cursor.execute("SELECT number FROM warehouse_north.duckicelake_migration").fetchall()
    assert {number for (number,) in rows} == {migration.number for migration in load_migrations()}


def test_lake_that_fails_in_any_way_keeps_no_other_from_its_look(
    settings: Settings, database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    change(database, "north", "DROP TABLE duckicelake_upkeep_task CASCADE")
    with run_rounds(settings) as rounds:
        wait_until(lambda: rounds._pauses.keys() >= {*LAKES})
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("upkeep of ")]
    assert {line.split(":")[0] for line in lines} == {"upkeep of north"}, lines
    assert "duckicelake_upkeep_task" in lines[0]


def test_task_that_takes_long_leaves_each_lake_with_a_worker(
    settings: Settings, database: Database, ducklake: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds have one lake open at a time, and none but the first while the task goes on."""
    began, ends = threading.Event(), threading.Event()

    def act(_: Services, __: UpkeepTask, ___: TaskControl) -> TaskOutcome:
        began.set()
        assert ends.wait(60)
        return TaskOutcome("done")

    def read_presence() -> list[set[str]]:
        found = []
        for lake in (database, *(SchemaDatabase(database, f"warehouse_{name}") for name in LAKES)):
            with lake.statement() as cursor:
                found.append(queue.read_presence(cursor))
        return found

    use_action(monkeypatch, act, "flush")
    monkeypatch.setattr(queue, "HEARTBEAT_SECONDS", 0.1)
    ducklake.execute("CREATE TABLE lake.main.t (id INTEGER)")
    with run_rounds(settings.model_copy(update={"open_warehouses": 1})) as rounds:
        wait_until(lambda: rounds._pauses.keys() >= {*LAKES})
        with database.transaction() as cursor:
            cursor.execute(
                "INSERT INTO duckicelake_upkeep_task (table_id, kind, why, digest, target_size) "
                "SELECT table_id, 'flush', 'w', 'd', 0 FROM ducklake_table"
            )
            cursor.execute("SELECT pg_notify(%s, current_schema())", [queue.CHANNEL])
        try:
            assert began.wait(60)
            for schema in ("public", *(f"warehouse_{name}" for name in LAKES)):
                with database.transaction() as cursor:
                    cursor.execute(f"DELETE FROM {schema}.duckicelake_upkeep_presence".encode())
            wait_until(lambda: read_presence() == 3 * [{"upkeep_workers", "delta_sync_seconds"}])
        finally:
            ends.set()
