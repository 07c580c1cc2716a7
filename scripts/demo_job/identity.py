"""One number on both sides: Iceberg snapshots name their DuckLake snapshots, and are named back."""

import json
from dataclasses import dataclass

import duckdb
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from scripts.demo_job.checks import Checks
from scripts.demo_job.dataset import COLUMNS
from scripts.demo_job.spark_job import NAMESPACE

NUMBER = "ducklake.snapshot-id"
DATA_CHANGES = ("tables_inserted_into", "tables_deleted_from", "inlined_insert", "inlined_delete")
LAST_DATA_CHANGES = """
    SELECT t.table_name, t.table_id, max_by(s.snapshot_id, s.snapshot_id), max_by(s.extra, s.snapshot_id)
    FROM (SELECT snapshot_id, coalesce(commit_extra_info, '') AS extra, unnest(map_keys(changes)) AS kind,
                 unnest(map_values(changes)) AS touched
          FROM ducklake_snapshots('lake')) s
    JOIN ducklake_table_info('lake') t ON list_contains(s.touched, CAST(t.table_id AS VARCHAR))
    WHERE list_contains(?, s.kind) GROUP BY ALL"""


@dataclass(frozen=True, slots=True)
class LastChange:
    """The newest DuckLake snapshot that changed a table's rows; `extra` is what our server wrote, "" for DuckDB's."""

    table_id: int
    snapshot_id: int
    extra: str

    def iceberg_snapshot_id(self) -> int:
        """The id by which DuckLake names the Iceberg snapshot; for what DuckDB wrote the two ids are one."""
        if not self.extra:
            return self.snapshot_id
        return int(json.loads(self.extra)["iceberg"][str(self.table_id)])


def check(lake: duckdb.DuckDBPyConnection, catalog: Catalog, mode: str, checks: Checks) -> None:
    changes = last_changes(lake)
    native = {snapshot for (snapshot,) in lake.execute(NATIVE).fetchall()}
    for name in COLUMNS:
        table = catalog.load_table((NAMESPACE, name))
        check_current(name, table, changes[name], checks)
        check_all(name, table, native, mode, checks)


NATIVE = "SELECT snapshot_id FROM ducklake_snapshots('lake') WHERE commit_extra_info IS NULL"


def last_changes(lake: duckdb.DuckDBPyConnection) -> dict[str, LastChange]:
    found = lake.execute(LAST_DATA_CHANGES, [DATA_CHANGES]).fetchall()
    return {name: LastChange(table_id, snapshot_id, extra) for name, table_id, snapshot_id, extra in found}


def check_current(name: str, table: Table, last: LastChange, checks: Checks) -> None:
    """Summary, table property and DuckLake agree on the number, and DuckLake names the Iceberg snapshot back."""
    current = table.current_snapshot()
    expected = (str(last.snapshot_id), str(last.snapshot_id), last.iceberg_snapshot_id())
    got = current and (number(current), table.properties.get(NUMBER), current.snapshot_id)
    checks.equal(f"identity: {name}: summary = property = DuckLake, named back", expected, got)


def check_all(name: str, table: Table, native: set[int], mode: str, checks: Checks) -> None:
    """`snapshot-id` is the DuckLake number itself: for what DuckDB wrote, and in mode `ducklake` for everything."""
    same = [s for s in table.snapshots() if mode == "ducklake" or int(number(s) or -1) in native]
    if same:
        expected = [number(snapshot) for snapshot in same]
        checks.equal(f"identity: {name}: snapshot-id is the DuckLake id", expected, [str(s.snapshot_id) for s in same])


def number(snapshot: Snapshot) -> str | None:
    return snapshot.summary[NUMBER] if snapshot.summary else None
