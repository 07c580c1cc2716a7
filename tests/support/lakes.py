"""What both sides read of one table: PyIceberg from the metadata that the server wrote, DuckDB from its catalog."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.tables import commit_table
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.rest import CommitTableRequest

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Lake:
    services: Services
    duck: duckdb.DuckDBPyConnection

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.duck.execute(statement)

    def one(self, query: str) -> Row:
        """The only row of DuckDB's answer; read to its end, so that no transaction stays open."""
        (row,) = self.duck.execute(query).fetchall()
        return tuple(row)

    def metadata(self, table: str = "t", namespace: str = "main") -> TableMetadata:
        return load_current_table(self.services, (namespace,), table).metadata

    def static(self, table: str = "t", namespace: str = "main") -> StaticTable:
        location = load_current_table(self.services, (namespace,), table).location
        return StaticTable.from_metadata(location)

    def commit(self, *updates: dict[str, Any], table: str = "t", namespace: str = "main") -> None:
        """Commit as an Iceberg client does, without requirements."""
        request = CommitTableRequest.model_validate({"requirements": [], "updates": updates})
        commit_table(self.services, (namespace,), table, request)

    def upgrade(self, format_version: int) -> None:
        """Give table `t` a format version; DuckDB's own tables begin with version 2."""
        self.commit({"action": "upgrade-format-version", "format-version": format_version})

    def duck_rows(self, table: str = "t", at: int | None = None) -> list[Row]:
        version = "" if at is None else f" AT (VERSION => {at})"
        return sorted_rows(self.duck.sql(f"FROM lake.{table}{version}").to_arrow_table())

    def newest(self) -> int:
        """The newest DuckLake snapshot."""
        ((newest,),) = self.sql("SELECT max(snapshot_id) FROM ducklake_snapshot")
        return int(newest)

    def sql(self, query: str, *parameters: Any) -> list[Row]:
        """Rows of the catalog's own tables."""
        with self.services.database.reading() as cursor:
            return [tuple(row) for row in cursor.execute(query, parameters).fetchall()]


def iceberg_rows(table: StaticTable, snapshot_id: int | None = None) -> list[Row]:
    return sorted_rows(table.scan(snapshot_id=snapshot_id).to_arrow())


def sorted_rows(table: pa.Table, columns: Iterable[str] | None = None) -> list[Row]:
    rows = table.select(list(columns)).to_pylist() if columns else table.to_pylist()
    return sorted((tuple(map(plain, row.values())) for row in rows), key=repr)


def plain(value: Any) -> Any:
    """A value that compares by what it means: timestamps without their zone's name, NaN as a text."""
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, dict):
        return tuple((key, plain(each)) for key, each in value.items())
    if isinstance(value, list):
        return tuple(map(plain, value))
    return str(value) if hasattr(value, "tzinfo") or type(value).__name__ == "UUID" else value


Truth = dict[int, list[Row]]


def assert_same_rows(lake: Lake, table: str = "t", namespace: str = "main", truth: Truth | None = None) -> None:
    """Both sides read the same rows now; every listed snapshot reads as DuckDB read it, where `truth` knows that."""
    static = lake.static(table, namespace)
    name = f"{namespace}.{table}"
    assert static.schema().as_arrow().names == lake.duck.sql(f"FROM lake.{name} LIMIT 0").columns
    assert iceberg_rows(static) == lake.duck_rows(name)
    for snapshot in static.snapshots():
        at = int(snapshot.summary["ducklake.snapshot-id"])  # type: ignore[index, arg-type]
        if truth is not None and at in truth:
            assert iceberg_rows(static, snapshot.snapshot_id) == truth[at], f"snapshot {at}"
