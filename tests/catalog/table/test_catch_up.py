"""A load catches up with what DuckDB did, whichever worker looked first and whatever is gone since."""

from dataclasses import replace
from typing import Any

import duckdb
import pytest
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table import catch_up as catching_up
from duckicelake.catalog.table.catch_up import catch_up
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import NoSuchTableError
from duckicelake.lake.writer import tables as lake_tables
from tests.support.client import NS, Client
from tests.support.lakes import Lake, iceberg_rows


def test_virtual_files_of_two_inlined_tables_in_one_step(
    services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    lake = Lake(services, ducklake)
    lake.run(
        "CREATE TABLE lake.t (id BIGINT)",
        "INSERT INTO lake.t VALUES (1), (2)",
        "ALTER TABLE lake.t ADD COLUMN b BIGINT",
        "ALTER TABLE lake.t DROP COLUMN b",
        "INSERT INTO lake.t VALUES (1), (2)",
        "INSERT INTO lake.t SELECT range FROM range(100, 150)",
        "INSERT INTO lake.t SELECT range FROM range(200, 250)",
        "CALL ducklake_merge_adjacent_files('lake')",
    )
    assert iceberg_rows(lake.static()) == lake.duck_rows()
    lake.run("DELETE FROM lake.t WHERE rowid = 0")
    assert iceberg_rows(lake.static()) == lake.duck_rows()


def test_a_worker_whose_progress_was_superseded_looks_again(
    services: Services, ducklake: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(services, ducklake)
    lake.run("CREATE TABLE lake.t (id BIGINT)")
    lake.metadata()
    other = replace(services, cache=TableCache())
    lake.run("INSERT INTO lake.t VALUES (1)")
    real = catching_up._read_pending
    slow = real(other, current_table_id(lake))  # the other worker has read what is now
    lake.run("DELETE FROM lake.t")

    def superseded(mine: Services, table_id: int) -> Any:
        pending = real(mine, table_id)  # what happened collapses to nothing
        monkeypatch.setattr(catching_up, "_read_pending", lambda *_: slow)
        catch_up(other, table_id)
        monkeypatch.setattr(catching_up, "_read_pending", real)
        return pending

    monkeypatch.setattr(catching_up, "_read_pending", superseded)
    table = load_current_table(services, ("main",), "t")
    assert iceberg_rows(StaticTable.from_metadata(table.location)) == lake.duck_rows() == []


def current_table_id(lake: Lake) -> int:
    ((table_id,),) = lake.sql("SELECT table_id FROM duckicelake_table")
    return int(table_id)


def test_a_purged_table_is_not_adopted_again(services: Services, client: Client) -> None:
    client.create()
    client.append((1, "a"))
    with services.database.transaction() as cursor:
        ((table_id,),) = cursor.execute("SELECT table_id FROM duckicelake_table").fetchall()
        lake_tables.drop_table(cursor, NS[0], "t", purge=True)
    with pytest.raises(NoSuchTableError):
        catch_up(services, table_id)
