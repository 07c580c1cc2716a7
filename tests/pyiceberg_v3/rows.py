"""Rows to write, and how both sides number the rows of a table."""

import pyarrow as pa
from pyiceberg.table import Table

from tests.support.lakes import Lake
from tests.support.row_lineage import lineage

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
Numbers = dict[int, tuple[int, int]]
"""By the value of column `id`: row id, and sequence number of the last update."""


def rows(names: dict[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "name": name} for key, name in names.items()], schema=SCHEMA)


def numbers(lake: Lake, table: Table) -> Numbers:
    """What DuckDB calls `rowid` and `snapshot_id`; the files say the same by Iceberg's specification."""
    by_duckdb = lake.duck.sql("SELECT id, rowid, snapshot_id FROM lake.t").fetchall()
    assert sorted(pair for _, *pair in by_duckdb) == sorted(map(list, lineage(table.refresh())))
    return {key: (row_id, number) for key, row_id, number in by_duckdb}


def row_ids(lake: Lake, table: Table) -> dict[int, int]:
    return {key: row_id for key, (row_id, _) in sorted(numbers(lake, table).items())}


def newest(table: Table) -> int:
    """The sequence number of the table's newest snapshot."""
    return table.refresh().metadata.last_sequence_number
