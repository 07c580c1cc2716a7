"""Rows that name older snapshots than that of their file: DuckDB's merge keeps them out of the versions of before."""

from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duckicelake.catalog.context.services import Services
from tests.support import engine
from tests.support.client import Client, Draft, Row, duckdb_rows, live, local, new_client, pyiceberg_rows

FLUSH = "CALL ducklake_flush_inlined_data('lake')"
MERGE = "CALL ducklake_merge_adjacent_files('lake')"
MANY = [(i, "many") for i in range(20)]
FEW = [(i, "few") for i in range(100, 103)]


@pytest.fixture
def client(services: Services) -> Client:
    return new_client(services)


def newest(duck: duckdb.DuckDBPyConnection) -> int:
    ((newest,),) = duck.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()
    return int(newest)


def at(duck: duckdb.DuckDBPyConnection, version: int) -> list[Row]:
    return sorted(duck.execute(f"SELECT id, name FROM lake.ns.t AT (VERSION => {version})").fetchall())


def files(duck: duckdb.DuckDBPyConnection) -> int:
    return len(duck.execute("SELECT DISTINCT filename FROM lake.ns.t").fetchall())


def test_rows_that_a_rollback_brings_back_stay_out_of_the_versions_without_them(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    ducklake.execute("INSERT INTO lake.ns.t SELECT i, 'many' FROM range(20) r(i)")
    ducklake.execute("INSERT INTO lake.ns.t SELECT i, 'few' FROM range(100, 103) r(i)")
    ducklake.execute(FLUSH)
    flushed = client.metadata()["current-snapshot-id"]
    ducklake.execute("DELETE FROM lake.ns.t WHERE id >= 100")
    without = newest(ducklake)
    client.commit(engine.point("main", flushed)(client.metadata()))

    ducklake.execute(MERGE)

    assert duckdb_rows(ducklake) == pyiceberg_rows(client.load()) == [*MANY, *FEW]
    assert at(ducklake, without) == MANY
    ducklake.execute("INSERT INTO lake.ns.t SELECT i, 'more' FROM range(200, 220) r(i)")
    before = files(ducklake)
    ducklake.execute(MERGE)
    assert files(ducklake) < before
    assert at(ducklake, without) == MANY


def test_rows_that_a_client_rewrites_stay_once_in_the_versions_of_before(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    """In version 3 engines write into each rewritten row when it was last updated, as Spark's compaction does."""
    client.create(properties={"format-version": "3"})
    for appended in (MANY, FEW):
        client.commit(engine.append(*appended)(client.metadata()))
    before = newest(ducklake)
    made = Draft(client.metadata(), "replace", format_version=3)
    (kept,) = [line for line in made.parent_manifests if live(line)[0].data_file.record_count == len(MANY)]
    file = made.data_file(FEW)
    rows = pq.read_table(local(file.file_path))
    for name, field_id, values in (("_row_id", 2147483540, [20, 21, 22]), ("_updated", 2147483539, [before] * 3)):
        column = pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(field_id)})
        rows = rows.append_column(column, pa.array(values, pa.int64()))
    pq.write_table(rows, local(file.file_path))
    file = replace(file, file_size_in_bytes=local(file.file_path).stat().st_size)
    client.commit(made.body([made.manifest([file]), kept]))

    ducklake.execute(MERGE)

    assert duckdb_rows(ducklake) == pyiceberg_rows(client.load()) == [*MANY, *FEW]
    assert at(ducklake, before) == [*MANY, *FEW]
