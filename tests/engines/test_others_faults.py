"""Faults of engines that MISSING.md names under "Faults of others": a test fails here as soon as one of them is mended.

Then take its line out of MISSING.md, and the test away, once the versions that we name all have the repair.
"""

import datetime
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, GreaterThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.flush import flush_rows

Attach = Callable[..., duckdb.DuckDBPyConnection]


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    """PyIceberg's own catalog: nothing of ours takes part."""
    made = SqlCatalog("own", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    made.create_namespace("ns")
    return made


@pytest.fixture
def formerly_partitioned(catalog: SqlCatalog) -> Table:
    """A table whose first files are partitioned by a column that was dropped since."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "k", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "k"))
    table = catalog.create_table("ns.t", schema, partition_spec=spec)
    table.append(pa.table({"id": pa.array([1, 2], pa.int64()), "k": ["a", "b"]}))
    with table.update_spec() as update:
        update.remove_field("k")
    with table.update_schema(allow_incompatible_changes=True) as changes:
        changes.delete_column("k")
    return catalog.load_table("ns.t")


def test_pyiceberg_reads_null_lists_and_maps_of_structs_as_empty(catalog: SqlCatalog) -> None:
    struct = pa.struct([("a", pa.int32())])
    schema = pa.schema([("l", pa.list_(struct)), ("m", pa.map_(pa.string(), struct)), ("n", pa.list_(pa.int32()))])
    table = catalog.create_table("ns.t", schema)
    table.append(pa.table({"l": [None], "m": [None], "n": [None]}, schema=schema))
    assert table.scan().to_arrow().to_pylist() == [{"l": [], "m": [], "n": None}]


def test_pyiceberg_filters_dates_that_are_defaults_wrong(catalog: SqlCatalog) -> None:
    table = catalog.create_table("ns.t", Schema(NestedField(1, "id", LongType())))
    table.append(pa.table({"id": pa.array([1], pa.int64())}))
    with table.update_schema() as changes:
        changes.add_column("day", DateType(), default_value=datetime.date(2024, 1, 1))
    assert table.scan().to_arrow()["day"].to_pylist() == [datetime.date(2024, 1, 1)]
    assert table.scan(row_filter="day = '2024-01-01'").to_arrow().num_rows == 0
    with pytest.raises(TypeError):
        table.scan(row_filter="day > '2023-01-01'").to_arrow()


def test_pyiceberg_deletes_nothing_where_an_old_specs_column_was_dropped(formerly_partitioned: Table) -> None:
    with pytest.raises(TypeError):
        formerly_partitioned.delete("id == 1")


def test_pyiceberg_finds_no_infinite_floats(catalog: SqlCatalog) -> None:
    comparisons: list[tuple[Any, float]] = [(EqualTo, math.inf), (GreaterThan, 1e300)]
    schema = pa.schema([("f", pa.float32()), ("d", pa.float64())])
    table = catalog.create_table("ns.t", schema)
    table.append(pa.table({"f": [math.inf], "d": [math.inf]}, schema=schema))
    found = {
        name: [table.scan(row_filter=compare(name, value)).to_arrow().num_rows for compare, value in comparisons]
        for name in "fd"
    }
    assert found == {"f": [0, 0], "d": [1, 1]}


def test_duckdbs_iceberg_scan_aborts_where_a_partition_column_was_dropped(formerly_partitioned: Table) -> None:
    for name in ("avro", "iceberg"):
        import_extension(name)
    program = (
        "import duckdb; c = duckdb.connect(config={'allow_unsigned_extensions': True}); "
        "c.execute('LOAD avro; LOAD iceberg'); "
        f"print(c.execute(\"FROM iceberg_scan('{formerly_partitioned.metadata_location}')\").fetchall())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode < 0, ended.stdout
    assert "Can't change source type" in ended.stderr


def test_duckdbs_flush_of_a_sorted_table_brings_the_wrong_row_back_and_ours_does_not(
    services: Services, attach: Attach
) -> None:
    """DuckDB's issue 1385: what Postgres holds as text is sorted as text."""
    duck = attach()
    for name in ("by_duckdb", "by_us"):
        duck.execute(f"CREATE TABLE {name} (id INTEGER, k UBIGINT)")
        duck.execute(f"ALTER TABLE {name} SET SORTED BY (k)")
        duck.execute(f"INSERT INTO {name} VALUES (1, 9), (2, 10)")
        duck.execute(f"DELETE FROM {name} WHERE id = 1")
    flush_rows(services, ("main",), "by_us")
    duck.execute("CALL ducklake_flush_inlined_data('lake', table_name => 'by_duckdb')")
    again = attach()
    assert again.execute("FROM by_us").fetchall() == [(2, 10)]
    assert again.execute("FROM by_duckdb").fetchall() == [(1, 9)]


def test_duckdbs_flush_fails_where_rows_are_older_than_the_column_that_sorts_and_ours_does_not(
    services: Services, attach: Attach
) -> None:
    duck = attach()
    duck.execute("CREATE TABLE t (i INTEGER)")
    duck.execute("INSERT INTO t VALUES (3), (4)")
    duck.execute("DELETE FROM t WHERE i = 4")
    duck.execute("ALTER TABLE t ADD COLUMN k INTEGER")
    duck.execute("ALTER TABLE t SET SORTED BY (k)")
    duck.execute("INSERT INTO t VALUES (1, 7)")
    with pytest.raises(duckdb.Error, match='column "k" not found'):
        duck.execute("CALL ducklake_flush_inlined_data('lake')")
    flush_rows(services, ("main",), "t")
    assert attach().execute("FROM t ORDER BY i").fetchall() == [(1, 7), (3, None)]


def test_duckdb_commits_two_concurrent_deletes_from_a_file_with_a_delete_file(
    empty_database_url: str, attach: Attach, tmp_path: Path
) -> None:
    """DuckDB's issue 1084, in a lake that was never served: the file has two live delete files, its rows twice."""
    one = attach(url=empty_database_url, data_path=f"{tmp_path}/own/")
    one.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    one, other = attach(url=empty_database_url), attach(url=empty_database_url)
    one.execute("CREATE TABLE t AS SELECT range AS i FROM range(1000)")
    one.execute("DELETE FROM t WHERE i < 20")
    for each, condition in ((one, "i BETWEEN 100 AND 120"), (other, "i BETWEEN 200 AND 220")):
        each.execute("BEGIN")
        each.execute(f"DELETE FROM t WHERE {condition}")
    one.execute("COMMIT")
    other.execute("COMMIT")
    found = attach(url=empty_database_url).execute("SELECT count(*), count(DISTINCT i) FROM t").fetchall()
    assert found == [(1918, 980)]


def test_duckdb_loses_rows_of_older_versions_and_finds_them_without_statistics(attach: Attach) -> None:
    lake = attach()
    lake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    lake.execute("CREATE TABLE lake.main.t AS SELECT range AS id, 'x' AS name FROM range(200)")
    (before,) = lake.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchone() or (0,)
    lake.execute("DELETE FROM lake.main.t WHERE id < 150")
    lake.execute("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")
    read = f"SELECT count(*) FROM lake.main.t AT (VERSION => {before}) WHERE id = 5"
    assert lake.execute(read).fetchall() == [(0,)]
    lake.execute("SET disabled_optimizers = 'statistics_propagation'")
    assert lake.execute(read).fetchall() == [(1,)]
