"""The sensor workload through Spark, PyIceberg and DuckDB on one lake: all read what they wrote, and the same."""

import json

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from duckicelake.cli.main import app
from duckicelake.pipeline.progress import SILENT
from duckicelake.pipeline.sensor_bench import SENSOR_COLUMNS
from duckicelake.pipeline.verification import Comparison, compare_tables
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from scripts.demo_job.server import RunningLake

pytestmark = [
    pytest.mark.more_engines,
    pytest.mark.engine,
    pytest.mark.spark,
    pytest.mark.usefixtures("lake_in_a_folder"),
]


def test_engines_write_the_same_rows_in_batches_and_maintain_them(
    spark: SparkSession, lake: RunningLake, namespace: str
) -> None:
    command = ["pipeline", "bench", "sensors", "--uri", lake.uri, "--rows", "25", "--namespace", namespace, "--json"]
    ran = CliRunner().invoke(app, [*command, "--keep", "--attach", lake.ducklake_attach])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert [(each["engine"], each["batches"]) for each in told["engines"]] == [
        ("spark", 3),
        ("pyiceberg", 3),
        ("duckdb", 3),
    ]
    tables = sorted(row.tableName for row in spark.sql(f"SHOW TABLES IN lake.{namespace}").collect())
    duckdbs, pyicebergs, sparks = (f"{namespace}.{table}" for table in tables)
    for other in (pyicebergs, sparks):
        found = compare_tables(spark, Comparison(f"duckdb:{duckdbs}", other, attach=lake.ducklake_attach), SILENT)
        assert (found.equal, found.rows, len(found.compared)) == (True, (25, 25), len(SENSOR_COLUMNS))
    files = [spark.sql(f"SELECT count(*) FROM lake.{table}.files").collect()[0][0] for table in (pyicebergs, sparks)]
    assert files == [1, 1]


@pytest.mark.parametrize("login", ["host=127.0.0.1 port=1 password='{}'", "postgresql://me:{}@127.0.0.1:1/db"])
def test_lake_that_cannot_be_attached_is_reported_without_its_password(
    lake: RunningLake, namespace: str, login: str
) -> None:
    command = ["pipeline", "bench", "sensors", "--uri", lake.uri, "--engine", "duckdb", "--namespace", namespace]
    ran = CliRunner().invoke(app, [*command, "--attach", f"ducklake:postgres:{login.format('s3cret')}"])
    (job,) = CatalogClient(Connection(lake.uri)).jobs(namespace=namespace)
    assert (ran.exit_code, job["result"]) == (2, "failed")
    for told in (ran.output, job["message"]):
        assert "port 1 failed" in told
        assert "s3cret" not in told


def test_an_engine_that_there_is_not_is_refused(lake: RunningLake) -> None:
    ran = CliRunner().invoke(app, ["pipeline", "bench", "sensors", "--uri", lake.uri, "--engine", "trino"])
    assert (ran.exit_code, "choose from spark, pyiceberg, duckdb" in ran.stderr) == (2, True)
