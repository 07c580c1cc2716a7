"""Delta logs are kept while no one asks for them: after DuckDB's commits, and gone with the table."""

import time
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.gc import find_orphans
from duckicelake.delta.export.exporter import export_delta_log
from duckicelake.delta.export.keeper import DeltaLogKeeper, keep_delta_logs_in_background
from duckicelake.errors import InvalidRequestError
from tests.support.lakes import Lake
from tests.support.waits import wait_until


@pytest.fixture
def lake(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    lake = Lake(services, ducklake)
    lake.run("CREATE TABLE t (a INTEGER)", "CREATE TABLE other (a INTEGER)", "INSERT INTO t FROM range(20)")
    lake.metadata("other")
    set_enabled(lake, "true")
    return lake


def set_enabled(lake: Lake, value: str) -> None:
    lake.commit({"action": "set-properties", "updates": {"delta.enabled": value}})


def folder_of(lake: Lake) -> Path:
    return Path(lake.metadata().location.removeprefix("file:"))


def has_version(folder: Path, version: int) -> bool:
    return (folder / "_delta_log" / f"{version:020}.json").exists()


def test_log_follows_duckdb_and_goes_with_the_property(lake: Lake) -> None:
    failures: list[object] = []
    folder = folder_of(lake)
    with keep_delta_logs_in_background(
        lake.services, failures.append, lambda name, error: failures.append((name, error))
    ):
        wait_until(lambda: has_version(folder, 0))
        lake.run("INSERT INTO t FROM range(30)")
        wait_until(lambda: has_version(folder, 1))
        lake.run("DELETE FROM t WHERE a = 3")
        wait_until(lambda: has_version(folder, 2))
        assert DeltaTable(folder).version() == 2
        set_enabled(lake, "false")
        wait_until(lambda: not any((folder / "_delta_log").iterdir()))
        set_enabled(lake, "true")
        wait_until(lambda: has_version(folder, 0))
        lake.run("DROP TABLE t")
        wait_until(lambda: not any((folder / "_delta_log").iterdir()))
    assert failures == []


def test_what_can_not_be_said_is_reported_once_and_keeps_nothing_else(lake: Lake) -> None:
    report: list[str] = []
    keeper = DeltaLogKeeper(lake.services, lambda name, error: report.append(f"{name}: {error}"))
    look(lake, keeper)
    lake.run("ALTER TABLE t ADD COLUMN c TIME", "INSERT INTO t VALUES (1, NULL)")
    lake.commit({"action": "set-properties", "updates": {"delta.enabled": "true"}}, table="other")
    look(lake, keeper)
    look(lake, keeper)
    (line,) = report
    assert line.startswith("main.t: Column c has the type time")
    lake.run("ALTER TABLE t DROP COLUMN c")
    look(lake, keeper)
    assert len(report) == 1
    assert has_version(folder_of(lake), 1)
    assert export_delta_log(lake.services, "main.other").version == 0


def look(lake: Lake, keeper: DeltaLogKeeper) -> None:
    with lake.services.database.statement() as cursor:
        keeper.look(cursor)


def test_export_writes_again_what_got_lost_and_gc_leaves_the_log(lake: Lake) -> None:
    export_delta_log(lake.services, "main.t")
    file = folder_of(lake) / "_delta_log" / f"{0:020}.json"
    body = file.read_bytes()
    file.unlink()
    export_delta_log(lake.services, "main.t")
    assert file.read_bytes() == body
    file.with_name(f"{0:020}.checkpoint.parquet").write_bytes(b"somebody's")
    assert find_orphans(lake.services, time.time_ns() // 1_000_000 + 86_400_000) == []
    with pytest.raises(InvalidRequestError, match="set its table property"):
        export_delta_log(lake.services, "main.other")
