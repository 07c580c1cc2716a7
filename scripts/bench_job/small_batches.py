"""A sensor's small batches, 10 rows of 23 columns each: DuckDB, PyIceberg and the rows endpoint on one lake.

DuckDB's own inlining, in the same Postgres, is the reference for inserts, for nine aggregations (in DuckDB and in
Spark) and for the flush. PyIceberg appends fewer batches, here and to Iceberg's Java reference server, and each costs
the more the more there are: its figures flatter it. What HTTP alone lets through, a bare Starlette route that reads the
same requests, bounds how many times that can be. Objects are what a table has in its folders. The long run
(`--long 30000`) has the server flush by itself while an Iceberg client loads the table every second.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from time import perf_counter
from typing import Final

import duckdb
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession

from duckicelake.client.batch import Batching
from duckicelake.client.writer import Writer
from duckicelake.pipeline.duckdb_lake import LAKE_ALIAS, attach_lake
from duckicelake.pipeline.sensor_bench import AGGREGATIONS, SENSOR_COLUMNS, DuckDBEngine, SparkEngine, generate_batches
from duckicelake.pipeline.session import open_spark_session
from duckicelake.rest.connection import Connection
from scripts.bench_job.client import Rest
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.sensor_writers import (
    NAMESPACE,
    Batches,
    Insert,
    by_duckdb,
    by_endpoint,
    by_pyiceberg,
    by_writer,
    timed,
)
from scripts.bench_job.servers import Bench, java_is_there, running_bench, running_java, running_starlette

ROWS: Final = 10
"""Of a batch."""
WORKERS: Final = 2
CLIENTS: Final = 16
PYICEBERG: Final = 20
"""Times fewer batches."""
AGAIN: Final = 5
FLUSH_ROWS: Final = 20_000
WINDOW: Final = 1000
"""Batches whose rates the long run compares."""


@dataclass(frozen=True, slots=True)
class Times:
    """Of one way: batches a second, seconds of aggregations and of the flush, data files and objects before that."""

    rate: float
    aggregation: float
    in_spark: float
    flush: float
    files: int
    objects: int


def main() -> None:
    options = options_of(__doc__, batches=(1000, "batches"), long=(0, "batches of the long run, 0: none"))
    count = 160 if options.quick else options.batches
    results = [*side_by_side(count), *(long_run(options.long) if options.long else ())]
    report(title(options, count), results, options)


def title(options: argparse.Namespace, count: int) -> str:
    return f"{count:,} batches of {ROWS} rows" + (f", and a long run of {options.long:,}" if options.long else "")


def side_by_side(count: int) -> Iterator[Result]:
    made = list(generate_batches(count * ROWS, ROWS))
    with (
        running_bench(workers=WORKERS, auth=False) as bench,
        attach_lake(bench.ducklake_attach, read_only=False) as duck,
        open_spark_session(Connection(bench.uri), conf={"spark.driver.memory": "2g"}) as spark,
    ):
        lake = Sides(bench, duck, spark)
        native = lake.measured("native", by_duckdb(duck), made)
        files = lake.measured("files", by_duckdb(duck), made, inline=False)
        fewer = made[: max(count // PYICEBERG, 1)]
        foreign = lake.measured("pyiceberg", by_pyiceberg(bench.uri), fewer)
        java = appended_to_java(RestCatalog("lake", uri=bench.uri).load_table("main.native").schema(), fewer)
        one = lake.measured("one", by_endpoint(bench.uri, 1), made)
        crowd = lake.measured("crowd", by_endpoint(bench.uri, CLIENTS), made)
        writer = lake.measured("writer", by_writer(bench.uri), made)
    with running_starlette(b'{"snapshot-id": 1}') as uri:
        bare = [len(made) / timed(partial(by_endpoint(uri, clients), "bare", made)) for clients in (1, CLIENTS)]
    yield Result("insert: DuckDB, inlined", native.rate, "batches/s")
    yield Result("insert: DuckDB, a file for each batch", files.rate, "batches/s", None, native.rate, "DuckDB")
    name = f"insert: PyIceberg appends, {PYICEBERG} times fewer of them"
    yield Result(name, foreign.rate, "batches/s", None, native.rate, "DuckDB")
    if java is not None:
        yield Result(f"{name}, to Java's reference server", java, "batches/s", None, native.rate, "DuckDB")
    ways = ("one client", one, 3, bare[0]), (f"{CLIENTS} clients", crowd, 10, bare[1])
    for name, found, target, limit in ways:
        yield Result(f"insert: rows, {name}", found.rate, "batches/s", _times(target), native.rate, "DuckDB")
        against = f"the same against PyIceberg: rows, {name}"
        yield Result(against, found.rate, "batches/s", _times(500), foreign.rate, "PyIceberg")
        alone = f"the same requests to a bare Starlette route, {name}"
        yield Result(alone, limit, "batches/s", None, foreign.rate, "PyIceberg")
        yield from compared(name, found, native)
    yield Result("insert: rows, our client for Python", writer.rate, "batches/s", None, native.rate, "DuckDB")
    left = {"DuckDB, a file for each batch": files, f"PyIceberg, {PYICEBERG} times fewer": foreign, "rows": crowd}
    for name, found in left.items():
        yield Result(f"objects before the flush: {name}", found.objects, "", None, native.objects, "DuckDB")


def compared(name: str, found: Times, native: Times) -> Iterator[Result]:
    for what, mine, reference in (
        ("aggregations", found.aggregation, native.aggregation),
        ("aggregations in Spark", found.in_spark, native.in_spark),
        ("flush", found.flush, native.flush),
    ):
        target = Target("≤", 1.5, "ratio")
        yield Result(f"{what}: rows, {name}", mine * 1000, "ms", target, reference * 1000, "DuckDB")
    yield Result(f"data files before the flush: rows, {name}", found.files, "", Target("≤", 0))


def _times(ratio: float) -> Target:
    return Target("≥", ratio, "ratio")


def appended_to_java(schema: Schema, made: Batches) -> float | None:
    """PyIceberg's batches a second to the reference server, if it is there."""
    if not java_is_there():
        return None
    with running_java() as uri:
        catalog = RestCatalog("lake", uri=uri)
        catalog.create_namespace(NAMESPACE)
        catalog.create_table((*NAMESPACE, "java"), schema)
        return len(made) / timed(lambda: by_pyiceberg(uri)("java", made))


