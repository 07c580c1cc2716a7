"""Sketches of distinct values: those of the lake's workers against those of Spark, and read by Java's library."""

import re
from pathlib import Path
from typing import Any

import pytest

from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import build_session_settings
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import UpkeepTask
from duckicelake.pipeline.java import iterate_java
from duckicelake.rewrites.statistics import compute_statistics
from scripts.demo_job.server import RunningLake
from tests.conftest import services_of
from tests.engines.engines import Engines
from tests.rewrites.test_histories import Control

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(600)]
COLUMNS = (
    "id BIGINT, number INT, flag BOOLEAN, f FLOAT, d DOUBLE, day DATE, moment TIMESTAMP, local TIMESTAMP_NTZ, "
    "name STRING, raw BINARY, price DECIMAL(9, 2), huge DECIMAL(38, 3)"
)
VALUES = (
    "id, CAST(id % 7 - 3 AS INT), id % 3 = 0, CAST(id % 11 AS FLOAT) / 4, CAST(id % 20000 AS DOUBLE), "
    "DATE '1960-01-01' + CAST(id % 9000 AS INT), timestamp_micros(id * 1000003), "
    "CAST(timestamp_micros(id % 13) AS TIMESTAMP_NTZ), IF(id % 5 = 0, NULL, repeat('ä', CAST(id % 90 AS INT))), "
    "CAST(concat('b', id % 31) AS BINARY), CAST((id % 100 - 50) / 4 AS DECIMAL(9, 2)), "
    "CAST(id % 6000 AS DECIMAL(38, 3)) * CAST(1000000000000 AS DECIMAL(20, 0))"
)


@pytest.mark.usefixtures("lake_in_a_folder")
def test_sketches_of_workers_are_those_of_spark(
    engines: Engines, lake: RunningLake, namespace: str, tmp_path: Path
) -> None:
    names = {"ours": f"lake.{namespace}.ours", "sparks": f"lake.{namespace}.sparks"}
    for name in names.values():
        engines.spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING iceberg")
        engines.spark.sql(f"INSERT INTO {name} SELECT {VALUES} FROM range(30000)")
    (found,) = re.findall(r"ducklake:postgres:([^']*)", lake.ducklake_attach)
    database = open_lake_database(found, pool_size=4, session_settings=build_session_settings())
    try:
        task = UpkeepTask("statistics", (namespace,), "ours", "asked for", parse_policy({}), 512 * 2**20)
        outcome = compute_statistics(services_of(database, lake.folder / "warehouse"), task, Control())
    finally:
        database.close()
    assert outcome.counts["columns"] == 12
    engines.spark.sql(f"CALL lake.system.compute_table_stats(table => '{namespace}.sparks')")
    jvm: Any = engines.spark.sparkContext._jvm
    ours, sparks = (read_sketches(engines, jvm, name) for name in names.values())
    assert ours.keys() == sparks.keys()
    for column, (ndv, sketch) in ours.items():
        expected, spark_sketch = sparks[column]
        assert round(sketch.getEstimate()) == ndv
        if spark_sketch.isEstimationMode():
            assert abs(ndv - expected) < expected * 0.05, column
        else:
            assert ndv == expected, column
        theirs = list(spark_sketch.getCache())
        below = min(sketch.getThetaLong(), spark_sketch.getThetaLong())
        assert {h for h in list(sketch.getCache()) if h < below} == {h for h in theirs if h < below}, column


def read_sketches(engines: Engines, jvm: Any, name: str) -> dict[int, tuple[int, Any]]:
    """The sketches of a table's newest statistics, by column id, as Java's library reads them."""
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(engines.spark._jsparkSession, name)
    file = table.statisticsFiles().get(0)
    assert file.snapshotId() == table.currentSnapshot().snapshotId()
    puffin = jvm.org.apache.iceberg.puffin.Puffin.read(table.io().newInputFile(file.path())).build()
    found = {}
    for pair in iterate_java(puffin.readAll(puffin.fileMetadata().blobs())):
        properties = pair.first().properties()
        memory = jvm.org.apache.datasketches.memory.Memory.wrap(bytearray(pair.second().array()))
        sketch = jvm.org.apache.datasketches.theta.CompactSketch.wrap(memory)
        found[pair.first().inputFields().get(0)] = int(properties.get("ndv")), sketch
    return found
