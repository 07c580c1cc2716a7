"""The three engines on one lake, and the model that says what all of them must read."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

Row = tuple[Any, ...]
Act = str | Callable[[Table], object]
EVERYTHING = "true"
ALL = ("Spark", "PyIceberg", "DuckDB")


@dataclass(frozen=True, slots=True)
class Step:
    """What one engine does to table `{t}`, and what it means, as SQL for the model ("": the rows stay the same)."""

    engine: str
    act: Act
    meaning: str


def spark(sql: str, meaning: str | None = None) -> Step:
    return Step("Spark", sql, sql if meaning is None else meaning)


def duck(sql: str, meaning: str | None = None) -> Step:
    return Step("DuckDB", sql, sql if meaning is None else meaning)


def pyiceberg(act: Callable[[Table], object], meaning: str) -> Step:
    return Step("PyIceberg", act, meaning)


def append(*rows: Row) -> Step:
    """PyIceberg appends rows, given by position."""
    return pyiceberg(lambda table: table.append(arrow(table, rows)), f"INSERT INTO {{t}} VALUES {literals(rows)}")


def arrow(table: Table, rows: Iterable[Row]) -> pa.Table:
    schema = table.schema().as_arrow()
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def literals(rows: Iterable[Row]) -> str:
    return ", ".join(f"({', '.join('NULL' if value is None else repr(value) for value in row)})" for row in rows)


@dataclass(slots=True)
class Engines:
    """Spark, PyIceberg and DuckDB on one lake. In Spark and DuckDB the lake's catalog is called `lake`."""

    spark: SparkSession
    catalog: Catalog
    duck: duckdb.DuckDBPyConnection

    def do(self, step: Step, name: str) -> None:
        """Run a step on table `name`, which is "namespace.table"."""
        match step.act:
            case str(sql) if step.engine == "Spark":
                self.spark.sql(placed(sql, f"lake.{name}"))
            case str(sql):
                self.duck.execute(placed(sql, f"lake.{name}"))
            case act:
                act(self.catalog.load_table(name))

    def read(self, name: str, where: str = EVERYTHING, by: Iterable[str] = ALL) -> dict[str, pa.Table]:
        """The table's rows in each engine; `where` is understood by all of them."""
        readers: dict[str, Callable[[], pa.Table]] = {
            "Spark": lambda: self.spark.table(f"lake.{name}").where(where).toArrow(),
            "PyIceberg": lambda: self.catalog.load_table(name).scan(row_filter=where).to_arrow(),
            "DuckDB": lambda: self.duck.sql(f"FROM lake.{name} WHERE {where}").to_arrow_table(),
        }
        return {engine: readers[engine]() for engine in by}


def placed(sql: str, name: str) -> str:
    namespace, _, table = name.removeprefix("lake.").rpartition(".")
    return sql.replace("{t}", name).replace("{namespace}", namespace).replace("{table}", table)


@dataclass(slots=True)
class Model:
    """The table as it must be: an in-memory DuckDB that no lake ever touches."""

    connection: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)

    def __post_init__(self) -> None:
        self.connection.execute("SET TimeZone = 'UTC'")

    def do(self, step: Step) -> None:
        for statement in filter(None, step.meaning.split(";")):
            self.connection.execute(statement.replace("{t}", "t"))

    def rows(self, where: str = EVERYTHING) -> list[Row]:
        return sorted_rows(self.connection.sql(f"FROM t WHERE {where}").to_arrow_table())

    def columns(self) -> list[str]:
        return self.connection.sql("FROM t LIMIT 0").columns


def number_of(snapshot: Snapshot) -> int:
    """The DuckLake snapshot that an Iceberg snapshot names; -1 if none."""
    return int((snapshot.summary and snapshot.summary["ducklake.snapshot-id"]) or -1)


def sorted_rows(table: pa.Table, columns: Iterable[str] | None = None) -> list[Row]:
    """An Arrow table as sorted Python tuples, made by one engine so that equal values are equal objects."""
    names = ", ".join(f'"{name}"' for name in columns or table.column_names)
    with sorter().cursor() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", table)
        ordered = connection.sql(f"SELECT {names} FROM given ORDER BY ALL").to_arrow_table()
    return list(zip(*(column.to_pylist() for column in ordered.columns), strict=True))


@cache
def sorter() -> duckdb.DuckDBPyConnection:
    """One for all tests, as each new one costs more than most of what there is to sort."""
    return duckdb.connect()


def assert_same(engines: Engines, name: str, model: Model, where: str = EVERYTHING, by: Iterable[str] = ALL) -> None:
    """The law: Spark, PyIceberg and DuckDB have the model's columns and rows."""
    columns, expected = model.columns(), model.rows(where)
    for engine, table in engines.read(name, where, by).items():
        assert table.column_names == columns, f"{engine} has columns {table.column_names}, expected {columns}"
        got = sorted_rows(table)
        assert got == expected, f"{engine} WHERE {where}: {difference(expected, got)}"


def difference(expected: list[Row], got: list[Row]) -> str:
    missing = list((Counter(map(repr, expected)) - Counter(map(repr, got))).elements())
    extra = list((Counter(map(repr, got)) - Counter(map(repr, expected))).elements())
    return f"misses {len(missing)} rows {missing[:3]}, has {len(extra)} too many {extra[:3]}"
