"""Catalogs that Java writes come into a lake: a Hadoop catalog of Spark's, and Iceberg's own REST server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

from scripts.bench_job.servers import running_java
from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import RunningLake, running_lake
from scripts.rck_job.kit import is_there
from tests.engines.engines import sorted_rows
from tests.support.commands import invoke

pytestmark = [pytest.mark.engine, pytest.mark.spark, pytest.mark.more_engines]
MERGES = (
    "TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read', "
    "'write.metadata.compression-codec'='gzip')"
)


def migrate(target: RunningLake, kind: str, *arguments: str, **options: str) -> dict[str, Any]:
    given = [part for key, value in options.items() for part in ("--option", f"{key}={value}")]
    ran = invoke("migrate-catalog", "--from", kind, *given, "--uri", target.uri, "--json", "--count-rows", *arguments)
    assert ran.exit_code == 0, ran.output
    return {line["name"]: (line["state"], line["detail"]) for line in map(json.loads, ran.stdout.splitlines())}


@pytest.fixture
def target(folder: Path) -> Iterator[RunningLake]:
    settings = {"DUCKICELAKE_ALLOWED_LOCATIONS": str(folder)}
    with running_lake(folder / "lake", folder / "lake.log", settings) as running:
        yield running


def fill(spark: SparkSession, catalog: str) -> None:
    """Make a partitioned table with history, deletes beside its files, a branch and a changed column."""
    name = f"{catalog}.sales.eu.orders"
    for statement in (
        f"CREATE NAMESPACE {catalog}.sales",
        f"CREATE NAMESPACE {catalog}.sales.eu",
        f"CREATE TABLE {name} (id BIGINT, day DATE, amount INT) USING iceberg PARTITIONED BY (months(day)) {MERGES}",
        f"INSERT INTO {name} SELECT id, date_add(DATE'2026-01-01', CAST(id AS INT)), 1 FROM range(100)",
        f"ALTER TABLE {name} CREATE TAG first",
        f"ALTER TABLE {name} ALTER COLUMN amount TYPE BIGINT",
        f"DELETE FROM {name} WHERE id % 7 = 0",
    ):
        spark.sql(statement)


def assert_both_read(target: RunningLake) -> None:
    expected = [number for number in range(100) if number % 7]
    with duckdb_lake(target) as duck:
        rows = duck.execute('SELECT id FROM lake."sales.eu".orders ORDER BY id').fetchall()
        assert [row[0] for row in rows] == expected
        duck.execute('DELETE FROM lake."sales.eu".orders WHERE id < 50')
    table = f"{target.uri}/v1/namespaces/sales%1Feu/tables/orders"
    metadata = httpx.get(table, timeout=60).json()["metadata"]
    assert set(metadata["refs"]) == {"main", "first"}


@pytest.mark.usefixtures("lake_in_a_folder")
def test_a_hadoop_catalog_comes_with_its_history(spark: SparkSession, target: RunningLake, folder: Path) -> None:
    warehouse = folder / "hadoop"
    spark.conf.set("spark.sql.catalog.hadoop", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set("spark.sql.catalog.hadoop.type", "hadoop")
    spark.conf.set("spark.sql.catalog.hadoop.warehouse", f"file://{warehouse}")
    fill(spark, "hadoop")
    found = migrate(target, "hadoop", warehouse=str(warehouse))
    assert found == {"sales": ("created", ""), "sales.eu": ("created", ""), "sales.eu.orders": ("created", "85 rows")}
    assert migrate(target, "hadoop", warehouse=f"file://{warehouse}")["sales.eu.orders"] == ("there", "85 rows")
    assert_both_read(target)


@pytest.fixture
def reference(spark: SparkSession, folder: Path) -> Iterator[str]:
    """Iceberg's own REST server, over a JDBC catalog in SQLite; to Spark, the catalog `reference<port>`."""
    if not is_there():
        pytest.skip("Iceberg's kit isn't here: RCK_KIT names its folder")
    with running_java({"CATALOG_WAREHOUSE": f"file://{folder}/reference", "REFERENCE_HEAP": "256m"}) as uri:
        add_catalog(spark, uri)
        yield uri


