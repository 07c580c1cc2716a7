"""A Delta table that delta-rs writes and a table here that follows it, in small: what both sides read of it."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.delta.import_.importer import DeltaImport, import_table
from duckicelake.delta.import_.sources import DeltaSource
from duckicelake.delta.import_.sync import find_source, sync
from duckicelake.delta.log.reader import DeltaLog
from tests.support.lakes import Row, sorted_rows

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})


def batch(first: int, count: int, name: str = "x") -> pa.Table:
    return pa.table({"id": list(range(first, first + count)), "name": [name] * count}, SCHEMA)


@dataclass(slots=True)
class Following:
    """The table `main.<name>` of a lake, and the Delta table `<warehouse>/delta/<name>`."""

    services: Services
    duck: duckdb.DuckDBPyConnection
    name: str = "t"
    root: Path = field(init=False)

    def __post_init__(self) -> None:
        self.root = Path(self.services.policy.warehouse) / "delta" / self.name

    @property
    def full_name(self) -> str:
        return f"main.{self.name}"

    def delta(self, version: int | None = None) -> DeltaTable:
        return DeltaTable(str(self.root), version=version)

    def append(self, rows: pa.Table | None = None, **options: Any) -> int:
        """Append to the Delta table; its version then."""
        write_deltalake(str(self.root), batch(0, 3) if rows is None else rows, mode="append", **options)
        return self.delta().version()

    def log(self, *actions: dict[str, Any]) -> int:
        """Write the next version's file as it is; the version."""
        version = self.delta().version() + 1
        file = self.root / "_delta_log" / f"{version:020}.json"
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))
        return version

    def replace(self) -> None:
        """Put another Delta table in the place."""
        shutil.rmtree(self.root)
        self.append()

    def begin(self, *, follow: bool = True) -> None:
        """Import the Delta table as it is."""
        import_table(self.services, DeltaImport(str(self.root), ("main",), self.name, following=follow))

    def source(self) -> DeltaSource:
        return find_source(self.services, self.full_name)

    def sync(self) -> int:
        """Bring all that is there; the version then."""
        log, source = DeltaLog(self.services.store, self.source().root), self.source()
        while (after := sync(self.services, source, log)).position.version > source.position.version:
            source = after
        return after.position.version

    def static(self) -> StaticTable:
        return StaticTable.from_metadata(load_current_table(self.services, ("main",), self.name).location)

    def versions(self) -> list[int]:
        """The Delta versions of the snapshots, oldest first."""
        return [int(snapshot.summary["delta.version"]) for snapshot in self.static().snapshots()]  # type: ignore[index, arg-type]

    def assert_alike(self, since: int = 0) -> None:
        """Iceberg's snapshots, DuckDB's and delta-rs' versions have the same rows, from a version on."""
        static = self.static()
        by_version = {int(each.summary["delta.version"]): each for each in static.snapshots()}  # type: ignore[index, arg-type]
        newest = self.delta().version()
        assert max(by_version) == newest
        for version, snapshot in by_version.items():
            if version >= since:
                expected = delta_rows(self.delta(version))
                assert iceberg_rows(static, snapshot.snapshot_id) == expected, version
                at = snapshot.summary["ducklake.snapshot-id"]  # type: ignore[index]
                assert self.duck_rows(f"AT (VERSION => {at})") == expected, version
        assert self.duck_rows() == delta_rows(self.delta())

    def duck_rows(self, at: str = "") -> list[Row]:
        return sorted_rows(self.duck.sql(f"FROM {self.name} {at}").to_arrow_table())


def iceberg_rows(table: StaticTable, snapshot_id: int) -> list[Row]:
    """What PyIceberg reads, file by file: it can't put texts together that Arrow keeps in different ways."""
    scan = table.scan(snapshot_id=snapshot_id)
    reader = ArrowScan(table.metadata, table.io, scan.projection(), AlwaysTrue())
    rows = [row for task in scan.plan_files() for row in sorted_rows(reader.to_table([task]))]
    return sorted(rows, key=repr)


def delta_rows(table: DeltaTable) -> list[Row]:
    return sorted_rows(pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t")))
