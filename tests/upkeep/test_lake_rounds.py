"""A worker's rounds over the lakes of a server: what one of them lacks keeps no other from being looked at."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouse_places import NewWarehouse
from duckicelake.catalog.warehouse_registry import create_warehouse
from duckicelake.cli.wiring.services import build_warehouse_wiring, open_services
from duckicelake.lake.setup.migrations import load_migrations
from duckicelake.postgres.database import Database
from duckicelake.settings.model import Settings
from duckicelake.upkeep.process import LakeRounds
from duckicelake.upkeep.worker import Worker
from tests.support.waits import wait_until
from tests.upkeep.test_queue import LIMITS

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
