"""What DuckDB inlined between two loads: rows that it inserted are in appends, which streaming readers read."""

from itertools import pairwise

import duckdb
import pytest
from pyiceberg.table import StaticTable

from tests.support.client import Client, duckdb_rows, pyiceberg_rows
from tests.support.table_history import FLUSH

INSERT = "INSERT INTO lake.ns.t VALUES ({}, 'new')"
DELETE = "DELETE FROM lake.ns.t WHERE id = {}"
UPDATE = "UPDATE lake.ns.t SET name = 'changed' WHERE id = {}"
RUNS = {
    "delete_insert": ((DELETE.format(101), INSERT.format(10)), ["delete", "append"]),
    "insert_delete": ((INSERT.format(10), DELETE.format(1)), ["append", "delete"]),
    "delete_of_what_was_inserted": ((INSERT.format(10), DELETE.format(10)), ["append", "delete"]),
    "inserts": ((INSERT.format(10), INSERT.format(11)), ["append"]),
    "deletes": ((DELETE.format(101), DELETE.format(2)), ["delete"]),
    "updates": ((UPDATE.format(1), UPDATE.format(2), UPDATE.format(1)), ["overwrite"]),
    "update_insert_update": (
        (UPDATE.format(1), INSERT.format(10), UPDATE.format(10)),
        ["overwrite", "append", "overwrite"],
    ),
    "alternating": (
        (DELETE.format(1), INSERT.format(10), INSERT.format(11), DELETE.format(10), DELETE.format(2), INSERT.format(9)),
        ["delete", "append", "delete", "append"],
    ),
    "delete_and_definition": (
        (DELETE.format(1), "ALTER TABLE lake.ns.t ADD COLUMN x BIGINT", "INSERT INTO lake.ns.t VALUES (10, 'new', 1)"),
        ["delete", "append"],
    ),
    "one_transaction": ((f"BEGIN; {DELETE.format(1)}; {INSERT.format(10)}; COMMIT",), ["overwrite"]),
    "flushed_before_the_load": ((DELETE.format(1), INSERT.format(10), FLUSH), ["overwrite"]),
}


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("run", RUNS)
def test_inserts_are_appends_whatever_is_deleted_beside_them(
    client: Client, ducklake: duckdb.DuckDBPyConnection, run: str, version: str
) -> None:
    client.create(properties={"format-version": version})
    ducklake.execute("INSERT INTO lake.ns.t SELECT range, 'file' FROM range(100, 120)")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (1, 'inlined'), (2, 'inlined')")
    listed = len(client.metadata()["snapshots"])
    statements, operations = RUNS[run]
    for statement in statements:
        ducklake.execute(statement)
    answer = client.load()
    snapshots = answer["metadata"]["snapshots"][listed:]
    assert [snapshot["summary"]["operation"] for snapshot in snapshots] == operations
    for snapshot in snapshots:
        at = snapshot["summary"]["ducklake.snapshot-id"]
        seen = ducklake.sql(f"SELECT id, name FROM lake.ns.t AT (VERSION => {at}) ORDER BY ALL").fetchall()
        assert pyiceberg_rows(answer, snapshot["snapshot-id"]) == seen
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake)


def test_a_stream_that_skips_overwrites_reads_every_insert(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    client.append((0, "file"))
    for number in range(1, 12):
        ducklake.execute(DELETE.format(number - 1))
        ducklake.execute(INSERT.format(number))
        if number % 5 == 0:
            client.load()
    answer = client.load()
    table = StaticTable.from_metadata(answer["metadata-location"])
    read = []
    for before, after in pairwise(table.metadata.snapshots):
        assert after.summary is not None
        if after.summary.operation.value == "append":
            read += [row for row in pyiceberg_rows(answer, after.snapshot_id)
                     if row not in pyiceberg_rows(answer, before.snapshot_id)]  # fmt: skip
    assert [number for number, _ in read] == list(range(1, 12))
