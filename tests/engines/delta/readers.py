"""Who reads Delta tables, and who reads them as the tables that they become here."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import duckdb
import pyarrow as pa
from deltalake import DeltaTable as RustTable
from deltalake import QueryBuilder
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from duckicelake.delta.duckdb.connection import DeltaConnection
from duckicelake.errors import CatalogError
from tests.delta.corpus.recorder import with_texts
from tests.delta.corpus.records import DeltaTable

NAMESPACE = "delta"
Read = Callable[[DeltaTable, int], pa.Table]


def delta_rs(table: DeltaTable, version: int) -> pa.Table:
    opened = RustTable(str(table.root), version=version)
    return pa.table(QueryBuilder().register("t", opened).execute("SELECT * FROM t"))


def queried(connection: Any, source: str, table: DeltaTable, version: int) -> pa.Table:
    """What DuckDB reads of it; variants as their JSON, as Arrow has no type for them, and NULL for its null."""
    fields = table.schemas[version]["fields"]
    variants = [f'"{each["name"]}"' for each in fields if each["type"] == "variant"]
    casts = [f"nullif(CAST(CAST({each} AS JSON) AS VARCHAR), 'null') AS {each}" for each in variants]
    replaced = f" REPLACE ({', '.join(casts)})" if casts else ""
    found: pa.Table = connection.execute(f"SELECT *{replaced} FROM {source}").to_arrow_table()
    return found


def text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class DuckDelta:
    """DuckDB's own delta extension."""

    connection: duckdb.DuckDBPyConnection

    def __call__(self, table: DeltaTable, version: int) -> pa.Table:
        with self.connection.cursor() as cursor:
            cursor.execute("SET TimeZone = 'UTC'")
            return queried(cursor, f"delta_scan({text(table.root)}, version => {version})", table, version)


@dataclass(frozen=True, slots=True)
class ReadDelta:
    """Our macros for DuckDB."""

    connection: DeltaConnection

    def __call__(self, table: DeltaTable, version: int) -> pa.Table:
        return queried(self.connection, f"read_delta({text(table.root)}, version => {version})", table, version)


@dataclass(frozen=True, slots=True)
class Imported:
    """A Delta table as the lake tells of it: snapshots by Delta's version and schemas by id, as JSON has them."""

    snapshots: Mapping[int, Mapping[str, Any]]
    schemas: Mapping[int, Mapping[str, Any]]

    @classmethod
    def load(cls, uri: str, name: str) -> "Imported":
        with urlopen(f"{uri}/v1/namespaces/{NAMESPACE}/tables/{name}", timeout=30) as answer:
            metadata = json.load(answer)["metadata"]
        snapshots = {int(each["summary"]["delta.version"]): each for each in metadata["snapshots"]}
        return cls(snapshots, {each["schema-id"]: each for each in metadata["schemas"]})


Imports = Mapping[str, Imported | CatalogError]
"""By name: the table, or why it couldn't be imported."""


@dataclass(frozen=True, slots=True)
class PyIceberg:
    imported: Imported
    catalog: Catalog

    def __call__(self, table: DeltaTable, version: int) -> pa.Table:
        found = self.catalog.load_table((NAMESPACE, table.name))
        return found.scan(snapshot_id=self.imported.snapshots[version]["snapshot-id"]).to_arrow()


@dataclass(frozen=True, slots=True)
class DuckLake:
    """DuckDB on the lake's own tables, at the numbers that snapshots name."""

    imported: Imported
    connection: duckdb.DuckDBPyConnection

    def __call__(self, table: DeltaTable, version: int) -> pa.Table:
        number = int(self.imported.snapshots[version]["summary"]["ducklake.snapshot-id"])
        return queried(self.connection, f'lake.{NAMESPACE}."{table.name}" AT (VERSION => {number})', table, version)


@dataclass(frozen=True, slots=True)
class SparkIceberg:
    """Spark on the Iceberg tables, by a catalog that is called as the namespace is."""

    imported: Imported
    session: SparkSession

    def __call__(self, table: DeltaTable, version: int) -> pa.Table:
        number = self.imported.snapshots[version]["snapshot-id"]
        query = f"SELECT * FROM {NAMESPACE}.{NAMESPACE}.`{table.name}` VERSION AS OF {number}"
        return with_texts(self.session.sql(query)).toArrow()