@dataclass(frozen=True, slots=True)
class Sides:
    """One lake, as each engine has it."""

    bench: Bench
    duck: duckdb.DuckDBPyConnection
    spark: SparkSession

    def measured(self, table: str, insert: Insert, made: Batches, *, inline: bool = True) -> Times:
        """Make a table, insert, aggregate, flush: DuckDB its own tables, the server those of others."""
        engine = DuckDBEngine(self.duck, NAMESPACE, table)
        engine.create()
        if not inline:
            self.duck.execute(f"CALL {LAKE_ALIAS}.set_option('data_inlining_row_limit', 0, table_name => '{table}')")
        rate = len(made) / timed(lambda: insert(table, made))
        (found,) = engine.query("SELECT count(*), count(DISTINCT sequence) FROM {t}")
        expected = sum(map(len, made))
        if found != (expected, expected):
            raise RuntimeError(f"{table} has {found} rows and sequences instead of {expected}")
        aggregation, files, objects = aggregated(engine), data_files(self.duck, table), self._objects(table)
        in_spark = aggregated(SparkEngine(self.spark, NAMESPACE, table))
        return Times(rate, aggregation, in_spark, timed(lambda: self._flush(table)), files, objects)

    def _flush(self, table: str) -> None:
        if table in {"native", "files"}:
            self.duck.execute("CALL ducklake_flush_inlined_data(?, table_name => ?)", [LAKE_ALIAS, table])
        else:
            Rest(self.bench.uri).ask("POST", f"/namespaces/main/tables/{table}/rows/flush")

    def _objects(self, table: str) -> int:
        """Files below all folders that are called after the table, metadata included."""
        folders = self.bench.folder.rglob(f"{table}*")
        return sum(file.is_file() for folder in folders if folder.is_dir() for file in folder.rglob("*"))


def aggregated(engine: DuckDBEngine | SparkEngine) -> float:
    """Seconds of all aggregations, the median of some times."""
    return statistics.median(timed(lambda: list(map(engine.query, AGGREGATIONS))) for _ in range(AGAIN))


def data_files(duck: duckdb.DuckDBPyConnection, table: str) -> int:
    """Live ones."""
    (found,) = duck.execute("SELECT count(*) FROM ducklake_list_files(?, ?)", [LAKE_ALIAS, table]).fetchall()
    return int(found[0])


def long_run(count: int) -> Iterator[Result]:
    """One client's rate at the end against that at the beginning, and what a reader sees all the while."""
    settings = {"DUCKICELAKE_FLUSH_ROWS": str(FLUSH_ROWS)}
    with running_bench(workers=WORKERS, auth=False, settings=settings) as bench:
        with attach_lake(bench.ducklake_attach, read_only=False) as duck:
            DuckDBEngine(duck, NAMESPACE, "long").create()
        over, reader = Event(), Reader(bench)
        thread = Thread(target=reader.read, args=(over,))
        thread.start()
        try:
            seconds = stream(bench, count)
        finally:
            over.set()
            thread.join()
    window = min(WINDOW, count // 2)
    rates = [window / sum(each) for each in (seconds[-window:], seconds[:window])]
    yield Result(
        f"long run: the last {window:,} batches", rates[0], "batches/s", _times(1 / 1.2), rates[1], "the first"
    )
    yield Result("counts that a reader saw fall", reader.falls(), "", Target("≤", 0))
    loads = [each * 1000 for each in reader.seconds]
    yield Result("loads by a reader, p99", p99(loads), "ms", Target("≤", 200), p50=p50(loads), p99=p99(loads))


def stream(bench: Bench, count: int) -> list[float]:
    """Seconds of each batch, one after the other."""
    seconds = []
    with Writer("main.long", Connection(bench.uri), Batching(max_rows=ROWS)) as writer:
        for batch in generate_batches(count * ROWS, ROWS):
            rows = [dict(zip(SENSOR_COLUMNS, row, strict=True)) for row in batch]
            began = perf_counter()
            writer.append(rows)
            writer.flush()
            seconds.append(perf_counter() - began)
    return seconds


class Reader:
    """An Iceberg client that loads the table every second; `counts` are the rows that it finds."""

    def __init__(self, bench: Bench) -> None:
        self._rest = Rest(bench.uri)
        self.seconds: list[float] = []
        self.counts: list[int] = []

    def read(self, over: Event) -> None:
        while not over.wait(1):
            began = perf_counter()
            metadata = self._rest.load("long", namespace="main")
            self.seconds.append(perf_counter() - began)
            self.counts.append(total(metadata["snapshots"]))

    def falls(self) -> int:
        """How often there were fewer rows than before."""
        return sum(after < before for before, after in zip(self.counts, self.counts[1:], strict=False))


def total(snapshots: Sequence[dict[str, dict[str, str]]]) -> int:
    """Rows of the newest snapshot; its files may hold some that are deleted, as those that were flushed."""
    if not snapshots:
        return 0
    summary = snapshots[-1]["summary"]
    return int(summary["total-records"]) - int(summary["total-position-deletes"])


if __name__ == "__main__":
    main()
