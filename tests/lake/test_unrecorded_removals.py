"""Transactions of DuckDB that remove rows which they inserted: each reader of `changes_made` knows that they did.

DuckDB 1.5.5 records insertions alone where such a transaction has written a file. What it removes of older rows, it
records.
"""

import pytest

from duckicelake.changelog.entries import START_POSITION, ChangeKind, WantedChanges, read_changes
from duckicelake.changelog.writer import write_all_changes
from duckicelake.lake.ducklake import native
from duckicelake.lake.model import ADDITION_KINDS, REMOVAL_KINDS, LakeChange
from tests.support.lakes import Lake, assert_same_rows

MANY = "INSERT INTO t SELECT i, 'many' FROM range(100, 130) r(i)"
FEW = "INSERT INTO t VALUES (200, 'few'), (201, 'few'), (202, 'few')"
MERGE = (
    "MERGE INTO t USING (SELECT i AS id FROM range(120, 140) r(i)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET name = 'm' WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'n')"
)
TRANSACTIONS = {
    "delete_of_many": ([MANY, "DELETE FROM t WHERE id BETWEEN 100 AND 104"], 5),
    "deletes_of_many": ([MANY, "DELETE FROM t WHERE id = 100", "DELETE FROM t WHERE id = 101"], 2),
    "update_of_many": ([MANY, "UPDATE t SET name = 'u' WHERE id BETWEEN 100 AND 104"], 5),
    "large_update_of_many": ([MANY, "UPDATE t SET name = 'u' WHERE id BETWEEN 105 AND 129"], 25),
    "update_of_all": ([MANY, "UPDATE t SET name = 'u' WHERE id >= 100"], 0),
    "merge_into_many": ([MANY, MERGE], 10),
    "delete_of_both": ([MANY, FEW, "DELETE FROM t WHERE id IN (100, 200)"], 1),
    "update_of_both": ([MANY, FEW, "UPDATE t SET name = 'u' WHERE id IN (100, 200)"], 1),
    "delete_of_few": ([FEW, "DELETE FROM t WHERE id = 200"], 0),
    "update_of_few": ([FEW, "UPDATE t SET name = 'u' WHERE id = 200"], 0),
    "merge_into_few": ([FEW, MERGE.replace("range(120, 140)", "range(202, 204)")], 0),
    "delete_of_new_and_old": ([MANY, "DELETE FROM t WHERE id IN (3, 100)"], 2),
    "delete_of_new_and_inlined": ([MANY, "DELETE FROM t WHERE id IN (50, 100)"], 2),
    "delete_of_old": ([MANY, "DELETE FROM t WHERE id < 25"], 25),
    "few_and_delete_of_old": ([FEW, "DELETE FROM t WHERE id = 3"], 1),
    "only_inserts": ([MANY, FEW], 0),
}


def read_newest(lake: Lake) -> LakeChange:
    newest = lake.newest()
    ((table_id,),) = lake.sql("SELECT table_id FROM ducklake_table WHERE table_name = 't' AND end_snapshot IS NULL")
    with lake.services.database.reading() as cursor:
        (change,) = native.read_changes(cursor, table_id, newest - 1, newest)
    return change


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("transaction", TRANSACTIONS)
def test_readers_agree_on_what_a_transaction_did(lake: Lake, transaction: str, version: int) -> None:
    lake.run("CREATE TABLE t (id BIGINT, name VARCHAR)", "INSERT INTO t SELECT i, 'file' FROM range(30) r(i)")
    lake.run("INSERT INTO t VALUES (50, 'inlined'), (51, 'inlined')")
    lake.upgrade(version)
    truth = {lake.newest(): lake.duck_rows()}
    writes, removed = TRANSACTIONS[transaction]
    lake.run("BEGIN", *writes, "COMMIT")
    truth[lake.newest()] = lake.duck_rows()
    ((before,), (after,)) = (lake.one(f"SELECT count(*) FROM t AT (VERSION => {at})") for at in truth)

    change = read_newest(lake)
    assert (bool(change.kinds & ADDITION_KINDS), bool(change.kinds & REMOVAL_KINDS)) == (True, removed > 0)
    write_all_changes(lake.services)  # before the table is loaded: the changelog has what DuckLake says alone
    with lake.services.database.reading() as cursor:
        logged = read_changes(cursor, START_POSITION, 100, WantedChanges())[-1]
    assert (logged.snapshot_id, logged.kind) == (lake.newest(), ChangeKind.OVERWRITE if removed else ChangeKind.APPEND)
    metrics = logged.facts["metrics"]
    assert metrics.get("deleted-records", 0) == removed
    assert metrics["added-records"] - removed == after - before
    summary = lake.metadata().snapshots[-1].summary
    assert summary["operation"] == logged.kind.value
    assert int(summary["added-records"]) == metrics["added-records"]
    assert int(summary.get("added-position-deletes", 0)) == removed
    assert_same_rows(lake, truth=truth)


def test_created_table_had_removals(lake: Lake) -> None:
    lake.run("BEGIN", "CREATE TABLE t AS SELECT i AS id FROM range(30) r(i)", "DELETE FROM t WHERE id < 5", "COMMIT")
    assert read_newest(lake).kinds == {"created_table", "inserted_into_table", "deleted_from_table"}
    write_all_changes(lake.services)
    with lake.services.database.reading() as cursor:
        logged = read_changes(cursor, START_POSITION, 100, WantedChanges())[-1]
    assert logged.facts["kinds"] == ["create-table", "overwrite"]
    assert (logged.facts["metrics"]["added-records"], logged.facts["metrics"]["deleted-records"]) == (30, 5)
    assert_same_rows(lake)
