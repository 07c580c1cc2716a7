"""Catalogs that Java writes come into a lake: a Hadoop catalog of Spark's, and Iceberg's own REST server."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import RunningLake, running_lake
from scripts.rck_job.kit import is_there, kit_folder
from tests.support.commands import invoke
from tests.support.waits import wait_until

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


@contextmanager
def serving_reference(folder: Path) -> Iterator[str]:
    """Run Iceberg's own REST server, over a JDBC catalog in SQLite and local files."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "REFERENCE_DIR": str(folder), "REFERENCE_HEAP": "256m"}
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(kit_folder() / "start-reference.sh"), str(port)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        uri = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(uri), 240)
        yield uri
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _answers(uri: str) -> bool:
    try:
        return httpx.get(f"{uri}/v1/config", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.skipif(not is_there(), reason="Iceberg's kit isn't here")
@pytest.mark.usefixtures("lake_in_a_folder")
def test_icebergs_own_server_is_a_source(spark: SparkSession, target: RunningLake, folder: Path) -> None:
    with serving_reference(folder / "reference") as uri:
        spark.conf.set("spark.sql.catalog.reference", "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set("spark.sql.catalog.reference.type", "rest")
        spark.conf.set("spark.sql.catalog.reference.uri", uri)
        fill(spark, "reference")
        before = spark.catalog.currentCatalog()
        spark.catalog.setCurrentCatalog("reference")
        spark.sql("CREATE VIEW sales.eu.june AS SELECT id FROM sales.eu.orders WHERE id < 10")
        spark.catalog.setCurrentCatalog(before)
        found = migrate(target, "rest", uri=uri)
    assert found == {
        "sales": ("created", ""),
        "sales.eu": ("created", ""),
        "sales.eu.orders": ("created", "85 rows"),
        "sales.eu.june": ("created", ""),
    }
    assert_both_read(target)
