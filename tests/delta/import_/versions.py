"""What the readers of an imported Delta table read at each of its versions: delta-rs, DuckDB and PyIceberg."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.delta.import_.importer import DeltaImport, DeltaImportResult, import_table
from duckicelake.iceberg.metadata import TableMetadata

NS = ("ns",)
Rows = list[str]


def imported(services: Services, folder: Path, name: str = "t", **options: Any) -> DeltaImportResult:
    """Import a table into the namespace of the tests."""
    return import_table(services, DeltaImport(str(folder), NS, name, **options))


def table_metadata(services: Services, name: str = "t") -> TableMetadata:
    return load_current_table(services, NS, name).metadata


def versions(metadata: TableMetadata) -> dict[int, tuple[int, int]]:
    """(Iceberg's snapshot id, DuckLake's) by Delta version."""
    return {
        int(each.summary["delta.version"]): (each.snapshot_id, int(each.summary["ducklake.snapshot-id"]))
        for each in metadata.snapshots
    }


def rows(table: pa.Table) -> Rows:
    """The rows as texts in an order of their own, the same for whatever reads the same."""
    names = sorted(table.column_names)
    return sorted(repr([plain(row[name]) for name in names]) for row in table.to_pylist())


def plain(value: Any) -> Any:
    """A value as all readers give it."""
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def delta_rows(folder: Path, version: int) -> Rows:
    return rows(DeltaTable(str(folder), version=version).to_pyarrow_table())


def duckdb_rows(lake: duckdb.DuckDBPyConnection, ducklake_id: int, name: str = "t") -> Rows:
    return rows(lake.sql(f"SELECT * FROM lake.ns.{name} AT (VERSION => {ducklake_id})").to_arrow_table())


def iceberg_rows(services: Services, snapshot_id: int, name: str = "t") -> Rows:
    location = load_current_table(services, NS, name).location
    return rows(StaticTable.from_metadata(location).scan(snapshot_id=snapshot_id).to_arrow())


def assert_law(
    services: Services, lake: duckdb.DuckDBPyConnection, expected: Mapping[int, Rows], name: str = "t"
) -> None:
    """At each version both sides read what is expected, and nothing else is a version."""
    found = versions(table_metadata(services, name))
    assert found.keys() == expected.keys()
    for version, (snapshot_id, ducklake_id) in found.items():
        assert_same(iceberg_rows(services, snapshot_id, name), expected[version], f"Iceberg at {version}")
        assert_same(duckdb_rows(lake, ducklake_id, name), expected[version], f"DuckDB at {version}")


def assert_same(found: Rows, wanted: Rows, what: str) -> None:
    missing, more = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    assert found == wanted, f"{what}: {len(found)} rows for {len(wanted)}; without {missing[:3]}, with {more[:3]}"