def add_catalog(spark: SparkSession, uri: str) -> str:
    """Name a REST catalog to Spark, which keeps the URI of each name that it has met."""
    name = f"reference{uri.rpartition(':')[2]}"
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": uri, ".cache-enabled": "false"}
    for setting, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}{setting}", value)
    return name


def make_view(spark: SparkSession, catalog: str, sql: str) -> None:
    before = spark.catalog.currentCatalog()
    spark.catalog.setCurrentCatalog(catalog)
    spark.sql(sql)
    spark.catalog.setCurrentCatalog(before)


@pytest.mark.usefixtures("lake_in_a_folder")
def test_icebergs_own_server_is_a_source(spark: SparkSession, target: RunningLake, reference: str) -> None:
    catalog = add_catalog(spark, reference)
    fill(spark, catalog)
    spark.sql(f"ALTER NAMESPACE {catalog}.sales SET PROPERTIES ('comment' = 'what they sold')")
    make_view(spark, catalog, "CREATE VIEW sales.eu.june AS SELECT id FROM sales.eu.orders WHERE id < 10")
    found = migrate(target, "rest", uri=reference)
    assert found == {
        "sales": ("created", ""),
        "sales.eu": ("created", ""),
        "sales.eu.orders": ("created", "85 rows"),
        "sales.eu.june": ("created", ""),
    }
    with pyiceberg_catalog(target) as ours:
        assert ours.load_namespace_properties("sales")["comment"] == "what they sold"
    assert_both_read(target)


@pytest.mark.usefixtures("lake_in_a_folder")
def test_icebergs_own_server_is_a_target(spark: SparkSession, target: RunningLake, reference: str) -> None:
    ours, theirs = add_catalog(spark, target.uri), add_catalog(spark, reference)
    fill(spark, ours)
    make_view(spark, ours, "CREATE VIEW sales.eu.june AS SELECT id FROM sales.eu.orders WHERE id < 10")
    with duckdb_lake(target) as duck:
        duck.execute('DELETE FROM lake."sales.eu".orders WHERE id < 5')
    rows = [row.id for row in spark.sql(f"SELECT id FROM {ours}.sales.eu.orders ORDER BY id").collect()]
    ran = invoke("unregister", "--uri", target.uri, "--namespace", "sales", "--json")
    assert ran.exit_code == 0, ran.output
    went = {line["name"]: line for line in map(json.loads, ran.stdout.splitlines())}
    assert {name: line["state"] for name, line in went.items()} == {
        "sales.eu.orders": "given up",
        "sales.eu.june": "there",
    }
    with RestCatalog("reference", uri=reference) as catalog:
        catalog.create_namespace("sales")
        catalog.create_namespace("sales.eu")
        catalog.register_table("sales.eu.orders", went["sales.eu.orders"]["detail"])
    body = {"name": "june", "metadata-location": went["sales.eu.june"]["detail"]}
    httpx.post(f"{reference}/v1/namespaces/sales.eu/register-view", json=body).raise_for_status()
    orders = f"{theirs}.sales.eu.orders"
    assert [row.id for row in spark.sql(f"SELECT id FROM {orders} ORDER BY id").collect()] == rows
    assert spark.sql(f"SELECT count(*) AS n FROM {orders} VERSION AS OF 'first'").collect()[0].n == 100
    assert [row.id for row in spark.sql(f"FROM {theirs}.sales.eu.june ORDER BY id").collect()] == [5, 6, 8, 9]
    spark.sql(f"DELETE FROM {orders} WHERE id < 50")
    spark.sql(f"INSERT INTO {orders} VALUES (1, DATE'2026-01-01', 7)")
    left = [1, *(number for number in rows if number >= 50)]
    assert [row.id for row in spark.sql(f"SELECT id FROM {orders} ORDER BY id").collect()] == left


