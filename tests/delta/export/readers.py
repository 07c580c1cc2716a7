"""What Delta's readers read of a table of ours, at each version of its log."""

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from duckicelake.catalog.table.load import load_current_table
from duckicelake.delta.export.exporter import update_delta_log
from duckicelake.delta.export.logs import LogRow
from tests.support.lakes import Lake, Row, iceberg_rows, sorted_rows


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a log, and the snapshot whose rows it has."""

    version: int
    snapshot_id: int | None
    timestamp_ms: int


def keep(lake: Lake, table: str = "t", namespace: str = "main") -> LogRow:
    """What the server does in the background."""
    return update_delta_log(lake.services, load_current_table(lake.services, (namespace,), table))


def versions(lake: Lake) -> list[Version]:
    found = lake.sql(
        "SELECT v.version, v.snapshot_id, v.timestamp_ms FROM duckicelake_delta_version v "
        "JOIN duckicelake_delta_log l USING (table_id) WHERE v.version >= l.oldest ORDER BY 1"
    )
    return [Version(*row) for row in found]


def delta_rs(root: str, version: int, where: str = "true") -> pa.Table:
    table = DeltaTable(root.removeprefix("file://"), version=version)
    return pa.table(QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE {where}"))


def duckdb_delta(duck: duckdb.DuckDBPyConnection, root: str, version: int, where: str = "true") -> pa.Table:
    name = root.removeprefix("file://")
    return duck.execute(f"FROM delta_scan('{name}', version := {version}) WHERE {where}").to_arrow_table()


def assert_read_alike(
    lake: Lake, delta: duckdb.DuckDBPyConnection, table: str = "t", namespace: str = "main"
) -> dict[int, list[Row]]:
    """Bring the log up to date; at each version Delta's readers read what Iceberg's do. The rows by version."""
    log = keep(lake, table, namespace)
    static = lake.static(table, namespace)
    seen: dict[int, list[Row]] = {}
    for each in versions(lake):
        expected = pa.table({}) if each.snapshot_id is None else static.scan(snapshot_id=each.snapshot_id).to_arrow()
        for who, found in read_by(delta, log, each.version):
            assert_same(found, expected, f"{who}, version {each.version}")
        seen[each.version] = rows_of(expected)
    for who, found in read_by(delta, log, log.version):
        assert rows_of(found) == iceberg_rows(static) == lake.duck_rows(f"{namespace}.{table}"), who
    return seen


def read_by(delta: duckdb.DuckDBPyConnection, log: LogRow, version: int) -> list[tuple[str, pa.Table]]:
    return [("delta-rs", delta_rs(log.root, version)), ("DuckDB", duckdb_delta(delta, log.root, version))]


def assert_same(found: pa.Table, expected: pa.Table, message: str, renamed: Mapping[str, str] | None = None) -> None:
    """The same rows; where only the schema was changed after a snapshot, it reads with columns that are null.

    renamed: what columns were called in the snapshot.
    """
    assert found.num_rows == expected.num_rows, message
    former = {name: (renamed or {}).get(name, name) for name in found.column_names}
    columns = [name for name, was in former.items() if was in expected.column_names or name in expected.column_names]
    before = [name if name in expected.column_names else former[name] for name in columns]
    assert sorted_rows(found, columns) == sorted_rows(expected, before), message
    assert all(found[name].null_count == found.num_rows for name in set(found.column_names) - set(columns)), message


def rows_of(table: pa.Table) -> list[Row]:
    return sorted_rows(pa.table(table))
