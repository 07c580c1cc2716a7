"""Every Delta table of the corpus at every version: all readers agree with Spark Delta, cell by cell."""

from collections.abc import Callable, Iterable

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from duckicelake.delta.duckdb.connection import DeltaConnection
from tests.delta.corpus.families import NAMES
from tests.delta.corpus.records import DeltaTable
from tests.engines.delta.cells import assert_same_cells
from tests.engines.delta.limits import LIMITS, Limit
from tests.engines.delta.readers import (
    DuckDelta,
    DuckLake,
    Imported,
    Imports,
    PyIceberg,
    Read,
    ReadDelta,
    SparkIceberg,
    delta_rs,
)
from tests.engines.delta.schemas import delta_shape, iceberg_shape, not_null_fields, required_fields

pytestmark = [
    pytest.mark.more_engines,
    pytest.mark.engine,
    pytest.mark.spark,
    pytest.mark.timeout(1800),  # whoever is first makes the corpus
]

Tables = dict[str, DeltaTable]
AT_ALL_VERSIONS = {"columns_added", "mapped_later", "schema_overwritten", "vectors_mapped", "vectors_restored"}


def assert_reads_all(reader: str, read: Read, table: DeltaTable) -> None:
    """At each version that Spark Delta reads: its rows, or exactly what is known to be this reader's limit."""
    assert_reads(reader, read, table, table.schemas)


def assert_reads(reader: str, read: Read, table: DeltaTable, versions: Iterable[int]) -> None:
    limit = LIMITS.get((reader, table.name), Limit())
    for version in sorted(versions):
        if limit.covers(version):
            limit.assert_still_there(lambda version=version: check(reader, read, table, version))  # type: ignore[misc]
        else:
            check(reader, read, table, version)


def check(reader: str, read: Callable[..., object], table: DeltaTable, version: int) -> None:
    assert_same_cells(read(table, version), table.rows(version), f"{reader} of {table.name} at {version}")


@pytest.mark.parametrize("name", NAMES)
def test_delta_rs_reads_what_spark_delta_reads(tables: Tables, name: str) -> None:
    assert_reads_all("delta-rs", delta_rs, tables[name])


@pytest.mark.parametrize("name", NAMES)
def test_duckdb_delta_reads_what_spark_delta_reads(
    tables: Tables, name: str, duck_delta: duckdb.DuckDBPyConnection
) -> None:
    assert_reads_all("DuckDB delta", DuckDelta(duck_delta), tables[name])


@pytest.mark.parametrize("name", NAMES)
def test_read_delta_reads_what_spark_delta_reads(tables: Tables, name: str, read_delta: DeltaConnection) -> None:
    assert_reads_all("read_delta", ReadDelta(read_delta), tables[name])


@pytest.mark.parametrize("name", NAMES)
def test_pyiceberg_reads_what_spark_delta_reads(tables: Tables, name: str, imported: Imports, rest: Catalog) -> None:
    assert_reads_all("PyIceberg", PyIceberg(known(imported, name), rest), tables[name])


@pytest.mark.parametrize("name", NAMES)
def test_ducklake_reads_what_spark_delta_reads(
    tables: Tables, name: str, imported: Imports, ducklake: duckdb.DuckDBPyConnection
) -> None:
    assert_reads_all("DuckLake", DuckLake(known(imported, name), ducklake), tables[name])


@pytest.mark.parametrize("name", NAMES)
def test_spark_reads_of_iceberg_what_it_reads_of_delta(
    tables: Tables, name: str, imported: Imports, iceberg_spark: SparkSession
) -> None:
    """The newest version of each; all of some."""
    table = tables[name]
    versions = table.schemas if name in AT_ALL_VERSIONS else [table.newest]
    assert_reads("Spark", SparkIceberg(known(imported, name), iceberg_spark), table, versions)


@pytest.mark.parametrize("name", NAMES)
def test_versions_schemas_times_and_operations_are_delta_s(tables: Tables, name: str, imported: Imports) -> None:
    table, here = tables[name], known(imported, name)
    assert sorted(here.snapshots) == sorted(table.schemas)
    for version, told in table.schemas.items():
        snapshot = here.snapshots[version]
        schema = here.schemas[snapshot["schema-id"]]
        assert iceberg_shape(schema) == delta_shape(told)
        assert required_fields(schema) <= not_null_fields(told)
        if version in table.history:
            history = table.history[version]
            assert snapshot["timestamp-ms"] == history["ms"]
            assert snapshot["summary"].get("delta.operation") == history["operation"]
            assert snapshot["summary"].get("delta.user-metadata") == history["userMetadata"]


def known(imported: Imports, name: str) -> Imported:
    """The table; skips one that is known not to be importable, and is refused for the reason that is known."""
    found, limit = imported[name], LIMITS.get(("import", name))
    if isinstance(found, Imported):
        assert limit is None, f"{name} can be imported now"
        return found
    assert limit is not None, found
    assert limit.says in str(found)
    pytest.skip(f"not importable: {found}")
