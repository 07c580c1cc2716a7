"""The engines that run the sensor workload on one lake: Spark and PyIceberg over REST, DuckDB natively."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import duckdb

from duckicelake.errors import MissingRequirement
from duckicelake.pipeline.canonical import DuckSQL
from duckicelake.pipeline.duck import ATTACHED
from duckicelake.pipeline.sensors import COLUMNS, Row
from duckicelake.pipeline.spark_names import CATALOG, sql_name
from duckicelake.rest.connection import Connection
from duckicelake.rest.names import Namespace

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

_SCHEMA: Final = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())


class Engine(Protocol):
    """Something that writes batches to a table of its own, and reads it."""

    name: str

    def create(self) -> None: ...

    def insert(self, batch: Sequence[Row]) -> None:
        """One commit with these rows."""

    def query(self, aggregation: str) -> Sequence[tuple[object, ...]]:
        """The answer to one of `AGGREGATIONS`."""

    def maintain(self) -> None:
        """Make few files of many, and let go of the old ones."""


class SparkEngine:
    """Spark. It maintains its table by Iceberg's procedures."""

    name = "spark"

    def __init__(self, spark: SparkSession, namespace: Namespace, table: str) -> None:
        self._spark, self._table = spark, sql_name(namespace, table)

    def create(self) -> None:
        self._spark.sql(f"CREATE TABLE {self._table} ({_SCHEMA})")

    def insert(self, batch: Sequence[Row]) -> None:
        self._spark.createDataFrame(batch, _SCHEMA).writeTo(self._table).append()

    def query(self, aggregation: str) -> Sequence[tuple[object, ...]]:
        return [tuple(row) for row in self._spark.sql(aggregation.format(t=self._table)).collect()]

    def maintain(self) -> None:
        compact(self._spark, self._table)


class PyIcebergEngine:
    """PyIceberg, which reads rows into memory, where DuckDB aggregates them; Spark maintains its table, as it can't."""

    name = "pyiceberg"

    def __init__(self, spark: SparkSession, connection: Connection, namespace: Namespace, table: str) -> None:
        try:
            from pyiceberg.catalog.rest import RestCatalog
        except ImportError as error:
            raise MissingRequirement("PyIceberg isn't installed: pip install 'duckicelake[pyiceberg]'") from error
        self._catalog = RestCatalog(CATALOG, **connection.catalog_properties())
        self._spark, self._sql, self._identifier = spark, sql_name(namespace, table), (*namespace, table)

    def create(self) -> None:
        self._spark.sql(f"CREATE TABLE {self._sql} ({_SCHEMA})")
        self._table: Table = self._catalog.load_table(self._identifier)
        self._arrow = self._table.schema().as_arrow()

    def insert(self, batch: Sequence[Row]) -> None:
        import pyarrow

        arrays = [
            pyarrow.array(column, field.type)
            for column, field in zip(zip(*batch, strict=True), self._arrow, strict=True)
        ]
        self._table.append(pyarrow.Table.from_arrays(arrays, schema=self._arrow))

    def query(self, aggregation: str) -> Sequence[tuple[object, ...]]:
        wanted = tuple(name for name in COLUMNS if name in aggregation) or ("sequence",)
        with duckdb.connect() as connection:
            connection.register("rows", self._table.scan(selected_fields=wanted).to_arrow())
            return connection.sql(aggregation.format(t="rows")).fetchall()

    def maintain(self) -> None:
        compact(self._spark, self._sql)
        self._table.refresh()


class DuckDBEngine:
    """DuckDB with its `ducklake` extension, which inlines small batches in the catalog's Postgres."""

    name = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection, namespace: Namespace, table: str) -> None:
        self._connection, self._schema, self._name = connection, ".".join(namespace), table
        self._table = ".".join((ATTACHED, *map(DuckSQL().identifier, (self._schema, table))))

    def create(self) -> None:
        self._connection.execute(f"CREATE TABLE {self._table} ({_SCHEMA.replace('timestamp', 'timestamptz')})")

    def insert(self, batch: Sequence[Row]) -> None:
        marks = ", ".join([f"({', '.join('?' * len(COLUMNS))})"] * len(batch))
        self._connection.execute(f"INSERT INTO {self._table} VALUES {marks}", [value for row in batch for value in row])

    def query(self, aggregation: str) -> Sequence[tuple[object, ...]]:
        return self._connection.sql(aggregation.format(t=self._table)).fetchall()

    def maintain(self) -> None:
        where = [ATTACHED, self._schema, self._name]
        self._connection.execute("CALL ducklake_flush_inlined_data(?, schema_name => ?, table_name => ?)", where)
        self._connection.execute(
            "CALL ducklake_merge_adjacent_files(?, ?, schema => ?)", [ATTACHED, self._name, self._schema]
        )


def compact(spark: SparkSession, table: str) -> None:
    """One file of many, and one snapshot of all."""
    name = table.removeprefix(f"`{CATALOG}`.").replace("'", "\\'")
    spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    spark.sql(f"CALL {CATALOG}.system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)")