@pytest.mark.usefixtures("lake_in_a_folder")
@pytest.mark.parametrize("kind", ["orc", "avro"])
@pytest.mark.parametrize("version", [2, 3])
def test_tables_that_spark_wrote_in_orc_and_avro_come_by_a_copy(
    spark: SparkSession, target: RunningLake, folder: Path, kind: str, version: int
) -> None:
    catalog = f"hadoop_{kind}_{version}"  # Spark keeps a catalog's first folder
    spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{catalog}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{catalog}.warehouse", f"file://{folder}/hadoop")
    name = f"{catalog}.sales.orders"
    nested = (
        "st STRUCT<x: INT, z: STRUCT<day: DATE>>, ls ARRAY<STRUCT<a: INT, b: TIMESTAMP>>, m MAP<INT, DECIMAL(20, 2)>"
    )
    for statement in (
        f"CREATE NAMESPACE {catalog}.sales",
        (
            f"CREATE TABLE {name} (id BIGINT, n INT, gone FLOAT, text STRING, at TIMESTAMP, {nested}) USING iceberg "
            f"PARTITIONED BY (days(at), bucket(4, id)) TBLPROPERTIES ('format-version'='{version}', "
            f"'write.format.default'='{kind}', 'write.delete.mode'='merge-on-read', "
            "'write.update.mode'='merge-on-read')"
        ),
        (
            f"INSERT INTO {name} SELECT id, id, id, IF(id % 3 = 0, NULL, concat('t', id)), "
            "TIMESTAMP'2024-01-01 00:00:00.123456' + make_interval(0, 0, 0, 0, CAST(id AS INT) * 7), "
            "IF(id % 5 = 0, NULL, named_struct('x', id, 'z', named_struct('day', DATE'1950-02-03'))), "
            "IF(id % 4 = 0, NULL, array(named_struct('a', id, 'b', TIMESTAMP'2024-06-01 12:00:00'), NULL)), "
            "IF(id % 7 = 0, NULL, map(id, CAST(1.25 AS DECIMAL(20, 2)), -id - 1, NULL)) FROM range(20)"
        ),
        f"DELETE FROM {name} WHERE id = 3 OR id = 8",
        f"ALTER TABLE {name} ALTER COLUMN n TYPE BIGINT",
        f"ALTER TABLE {name} RENAME COLUMN text TO words",
        f"ALTER TABLE {name} DROP COLUMN gone",
        f"ALTER TABLE {name} ADD COLUMN st.w INT",
        f"ALTER TABLE {name} DROP PARTITION FIELD bucket(4, id)",
        f"INSERT INTO {name} SELECT id + 100, n, words, at, st, ls, m FROM {name} WHERE id < 5",
        f"UPDATE {name} SET words = 'late' WHERE id = 101",
    ):
        spark.sql(statement)
    ran = invoke(
        *("migrate-catalog", "--from", "hadoop", "--option", f"warehouse={folder}/hadoop"),
        *("--uri", target.uri, "--rewrite"),
    )
    assert ran.exit_code == 0, ran.output
    spark.conf.set(f"spark.sql.catalog.copy_{kind}_{version}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.copy_{kind}_{version}.type", "rest")
    spark.conf.set(f"spark.sql.catalog.copy_{kind}_{version}.uri", target.uri)
    source, copy = (
        spark.table(table).orderBy("id").collect() for table in (name, f"copy_{kind}_{version}.sales.orders")
    )
    assert (copy, len(copy)) == (source, 22)
    columns = ["id", "n", "words", "st"]  # PyIceberg reads null lists of structs as empty ones
    with duckdb_lake(target) as duck, pyiceberg_catalog(target) as rest:
        by_duckdb = sorted_rows(duck.sql("FROM lake.sales.orders").to_arrow_table(), [*columns, "ls"])
        by_pyiceberg = sorted_rows(rest.load_table("sales.orders").scan().to_arrow(), columns)
    expected = sorted_rows(spark.table(name).select(*columns, "ls").toArrow())
    assert by_duckdb == expected
    assert by_pyiceberg == [row[:-1] for row in expected]
