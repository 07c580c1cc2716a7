"""Measure small inserts, aggregations and maintenance of a sensor table through each engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

import duckdb

from duckicelake.errors import MissingRequirementError, PipelineError, format_count
from duckicelake.pipeline.checksums import DuckSQL
from duckicelake.pipeline.destination import CATALOG_NAME, format_sql_name
from duckicelake.pipeline.duckdb_lake import LAKE_ALIAS, attach_lake
from duckicelake.pipeline.job import run_job
from duckicelake.pipeline.progress import Reporter
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from duckicelake.rest.names import Namespace

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

SENSOR_COLUMNS: Final = {
    "ts": "timestamp",
    "vehicle_id": "int",
    "trip_id": "bigint",
    "sequence": "bigint",
    "latitude": "double",
    "longitude": "double",
    "altitude_m": "float",
    "heading_deg": "float",
    "speed_mps": "float",
    "acceleration_x": "float",
    "acceleration_y": "float",
    "acceleration_z": "float",
    "yaw_rate": "float",
    "steering_angle_deg": "float",
    "throttle": "float",
    "brake": "float",
    "gear": "int",
    "battery_percent": "double",
    "motor_celsius": "double",
    "lidar_points": "int",
    "obstacle_m": "double",
    "autonomous": "boolean",
    "weather": "string",
}
"""Names and types, in Spark's words; only `timestamp` means something else to DuckDB, which has `timestamptz`."""
AGGREGATIONS: Final = (
    "SELECT count(*) FROM {t}",
    "SELECT avg(speed_mps) FROM {t}",
    "SELECT stddev(speed_mps) FROM {t}",
    "SELECT min(speed_mps), max(speed_mps) FROM {t}",
    "SELECT avg(battery_percent) FROM {t} WHERE autonomous",
    "SELECT max(motor_celsius) - min(motor_celsius) FROM {t}",
    "SELECT sum(lidar_points) FROM {t}",
    "SELECT weather, avg(obstacle_m) FROM {t} GROUP BY weather ORDER BY weather",
    "SELECT gear, count(*), avg(throttle), avg(brake) FROM {t} GROUP BY gear ORDER BY gear",
)
SensorRow = tuple[datetime | int | float | bool | str, ...]
_START_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
_WEATHER_KINDS: Final = ("clear", "fog", "rain", "snow")
_COLUMNS_SQL: Final = ", ".join(f"{name} {type_}" for name, type_ in SENSOR_COLUMNS.items())
ENGINES: Final = ("spark", "pyiceberg", "duckdb")


def generate_batches(rows: int, size: int) -> Iterator[list[SensorRow]]:
    """Yield so many rows, a hundred a second, in batches of a size; always the same."""
    random = Random(23)  # noqa: S311 - no secrets
    for first in range(0, rows, size):
        yield [_generate_row(number, random) for number in range(first, min(first + size, rows))]


