"""In format version 3 both sides know a row by the same id, and by the same number of the snapshot that changed it."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from duckicelake.storage.protocol import ObjectStore
from tests.support.lakes import assert_same_rows
from tests.support.row_lineage import lineage

STATEMENTS = [
    "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    "INSERT INTO t SELECT i, 'x' FROM range(100, 130) r(i)",
    "DELETE FROM t WHERE id = 105",
    "UPDATE t SET name = 'few' WHERE id IN (1, 110)",
    "UPDATE t SET name = 'many' WHERE id >= 115",
    "DELETE FROM t WHERE id = 2",
    "CALL ducklake_flush_inlined_data('lake')",
    "DELETE FROM t WHERE id > 120",
    "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.01)",
    "INSERT INTO t SELECT i, 'x' FROM range(200, 230) r(i)",
    "CALL ducklake_merge_adjacent_files('lake')",
    "UPDATE t SET name = 'late' WHERE id = 201",
]


@pytest.fixture
def lake(lake):
    lake.run("CREATE TABLE t (id BIGINT, name VARCHAR)")
    lake.upgrade(3)
    return lake


def assert_same_lineage(lake):
    metadata = lake.metadata()
    assert metadata.format_version == 3
    assert lineage(lake.static()) == sorted(lake.duck.sql("SELECT rowid, snapshot_id FROM t").fetchall())
    assert [(metadata.next_row_id,)] == lake.sql("SELECT next_row_id FROM ducklake_table_stats")
    following = 0
    for snapshot in metadata.snapshots:
        assert snapshot.first_row_id >= following
        following = snapshot.first_row_id + snapshot.added_rows
    assert following <= metadata.next_row_id


@pytest.mark.parametrize("mode", ["client", "ducklake"])
def test_rows_keep_their_numbers_through_every_statement(lake, mode):
    lake = replace(lake, services=replace(lake.services, snapshot_ids=mode))
    for statement in STATEMENTS:
        lake.run(statement)
        assert_same_lineage(lake)
    assert_same_rows(lake)


def test_rows_keep_their_numbers_where_many_snapshots_are_seen_at_once(lake):
    lake.run(*STATEMENTS)
    assert_same_lineage(lake)
    assert_same_rows(lake)


def test_row_ids_of_rows_that_no_one_saw_are_not_given_again(lake):
    lake.run("INSERT INTO t VALUES (1, 'a')")
    before = lake.metadata()
    lake.run("INSERT INTO t VALUES (2, 'b')", "DELETE FROM t WHERE id = 2")
    after = lake.metadata()
    assert (before.next_row_id, after.next_row_id) == (1, 2)
    assert_same_lineage(lake)


def test_table_that_is_upgraded_keeps_the_row_ids_that_ducklake_gave(lake):
    lake.run("CREATE TABLE old (id BIGINT, name VARCHAR)", "INSERT INTO old VALUES (1, 'a')")
    lake.run("INSERT INTO old SELECT i, 'x' FROM range(20) r(i)", "DELETE FROM old WHERE id = 3")
    assert lake.metadata("old").format_version == 2
    lake.commit({"action": "upgrade-format-version", "format-version": 3}, table="old")
    assert lake.metadata("old").next_row_id == 21
    lake.run("UPDATE old SET name = 'y' WHERE id = 1", "INSERT INTO old VALUES (50, 'z')")
    assert [row for row, _ in lineage(lake.static("old"))] == [
        row for (row,) in sorted(lake.duck.sql("SELECT rowid FROM old").fetchall())
    ]
    assert_same_rows(lake, "old")


def test_rows_that_come_back_by_a_rollback_have_their_numbers_still(lake):
    lake.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')", "INSERT INTO t SELECT i, 'x' FROM range(10, 40) r(i)")
    main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
    then = lake.metadata().current_snapshot_id
    query = "SELECT rowid, snapshot_id, id, name FROM t ORDER BY id"
    before = lake.duck.sql(query).fetchall()
    lake.run("UPDATE t SET name = 'y'", "DELETE FROM t WHERE id = 2")
    lake.metadata()
    lake.commit({**main, "snapshot-id": then})
    rolled_back = lake.duck.sql(query).fetchall()
    assert [row[0] for row in rolled_back] == [row[0] for row in before]
    assert [row[2:] for row in rolled_back] == [row[2:] for row in before]
    assert rolled_back[:2] == before[:2]  # files of inlined rows say their snapshots themselves
    lake.run("DELETE FROM t WHERE id = 1", "UPDATE t SET name = 'z' WHERE id = 11")
    assert [row for row, _ in lineage(lake.static())] == [
        row for (row,) in sorted(lake.duck.sql("SELECT rowid FROM t").fetchall())
    ]
    assert_same_rows(lake)


def write_twice(first):
    """Write rows into a file by a transaction that inserts them and updates them: DuckDB keeps its ids of them."""
    rows = f"INSERT INTO t BY NAME SELECT i AS id, 'a' AS name FROM range({first}, {first + 20}) r(i)"
    return ["BEGIN", rows, f"UPDATE t SET name = 'b' WHERE id >= {first}", "COMMIT"]


REWRITE = "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.01)"


@pytest.mark.parametrize("is_seen_at_once", [True, False])
@pytest.mark.parametrize(
    ("later", "count"),
    [
        ([], 40),
        (["UPDATE t SET name = 'c' WHERE id = 3"], 40),
        (["UPDATE t SET name = 'c' WHERE id < 15"], 40),
        (["BEGIN", "INSERT INTO t SELECT i, 'a' FROM range(200, 220) r(i)", "UPDATE t SET name = 'd'", "COMMIT"], 60),
        (["DELETE FROM t WHERE id IN (2, 105)"], 38),
        (["CALL ducklake_merge_adjacent_files('lake')", "DELETE FROM t WHERE id = 4"], 39),
        (["ALTER TABLE t ADD COLUMN u UTINYINT", *write_twice(300)], 60),
    ],
    ids=["none", "inlined update", "update", "all once more", "deletes", "merge", "other type"],
)
def test_rows_that_a_transaction_wrote_twice_have_row_ids_of_their_own(lake, later, count, is_seen_at_once):
    for statement in (*write_twice(0), *write_twice(100), *later):
        lake.run(statement)
        if not is_seen_at_once:
            lake.metadata()
    row_ids = [row_id for row_id, _ in lineage(lake.static())]
    assert (len(row_ids), len(set(row_ids))) == (count, count)
    assert max(row_ids) < lake.metadata().next_row_id
    assert_same_rows(lake)


def test_rows_that_a_transaction_wrote_twice_have_row_ids_of_their_own_after_a_rewrite_by_duckdb(lake):
    lake.run(*write_twice(0), "DELETE FROM t WHERE id = 3", REWRITE, *write_twice(100), "DELETE FROM t WHERE id = 104")
    lake.run(REWRITE, "INSERT INTO t SELECT i, 'x' FROM range(500, 520) r(i)")
    row_ids = [row_id for row_id, _ in lineage(lake.static())]
    assert (len(row_ids), len(set(row_ids))) == (58, 58)
    assert_same_rows(lake)
    assert [(lake.metadata().next_row_id,)] == lake.sql("SELECT next_row_id FROM ducklake_table_stats")


@dataclass
class NotingStore:
    """A store that notes which data files are read from this machine's disk."""

    store: ObjectStore
    asked: list[str] = field(default_factory=list)

    def local_path(self, location: str) -> Path | None:
        self.asked += [location] if location.endswith(".parquet") else []
        return self.store.local_path(location)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def test_files_that_hold_nothing_but_their_columns_are_not_read(lake):
    """A footer costs a store's answer, and most of DuckDB's files hold no row ids."""
    store = NotingStore(lake.services.store)
    lake = replace(lake, services=replace(lake.services, store=store))
    lake.run("ALTER TABLE t ADD COLUMN more STRUCT(a INTEGER[], b VARCHAR)")
    lake.run("INSERT INTO t SELECT i, 'x' || i, {'a': [i, 2], 'b': NULL} FROM range(150000) r(i)")
    lake.metadata()
    assert store.asked == []
    lake.run("UPDATE t SET name = 'y' WHERE id < 100")
    lake.metadata()
    assert store.asked
