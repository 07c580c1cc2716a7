"""Imported Delta tables that PyIceberg writes to: DuckDB reads what it wrote, and the Delta table stays as it was."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.expressions import EqualTo

from duckicelake.catalog.context.services import Services
from duckicelake.server.app import create_app
from tests.delta.import_.tables import column, defined, new_table, written
from tests.delta.import_.versions import imported, rows
from tests.delta.logs import protocol
from tests.support.client import new_client
from tests.support.servers import running


def partitioned(folder: Path) -> None:
    write_deltalake(folder, pa.table({"id": [1, 2], "p": ["a", "b"], "l": [[1], None]}), partition_by=["p"])


def mapped(folder: Path) -> None:
    """With columns that files call otherwise, by which they were renamed once."""
    table = new_table(folder)
    file = written(table, "x-a.parquet", pa.table({"c-1": [1], "c-3": [[1]]}), partitionValues={"c-2": "a"})
    other = written(table, "x-b.parquet", pa.table({"c-1": [2], "c-3": pa.array([None], pa.list_(pa.int64()))}),
                    partitionValues={"c-2": "b"})  # fmt: skip
    list_ = {"type": "array", "elementType": "long", "containsNull": True}
    columns = [column("id", "long", 1, "c-1"), column("p", "string", 2, "c-2"), column("l", list_, 3, "c-3")]
    by = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    table.commit(0, protocol(2, 5), defined(*columns, partition_by=["p"], **by), file, other)


@pytest.mark.parametrize("make", [partitioned, mapped])
def test_pyiceberg_writes_to_an_imported_table(
    services: Services, ducklake: duckdb.DuckDBPyConnection, warehouse: Path, make: Callable[[Path], None]
) -> None:
    new_client(services)
    folder = warehouse / "delta" / "t"
    make(folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    imported(services, folder)
    more = pa.table({"id": [3, 4], "p": ["a", "c"], "l": [[3], [4, 5]]})
    with running(create_app(services)) as uri:
        table = RestCatalog("lake", uri=uri).load_table("ns.t")
        table.append(more)
        table.delete(EqualTo("id", 2))
        ducklake.execute("INSERT INTO lake.ns.t VALUES (6, 'a', NULL)")
        with table.refresh().update_schema() as update:
            update.rename_column("id", "number")
        found = rows(table.refresh().scan().to_arrow())
        assert rows(table.scan(row_filter=EqualTo("p", "a")).to_arrow()) == [row for row in found if "'a'" in row]
    wanted = pa.table({"number": [1, 3, 4, 6], "p": ["a", "a", "c", "a"], "l": [[1], [3], [4, 5], None]})
    assert found == rows(wanted)
    assert rows(ducklake.sql("SELECT * FROM lake.ns.t").to_arrow_table()) == found
    assert ducklake.sql("SELECT count(*), max(number) FROM lake.ns.t WHERE p = 'a'").fetchall() == [(3, 6)]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    if make is partitioned:
        assert DeltaTable(str(folder)).version() == 0
