"""How long the sensor workload takes: small inserts, aggregations, maintenance, through each engine on one lake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from duckicelake.errors import PipelineError
from duckicelake.pipeline.duck import attached
from duckicelake.pipeline.reporting import Reporter
from duckicelake.pipeline.running import running
from duckicelake.pipeline.sensor_engines import DuckDBEngine, Engine, PyIcebergEngine, SparkEngine
from duckicelake.pipeline.sensors import AGGREGATIONS, batches
from duckicelake.pipeline.spark_names import sql_name
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.names import Namespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES: Final = ("spark", "pyiceberg", "duckdb")


@dataclass(frozen=True, slots=True)
class SensorBench:
    """rows: in batches of a size. attach: the lake for DuckDB. keep: leave the tables behind, one for each engine."""

    rows: int
    batch: int = 10
    engines: Sequence[str] = ENGINES
    namespace: Namespace = ("bench_sensors",)
    attach: str | None = field(default=None, repr=False)
    keep: bool = False


@dataclass(frozen=True, slots=True)
class SensorTimes:
    """Of one engine, in seconds; aggregation_again: after the maintenance."""

    engine: str
    batches: int
    insert: float
    aggregation: float
    maintenance: float
    aggregation_again: float


def bench_sensors(
    spark: SparkSession, client: CatalogClient, wanted: SensorBench, reporter: Reporter
) -> list[SensorTimes]:
    """Run it through one engine after the other; PipelineError if one doesn't read all rows that it wrote."""
    client.make_namespace(wanted.namespace)
    mark, times = uuid4().hex[:8], []
    for name in wanted.engines:
        table = f"{name}_{mark}"
        with ExitStack() as stack:
            parameters = {"rows": wanted.rows, "batch": wanted.batch, "engine": name}
            job = stack.enter_context(running(client, "bench", wanted.namespace, table, parameters=parameters))
            engine = _engine(spark, client, wanted, name, table, stack)
            if not wanted.keep:
                stack.callback(_drop, spark, wanted.namespace, table)
            times.append(_run(engine, wanted, reporter))
            job.ends("done", rows=wanted.rows, insert_seconds=round(times[-1].insert, 3))
    return times


def _engine(
    spark: SparkSession, client: CatalogClient, wanted: SensorBench, name: str, table: str, stack: ExitStack
) -> Engine:
    match name:
        case "spark":
            return SparkEngine(spark, wanted.namespace, table)
        case "pyiceberg":
            return PyIcebergEngine(spark, client.connection, wanted.namespace, table)
        case _:
            connection = stack.enter_context(attached(wanted.attach, read_only=False))
            return DuckDBEngine(connection, wanted.namespace, table)


def _run(engine: Engine, wanted: SensorBench, reporter: Reporter) -> SensorTimes:
    engine.create()
    made = list(batches(wanted.rows, wanted.batch))
    reporter.begin(f"{engine.name}: inserting", len(made), "batches")
    began = perf_counter()
    for batch in made:
        engine.insert(batch)
        reporter.advance()
    insert = perf_counter() - began
    aggregation = _timed(lambda: _aggregate(engine, wanted.rows, reporter))
    reporter.begin(f"{engine.name}: maintaining")
    maintenance = _timed(engine.maintain)
    again = _timed(lambda: _aggregate(engine, wanted.rows, reporter))
    reporter.done()
    return SensorTimes(engine.name, len(made), insert, aggregation, maintenance, again)


def _aggregate(engine: Engine, rows: int, reporter: Reporter) -> None:
    reporter.begin(f"{engine.name}: aggregating", len(AGGREGATIONS), "queries")
    answers = []
    for aggregation in AGGREGATIONS:
        answers.append(engine.query(aggregation))
        reporter.advance()
    if answers[0] != [(rows,)]:
        raise PipelineError(f"{engine.name} wrote {rows:,} rows and reads {answers[0]}")


def _timed(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def _drop(spark: SparkSession, namespace: Namespace, table: str) -> None:
    spark.sql(f"DROP TABLE IF EXISTS {sql_name(namespace, table)} PURGE")