def _generate_row(number: int, random: Random) -> SensorRow:
    seconds = number / 100
    speed = 15 + 10 * math.sin(seconds / 60)
    return (
        _START_TIME + timedelta(seconds=seconds),
        1,
        number // 60_000,
        number,
        52.37 + seconds * 1e-5,
        4.89 + seconds * 1e-5,
        round(random.gauss(2, 0.5), 2),
        (seconds * 3) % 360,
        round(speed + random.gauss(0, 0.2), 3),
        *(round(random.gauss(mean, 0.3), 3) for mean in (0.0, 0.0, 9.81, 0.0)),
        round(random.gauss(0, 5), 2),
        round(random.random(), 3),
        round(random.random() ** 4, 3),
        1 + int(speed // 6),
        100 - seconds / 600,
        60 + 5 * math.sin(seconds / 300),
        random.randint(80_000, 120_000),
        round(random.expovariate(0.05), 2),
        random.random() < 0.9,
        _WEATHER_KINDS[int(seconds // 900) % len(_WEATHER_KINDS)],
    )


class SensorEngine(Protocol):
    """Something that writes batches to a table of its own, and reads it."""

    name: str

    def create(self) -> None: ...

    def insert(self, batch: Sequence[SensorRow]) -> None:
        """Commit these rows."""

    def query(self, aggregation: str) -> Sequence[tuple[object, ...]]:
        """Return the answer to one of `AGGREGATIONS`."""

    def maintain(self) -> None:
        """Make few files of many, and let go of the old ones."""


class SparkEngine:
    """Spark. It maintains its table by Iceberg's procedures."""

    name = "spark"

    def __init__(self, spark: SparkSession, namespace: Namespace, table: str) -> None:
        self._spark, self._table = spark, format_sql_name(namespace, table)

    def create(self) -> None:
        self._spark.sql(f"CREATE TABLE {self._table} ({_COLUMNS_SQL})")

    def insert(self, batch: Sequence[SensorRow]) -> None:
        self._spark.createDataFrame(batch, _COLUMNS_SQL).writeTo(self._table).append()

    def query(self, aggregation: str) -> Sequence[tuple[object, ...]]:
        return [tuple(row) for row in self._spark.sql(aggregation.format(t=self._table)).collect()]

    def maintain(self) -> None:
        compact_table(self._spark, self._table)


class PyIcebergEngine:
    """PyIceberg, which reads rows into memory, where DuckDB aggregates them; Spark maintains its table, as it can't."""

    name = "pyiceberg"

    def __init__(self, spark: SparkSession, connection: Connection, namespace: Namespace, table: str) -> None:
        try:
            from pyiceberg.catalog.rest import RestCatalog
        except ImportError as error:
            raise MissingRequirementError("PyIceberg isn't installed: pip install 'duckicelake[pyiceberg]'") from error
        self._catalog = RestCatalog(CATALOG_NAME, **connection.catalog_properties())
        self._spark, self._sql, self._identifier = spark, format_sql_name(namespace, table), (*namespace, table)

    def create(self) -> None:
        self._spark.sql(f"CREATE TABLE {self._sql} ({_COLUMNS_SQL})")
        self._table: Table = self._catalog.load_table(self._identifier)
        self._arrow = self._table.schema().as_arrow()

    def insert(self, batch: Sequence[SensorRow]) -> None:
        import pyarrow

        arrays = [
            pyarrow.array(column, field.type)
            for column, field in zip(zip(*batch, strict=True), self._arrow, strict=True)
        ]
        self._table.append(pyarrow.Table.from_arrays(arrays, schema=self._arrow))

    def query(self, aggregation: str) -> Sequence[tuple[object, ...]]:
        wanted = tuple(name for name in SENSOR_COLUMNS if name in aggregation) or ("sequence",)
        with duckdb.connect() as connection:
            connection.register("rows", self._table.scan(selected_fields=wanted).to_arrow())
            return connection.sql(aggregation.format(t="rows")).fetchall()

    def maintain(self) -> None:
        compact_table(self._spark, self._sql)
        self._table.refresh()


class DuckDBEngine:
    """DuckDB with its `ducklake` extension, which inlines small batches in the catalog's Postgres."""

    name = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection, namespace: Namespace, table: str) -> None:
        self._connection, self._schema, self._name = connection, ".".join(namespace), table
        self._table = ".".join((LAKE_ALIAS, *map(DuckSQL().identifier, (self._schema, table))))

    def create(self) -> None:
        self._connection.execute(f"CREATE TABLE {self._table} ({_COLUMNS_SQL.replace('timestamp', 'timestamptz')})")

    def insert(self, batch: Sequence[SensorRow]) -> None:
        marks = ", ".join([f"({', '.join('?' * len(SENSOR_COLUMNS))})"] * len(batch))
        self._connection.execute(f"INSERT INTO {self._table} VALUES {marks}", [value for row in batch for value in row])

    def query(self, aggregation: str) -> Sequence[tuple[object, ...]]:
        return self._connection.sql(aggregation.format(t=self._table)).fetchall()

    def maintain(self) -> None:
        where = [LAKE_ALIAS, self._schema, self._name]
        self._connection.execute("CALL ducklake_flush_inlined_data(?, schema_name => ?, table_name => ?)", where)
        self._connection.execute(
            "CALL ducklake_merge_adjacent_files(?, ?, schema => ?)", [LAKE_ALIAS, self._name, self._schema]
        )


def compact_table(spark: SparkSession, table: str) -> None:
    """Compact the table into one file, and expire all but one snapshot."""
    name = table.removeprefix(f"`{CATALOG_NAME}`.").replace("'", "\\'")
    spark.sql(
        f"CALL {CATALOG_NAME}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
    )
    spark.sql(f"CALL {CATALOG_NAME}.system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)")


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
            job = stack.enter_context(run_job(client, "bench", wanted.namespace, table, parameters=parameters))
            engine = _open_engine(spark, client, wanted, name, table, stack)
            if not wanted.keep:
                stack.callback(_drop_table, spark, wanted.namespace, table)
            times.append(_run_engine(engine, wanted, reporter))
            job.ends("done", rows=wanted.rows, insert_seconds=round(times[-1].insert, 3))
    return times


def _open_engine(
    spark: SparkSession, client: CatalogClient, wanted: SensorBench, name: str, table: str, stack: ExitStack
) -> SensorEngine:
    match name:
        case "spark":
            return SparkEngine(spark, wanted.namespace, table)
        case "pyiceberg":
            return PyIcebergEngine(spark, client.connection, wanted.namespace, table)
        case _:
            connection = stack.enter_context(attach_lake(wanted.attach, read_only=False))
            return DuckDBEngine(connection, wanted.namespace, table)


def _run_engine(engine: SensorEngine, wanted: SensorBench, reporter: Reporter) -> SensorTimes:
    engine.create()
    made = list(generate_batches(wanted.rows, wanted.batch))
    reporter.begin(f"{engine.name}: inserting", len(made), "batches")
    began = perf_counter()
    for batch in made:
        engine.insert(batch)
        reporter.advance()
    insert = perf_counter() - began
    aggregation = _measure_seconds(lambda: _run_aggregations(engine, wanted.rows, reporter))
    reporter.begin(f"{engine.name}: maintaining")
    maintenance = _measure_seconds(engine.maintain)
    again = _measure_seconds(lambda: _run_aggregations(engine, wanted.rows, reporter))
    reporter.done()
    return SensorTimes(engine.name, len(made), insert, aggregation, maintenance, again)


def _run_aggregations(engine: SensorEngine, rows: int, reporter: Reporter) -> None:
    reporter.begin(f"{engine.name}: aggregating", len(AGGREGATIONS), "queries")
    answers = []
    for aggregation in AGGREGATIONS:
        answers.append(engine.query(aggregation))
        reporter.advance()
    if answers[0] != [(rows,)]:
        raise PipelineError(f"{engine.name} wrote {format_count(rows, 'row')} and reads {answers[0]}")


def _measure_seconds(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def _drop_table(spark: SparkSession, namespace: Namespace, table: str) -> None:
    spark.sql(f"DROP TABLE IF EXISTS {format_sql_name(namespace, table)} PURGE")
