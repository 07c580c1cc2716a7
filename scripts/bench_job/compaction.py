"""5,000 small files, of 100 rows each, become one: by `pipeline maintain` in Spark, and by DuckLake's own merge.

Each has a table of its own, made of the same files, and both must show the same rows afterwards. Spark's start is told
apart, with the first load of the table, which the first Iceberg client pays for.
"""

import time
from typing import Final

import duckdb
from pyspark.sql import SparkSession

from duckicelake.pipeline.maintenance import MaintainRequest, build_plan, run_plan
from duckicelake.pipeline.progress import SILENT
from duckicelake.pipeline.session import open_spark_session
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from scripts.bench_job.results import Result, options_of, report
from scripts.bench_job.servers import running_bench
from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import RunningLake

ROWS: Final = 100
SUMS: Final = "SELECT count(*), sum(id), count(DISTINCT name) FROM lake.main.{}"


def main() -> None:
    options = options_of(__doc__, files=(5000, "how many files"))
    files = options.files // 10 if options.quick else options.files
    with running_bench(auth=False) as bench:
        lake = RunningLake(bench.folder, bench.uri, bench.ducklake_attach)
        with duckdb_lake(lake) as duck:
            make(duck, files)
            connection = Connection(bench.uri)
            began = time.perf_counter()
            with open_spark_session(connection, conf={"spark.driver.memory": "2g"}) as spark:
                spark.table("lake.main.compacted").count()
                started, before = time.perf_counter() - began, bench.cpu_seconds()
                compacted, cpu = compact(spark, CatalogClient(connection)), bench.cpu_seconds() - before
            merged = timed(duck, "CALL ducklake_merge_adjacent_files('lake', 'merged')")
            sums = {duck.sql(SUMS.format(name)).fetchone() for name in ("compacted", "merged")}
    assert len(sums) == 1, f"the tables differ: {sums}"
    results = [
        Result(
            f"{files:,} files of {ROWS} rows", files / compacted, "files/s", None, files / merged, "DuckLake's merge"
        ),
        Result("Spark's start, and its first look at the table", started, "s"),
        Result("the server's part, Postgres not counted", cpu, "s CPU"),
    ]
    report("Compaction", results, options)


def make(duck: duckdb.DuckDBPyConnection, files: int) -> None:
    """Two tables alike, one file for each insert."""
    duck.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    for name in ("compacted", "merged"):
        duck.execute(f"CREATE TABLE lake.{name} (id BIGINT, name VARCHAR, amount DOUBLE)")
        duck.execute("BEGIN")
        for number in range(files):
            rows = f"range({number * ROWS}, {(number + 1) * ROWS})"
            duck.execute(f"INSERT INTO lake.{name} SELECT range, 'name ' || range % 97, range / 7 FROM {rows}")
            if number % 100 == 99:
                duck.execute("COMMIT; BEGIN")
        duck.execute("COMMIT")


def compact(spark: SparkSession, client: CatalogClient) -> float:
    began = time.perf_counter()
    request = MaintainRequest(("main",), "compacted", ("compact",))
    (done,) = run_plan(spark, client, build_plan(client, request, time.time_ns() // 1_000_000), SILENT)
    assert done.result == "done", done
    return time.perf_counter() - began


def timed(duck: duckdb.DuckDBPyConnection, statement: str) -> float:
    began = time.perf_counter()
    duck.execute(statement).fetchall()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
