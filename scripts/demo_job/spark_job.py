"""The PySpark job: load the flights, ask, change, look back, and read Iceberg's metadata tables."""

import pyarrow as pa
from pyspark.sql import SparkSession

from scripts.demo_job.checks import Checks
from scripts.demo_job.dataset import COLUMNS, Dataset, spark_columns
from scripts.demo_job.model import Model, Rows
from scripts.demo_job.questions import QUESTIONS

NAMESPACE = "nyc"
PARTITIONING = {
    "flights": "PARTITIONED BY (days(time_hour))",
    "weather": "PARTITIONED BY (days(time_hour))",
    "planes": "PARTITIONED BY (bucket(4, tailnum))",
}
DELETE_CANCELLED = "DELETE FROM flights WHERE dep_time IS NULL"
FORGIVE_EARLY_ARRIVALS = "UPDATE flights SET arr_delay = 0 WHERE arr_delay < 0 AND month = 12"
ADD_REMARK = "ALTER TABLE flights ADD COLUMN remark string"
CORRECTIONS = """
    SELECT *, 'confirmed' AS remark FROM csv_flights WHERE carrier = 'HA' AND month = 8
    UNION ALL
    SELECT *, 'reinstated' AS remark FROM csv_flights WHERE month = 12 AND day = 31 AND dep_time IS NULL"""
SAME_FLIGHT = "t.time_hour = c.time_hour AND t.origin = c.origin AND t.carrier = c.carrier AND t.flight = c.flight"
MERGE_CORRECTIONS = f"""
    MERGE INTO flights t USING corrections c ON {SAME_FLIGHT}
    WHEN MATCHED THEN UPDATE SET remark = c.remark
    WHEN NOT MATCHED THEN INSERT *"""
MERGED_BY_HAND = (
    f"UPDATE flights AS t SET remark = c.remark FROM corrections AS c WHERE {SAME_FLIGHT}",
    f"INSERT INTO flights FROM corrections AS c ANTI JOIN flights AS t ON {SAME_FLIGHT}",
)
LOADING_COMMITS = 12
CHANGING_COMMITS = 3


def rows(spark: SparkSession, query: str) -> Rows:
    return [tuple(row) for row in spark.sql(query).collect()]


def table(spark: SparkSession, name: str) -> pa.Table:
    return spark.table(name).toArrow()


def load(spark: SparkSession, data: Dataset, model: Model, checks: Checks) -> None:
    spark.sql(f"CREATE NAMESPACE {NAMESPACE}")
    spark.sql(f"USE {NAMESPACE}")
    for name in COLUMNS:
        spark.sql(f"CREATE TABLE {name} ({spark_columns(name)}) USING iceberg {PARTITIONING.get(name, '')}")
        csv = spark.read.csv(str(data.csv(name)), schema=spark_columns(name), header=True, nullValue="NA")
        csv.createOrReplaceTempView(f"csv_{name}")
    for name in COLUMNS.keys() - {"flights"}:
        spark.table(f"csv_{name}").writeTo(name).append()
    append_by_month(spark, model, checks)
    for name in COLUMNS:
        checks.same_rows(f"Spark: {name} holds its CSV file", model.table(name), table(spark, name))


def append_by_month(spark: SparkSession, model: Model, checks: Checks) -> None:
    expected = model.rows("SELECT month, count(*) FROM flights GROUP BY month ORDER BY month")
    got, total = [], 0
    for month, _ in expected:
        spark.table("csv_flights").where(f"month = {month}").writeTo("flights").append()
        before, total = total, spark.table("flights").count()
        got.append((month, total - before))
        checks.console.print(f"  month {month:2}: {total - before:,} flights appended", highlight=False)
    checks.equal("Spark: each month's append adds that month's flights", expected, got)


def ask(spark: SparkSession, model: Model, checks: Checks) -> None:
    for question, query in QUESTIONS.items():
        checks.equal(f"Spark: {question}", model.rows(query), rows(spark, query))


def change(spark: SparkSession, model: Model, checks: Checks) -> None:
    """DELETE, UPDATE, ADD COLUMN and MERGE, each by copy-on-write; the model does the same in its own way."""
    for statement in (DELETE_CANCELLED, FORGIVE_EARLY_ARRIVALS, ADD_REMARK):
        spark.sql(statement)
        model.run(statement)
        checks.same_rows(f"Spark: {summary(statement)}", model.table("flights"), table(spark, "flights"))
    for run in (spark.sql, model.run):
        run(f"CREATE OR REPLACE TEMPORARY VIEW corrections AS {CORRECTIONS}")
    spark.sql(MERGE_CORRECTIONS)
    model.run(*MERGED_BY_HAND)
    checks.same_rows(f"Spark: {summary(MERGE_CORRECTIONS)}", model.table("flights"), table(spark, "flights"))
    remarks = "SELECT remark, count(*) FROM flights WHERE remark IS NOT NULL GROUP BY remark ORDER BY remark"
    checks.equal("Spark: remarks after the MERGE", model.rows(remarks), rows(spark, remarks))


def summary(statement: str) -> str:
    words = " ".join(statement.split())
    return words if len(words) <= 60 else f"{words[:59]}…"


def look_back(spark: SparkSession, model: Model, checks: Checks) -> None:
    """The table as it was after the twelve appends, by its old snapshot's id."""
    history = rows(spark, "SELECT snapshot_id FROM nyc.flights.history ORDER BY made_current_at")
    ((loaded,), (latest,)) = history[LOADING_COMMITS - 1], history[-1]
    question = "SELECT origin, count(*), count(dep_time), sum(arr_delay) FROM {} GROUP BY origin ORDER BY origin"
    for version, expected in ((loaded, "csv_flights"), (latest, "flights")):
        got = rows(spark, question.format(f"flights VERSION AS OF {version}"))
        checks.equal(f"Spark: VERSION AS OF {version}", model.rows(question.format(expected)), got)


def read_metadata_tables(spark: SparkSession, model: Model, checks: Checks) -> None:
    flights = model.value("SELECT count(*) FROM flights")
    days = model.value("SELECT count(DISTINCT CAST(time_hour AS DATE)) FROM flights")
    ((files,),) = rows(spark, "SELECT count(*) FROM nyc.flights.files")
    commits = ["append"] * LOADING_COMMITS + ["overwrite"] * CHANGING_COMMITS
    expected_and_query = {
        "snapshots": (commits, "SELECT operation FROM nyc.flights.snapshots ORDER BY committed_at"),
        "history": ([True] * len(commits), "SELECT is_current_ancestor FROM nyc.flights.history"),
        "files": ([(0, flights)], "SELECT content, sum(record_count) FROM nyc.flights.files GROUP BY content"),
        "manifests": (
            [files],
            "SELECT sum(added_data_files_count + existing_data_files_count) FROM nyc.flights.manifests",
        ),
        "partitions": ([(days, flights)], "SELECT count(*), sum(record_count) FROM nyc.flights.partitions"),
    }
    for name, (expected, query) in expected_and_query.items():
        got = [row[0] if len(row) == 1 else row for row in rows(spark, query)]
        checks.equal(f"Spark: metadata table flights.{name}", expected, got)
