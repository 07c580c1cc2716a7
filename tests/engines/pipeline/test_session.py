"""Spark as the pipeline starts it, joins it and leaves it, and what its errors become."""

from pathlib import Path
from threading import Event

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from duckicelake.errors import (
    BadColumnError,
    BadInputError,
    BadSourceError,
    CatalogUnreachableError,
    MissingTableError,
    PipelineError,
)
from duckicelake.pipeline.failures import explain_failure
from duckicelake.pipeline.job import run_job
from duckicelake.pipeline.progress import TaskProgress, watch_tasks
from duckicelake.pipeline.session import open_spark_session, stamp_snapshots
from duckicelake.properties import JOB_KEY, RUN_ID_KEY
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from scripts.demo_job.server import RunningLake

pytestmark = [pytest.mark.engine, pytest.mark.spark]

ROOT = Path(__file__).parents[3]


def connection_to(lake: RunningLake) -> Connection:
    return Connection(lake.uri, credential=lake.backend.catalog.get("credential"))


def test_session_joins_a_spark_that_runs_and_its_snapshots_name_job_and_run(
    lake: RunningLake, spark: SparkSession, catalog: Catalog, namespace: str
) -> None:
    client = CatalogClient(connection_to(lake))
    with (
        open_spark_session(connection_to(lake)) as session,
        run_job(client, "ingest", (namespace,), "t", run_id="r") as job,
    ):
        session.sql(f"CREATE TABLE lake.{namespace}.t (a int)")
        with stamp_snapshots(session, job):
            session.sql(f"INSERT INTO lake.{namespace}.t VALUES (1)")
        session.sql(f"INSERT INTO lake.{namespace}.t VALUES (2)")
    assert spark.sql(f"SELECT a FROM lake.{namespace}.t ORDER BY a").collect() == [(1,), (2,)]
    first, second = map(summary, catalog.load_table(f"{namespace}.t").snapshots())
    assert (first[JOB_KEY], first[RUN_ID_KEY]) == (job.id, "r")
    assert JOB_KEY not in second


def summary(snapshot: Snapshot) -> dict[str, str]:
    assert snapshot.summary is not None
    return snapshot.summary.additional_properties


CASES: dict[str, tuple[str, type[PipelineError], str]] = {
    "column": ("SELECT nope FROM lake.{ns}.t", BadColumnError, "nope"),
    "value": ("INSERT INTO lake.{ns}.t VALUES ('x', 2)", BadColumnError, "t"),
    "arity": ("INSERT INTO lake.{ns}.t VALUES (1)", BadColumnError, "t"),
    "table": ("SELECT * FROM lake.{ns}.nope", MissingTableError, "nope"),
    "namespace": ("CREATE TABLE lake.nope_{ns}.t (a int)", BadInputError, "nope_"),
    "path": ("SELECT * FROM parquet.`/no/such/file.parquet`", BadSourceError, "/no/such/file.parquet"),
    "transform of a type": ("CREATE TABLE lake.{ns}.u (a int) PARTITIONED BY (months(a))", BadColumnError, "month"),
    "catalog": ("SELECT * FROM nowhere.ns.t", CatalogUnreachableError, "127.0.0.1:1"),
}


@pytest.mark.parametrize("case", CASES)
def test_error_of_spark_says_what_and_what_to_do(
    lake: RunningLake, spark: SparkSession, namespace: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement, kind, words = CASES[case]
    with open_spark_session(connection_to(lake)) as session:
        session.conf.set("spark.sql.catalog.nowhere", "org.apache.iceberg.spark.SparkCatalog")
        session.conf.set("spark.sql.catalog.nowhere.type", "rest")
        session.conf.set("spark.sql.catalog.nowhere.uri", "http://127.0.0.1:1")
        session.sql(f"CREATE TABLE lake.{namespace}.t (a int, b int)")
        with pytest.raises(Exception) as raised:  # noqa: PT011 - what it becomes is what counts
            session.sql(statement.format(ns=namespace)).collect()
        failure = explain_failure(raised.value)
    assert type(failure) is kind
    assert words in str(failure)
    assert "\n" not in str(failure)
    assert "Exception" not in str(failure)


def test_progress_of_spark_is_reported_and_that_it_is_idle(spark: SparkSession) -> None:
    told = Told()
    with watch_tasks(spark, told):
        keep_busy(spark, told.tasks)
        assert told.idle.wait(60)
    assert all(0 <= tasks.done <= tasks.total for tasks in told.all if tasks is not None)


def test_progress_that_was_reported_ends_with_the_block(spark: SparkSession) -> None:
    told = Told()
    with watch_tasks(spark, told):
        keep_busy(spark, told.tasks)
    assert told.all[-1] is None


class Told:
    """What a watcher told."""

    def __init__(self) -> None:
        self.all: list[TaskProgress | None] = []
        self.tasks, self.idle = Event(), Event()

    def __call__(self, tasks: TaskProgress | None) -> None:
        self.all.append(tasks)
        (self.idle if tasks is None else self.tasks).set()


def keep_busy(spark: SparkSession, enough: Event) -> None:
    """One job after the other: a single one may begin and end between two looks at it."""
    while not enough.is_set():
        spark.range(0, 10_000_000, 1, 6).selectExpr("sum(id % 7 * sqrt(id))").collect()
