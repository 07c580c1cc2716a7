"""A filter on a partition's source column reads fewer files in every engine: the files are counted, not the time."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

from scripts.demo_job.server import RunningLake, running_lake
from tests.engines.engines import Engines
from tests.support.ducklake_11 import migrate

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

ROWS = """SELECT CAST(id AS bigint) AS id, CAST(id * 10 AS int) AS amount, concat(char(97 + id), 'name') AS name,
date_add(DATE '2024-01-15', CAST(id * 31 AS int)) AS day,
timestampadd(HOUR, CAST(id AS int), TIMESTAMP_NTZ '2024-05-05 00:30:00') AS moment FROM range(6) r(id)"""

TRANSFORMS = {
    "identity": ("name", "name = 'cname'", 1),
    "bucket": ("bucket(16, id)", "id = 3", 1),
    "truncate": ("truncate(20, amount)", "amount = 40", 1),
    "year": ("years(day)", "day >= '2024-02-01' AND day < '2024-03-01'", 1),
    "month": ("months(day)", "day >= '2024-04-01' AND day < '2024-05-01'", 1),
    "day": ("days(day)", "day = '2024-03-17'", 1),
    "hour": ("hours(moment)", "moment >= '2024-05-05T02:00:00' AND moment < '2024-05-05T03:00:00'", 1),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_filter_on_the_source_column_reads_fewer_files(engines: Engines, namespace: str, transform: str) -> None:
    partitioning, where, expected = TRANSFORMS[transform]
    name = f"{namespace}.t"
    engines.spark.sql(f"CREATE TABLE lake.{name} PARTITIONED BY ({partitioning}) AS {ROWS}")
    engines.spark.sql(f"INSERT INTO lake.{name} SELECT id + 100, amount + 1000, 'zname', DATE '1969-12-31', "
                      f"TIMESTAMP_NTZ '1969-12-31 23:30:00' FROM lake.{name} WHERE id = 0")  # fmt: skip
    total = len(list(engines.catalog.load_table(name).scan().plan_files()))
    assert total > expected
    counted: dict[str, Callable[[], int]] = {
        "Spark": lambda: spark_files(engines, name, where),
        "PyIceberg": lambda: pyiceberg_files(engines, name, where),
        "DuckDB": lambda: duckdb_files(engines, name, where),
    }
    assert {engine: count() for engine, count in counted.items()} == dict.fromkeys(counted, expected)
    rows = engines.read(name, where)
    assert len({table.num_rows for table in rows.values()}) == 1
    assert rows["DuckDB"].num_rows > 0


@pytest.fixture
def lake_11(spark: SparkSession, folder: Path) -> Iterator[RunningLake]:
    """A lake of DuckLake 1.1, which is the catalog `lake11` in Spark; DuckDB 1.5 attaches none."""
    with running_lake(folder / "lake", folder / "server.log") as running:
        migrate(running.ducklake_attach.removeprefix("ducklake:postgres:"), is_guarded=False)
        spark.conf.set("spark.sql.catalog.lake11", "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set("spark.sql.catalog.lake11.type", "rest")
        spark.conf.set("spark.sql.catalog.lake11.uri", running.uri)
        yield running


@pytest.mark.usefixtures("lake_in_a_folder")
def test_epoch_keys_of_a_lake_of_1_1_let_spark_and_pyiceberg_read_fewer_files(
    spark: SparkSession, lake_11: RunningLake
) -> None:
    spark.sql("CREATE NAMESPACE lake11.ns")
    counted = {}
    with RestCatalog("lake11", uri=lake_11.uri) as catalog:
        for transform in ("year", "month", "day", "hour"):
            partitioning, where, _ = TRANSFORMS[transform]
            name = f"ns.by_{transform}"
            spark.sql(f"CREATE TABLE lake11.{name} PARTITIONED BY ({partitioning}) AS {ROWS}")
            spark.sql(f"INSERT INTO lake11.{name} SELECT id + 100, amount, name, DATE '1969-12-31', "
                      f"TIMESTAMP_NTZ '1969-12-31 23:30:00' FROM lake11.{name} WHERE id = 0")  # fmt: skip
            planned = list(catalog.load_table(name).scan(row_filter=where).plan_files())
            assert len(planned) < len(list(catalog.load_table(name).scan().plan_files()))
            counted[transform] = (count_read_files(spark, f"lake11.{name}", where), len(planned))
    with psycopg.connect(lake_11.ducklake_attach.removeprefix("ducklake:postgres:")) as connection:
        keys = connection.execute("SELECT transform FROM ducklake_partition_column ORDER BY partition_id").fetchall()
    assert counted == dict.fromkeys(("year", "month", "day", "hour"), (1, 1))
    assert keys == [("epoch_year",), ("epoch_month",), ("epoch_day",), ("epoch_hour",)]


def spark_files(engines: Engines, name: str, where: str) -> int:
    return count_read_files(engines.spark, f"lake.{name}", where)


def count_read_files(spark: SparkSession, name: str, where: str) -> int:
    """What Iceberg's scan says in its metrics."""
    frame = spark.table(name).where(where)
    frame.collect()
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    return int(scan.metrics().apply("resultDataFiles").value())


def pyiceberg_files(engines: Engines, name: str, where: str) -> int:
    return len(list(engines.catalog.load_table(name).scan(row_filter=where).plan_files()))


def duckdb_files(engines: Engines, name: str, where: str) -> int:
    ((_, plan),) = engines.duck.sql(f"EXPLAIN ANALYZE SELECT id FROM lake.{name} WHERE {where}").fetchall()
    (count,) = re.findall(r"Total Files Read:\s+(\d+)", plan)
    return int(count)
