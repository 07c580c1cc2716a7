"""In format version 3 both sides know a row by the same id, and by the same number of the snapshot that changed it."""

from dataclasses import replace

import pytest

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
