"""What DuckDB deletes reaches Iceberg in the words of each format version: vectors, position deletes, or an upgrade."""

from dataclasses import replace
from pathlib import Path

import pytest

from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.tables import create_table
from duckicelake.iceberg.rest import CreateTableRequest
from tests.support.lakes import assert_same_rows
from tests.support.row_lineage import lineage, records

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "name", "type": "string", "required": False},
    ],
}
FIFTY = "INSERT INTO t SELECT i, 'x' FROM range(50) r(i)"
THIRTY_MORE = "INSERT INTO t SELECT i, 'y' FROM range(100, 130) r(i)"


def create(lake, format_version, name="t"):
    request = {"name": name, "schema": SCHEMA, "properties": {"format-version": str(format_version)}}
    create_table(lake.services, ("main",), CreateTableRequest.model_validate(request))


def summary(lake, *keys):
    """These counts of the current snapshot's summary."""
    found = lake.metadata().current_snapshot().summary
    return [int(found.get(key, "0")) for key in keys]


def delete_entries(lake):
    """Live delete files as the manifests list them, oldest first."""
    location = lake.metadata().current_snapshot().manifest_list
    lines = [line for line in records(location) if line["content"] == 1]
    entries = [entry for line in lines for entry in records(line["manifest_path"]) if entry["status"] != 2]
    return [entry["data_file"] for entry in sorted(entries, key=lambda entry: entry["sequence_number"])]


def list_of(lake):
    return Path(lake.metadata().current_snapshot().manifest_list.removeprefix("file:"))


def puffins(lake):
    return list(Path(lake.metadata().location.removeprefix("file:")).rglob("*.puffin"))


def test_each_snapshot_has_one_file_with_a_vector_for_each_data_file(lake):
    create(lake, 3)
    lake.run(FIFTY, THIRTY_MORE, "INSERT INTO t VALUES (1000, 'inlined'), (1001, 'inlined')")
    lake.metadata()
    lake.run("DELETE FROM t WHERE id IN (1, 2, 101, 1001)")
    vectors = delete_entries(lake)
    assert [(file["file_format"], file["record_count"]) for file in vectors] == [("PUFFIN", n) for n in (2, 1, 1)]
    assert len({file["file_path"] for file in vectors}) == len(puffins(lake)) == 1
    assert len({file["referenced_data_file"] for file in vectors}) == 3
    assert summary(lake, "added-dvs", "added-delete-files", "added-position-deletes") == [3, 3, 4]
    assert summary(lake, "total-delete-files", "total-position-deletes", "removed-dvs") == [3, 4, 0]
    assert lake.metadata().current_snapshot().operation == "delete"
    assert_same_rows(lake)


def test_later_vector_holds_all_that_was_deleted_and_replaces_the_earlier_one(lake):
    create(lake, 3)
    lake.run(FIFTY, THIRTY_MORE, "DELETE FROM t WHERE id IN (1, 101)")
    untouched = delete_entries(lake)[1]["referenced_data_file"]
    lake.run("DELETE FROM t WHERE id < 20")  # more than are inlined: DuckLake's delete file is cumulative, too
    first, second = delete_entries(lake)
    assert (first["referenced_data_file"], first["record_count"]) == (untouched, 1)
    assert second["record_count"] == 20
    assert summary(lake, "added-dvs", "removed-dvs", "added-position-deletes", "removed-position-deletes") == [
        *(1, 1, 20, 1)
    ]
    assert summary(lake, "total-delete-files", "total-position-deletes") == [2, 21]
    assert_same_rows(lake)


def test_deletes_of_several_snapshots_seen_at_once_leave_one_vector(lake):
    create(lake, 3)
    lake.run(FIFTY, *(f"DELETE FROM t WHERE id BETWEEN {i} AND {i + 10}" for i in (0, 11, 22)), THIRTY_MORE)
    lake.run("DELETE FROM t WHERE id = 49")
    (vector,) = delete_entries(lake)
    assert vector["record_count"] == 34
    assert [len(lake.metadata().snapshots), len(puffins(lake))] == [6, 4]
    assert_same_rows(lake)


def test_vector_leaves_with_its_data_file(lake):
    create(lake, 3)
    lake.run(FIFTY, THIRTY_MORE, "DELETE FROM t WHERE id < 20 OR id > 117", "DELETE FROM t WHERE id < 50")
    (vector,) = delete_entries(lake)
    assert vector["record_count"] == 12
    assert summary(lake, "removed-dvs", "deleted-data-files", "total-delete-files") == [1, 1, 1]
    lake.run("DELETE FROM t")
    assert delete_entries(lake) == []
    assert summary(lake, "total-delete-files", "total-position-deletes", "total-data-files") == [0, 0, 0]
    assert_same_rows(lake)


def test_file_of_vectors_is_kept_as_long_as_one_of_them_is_listed(lake):
    create(lake, 3)
    lake.run(FIFTY, THIRTY_MORE, "DELETE FROM t WHERE id IN (1, 101)")
    (shared,) = {file["file_path"] for file in delete_entries(lake)}
    local = Path(shared.removeprefix("file:"))
    lake.run("DELETE FROM t WHERE id = 2")
    expire_and_clean(lake)
    assert len({file["file_path"] for file in delete_entries(lake)}) == 2
    assert local.is_file()
    assert_same_rows(lake)
    lake.run("DELETE FROM t WHERE id = 102")
    lake.metadata()
    lake.run("INSERT INTO t VALUES (1000, 'after')")  # the snapshot that removes a file still names it
    expire_and_clean(lake)
    assert not local.exists()
    assert_same_rows(lake)


def expire_and_clean(lake):
    """Forget all snapshots but the current one, then have DuckDB delete what no one needs."""
    metadata = lake.metadata()
    old = [each.snapshot_id for each in metadata.snapshots if each.snapshot_id != metadata.current_snapshot_id]
    lake.commit({"action": "remove-snapshots", "snapshot-ids": old})
    lake.run("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")


def test_position_deletes_of_before_an_upgrade_are_taken_over_by_vectors(lake):
    create(lake, 2)
    lake.run(FIFTY, THIRTY_MORE, "DELETE FROM t WHERE id IN (1, 101)")
    (shared,) = delete_entries(lake)
    assert shared["file_format"] == "PARQUET"
    lake.upgrade(3)
    lake.run("DELETE FROM t WHERE id = 2")
    old, vector = delete_entries(lake)
    assert (old["file_path"], vector["file_format"], vector["record_count"]) == (shared["file_path"], "PUFFIN", 2)
    assert_same_rows(lake)
    lake.run("DELETE FROM t WHERE id = 102")
    assert [(file["file_format"], file["record_count"]) for file in delete_entries(lake)] == [("PUFFIN", 2)] * 2
    assert summary(lake, "removed-position-delete-files", "added-dvs", "removed-dvs") == [1, 1, 0]
    assert_same_rows(lake)


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_lists_of_before_an_upgrade_stay_as_they_are(lake, format_version):
    create(lake, format_version)
    lake.run(FIFTY, "INSERT INTO t VALUES (1000, 'inlined')")
    path = list_of(lake)
    written = path.read_bytes()
    assert f"format-version\x02{format_version}".encode() in written
    lake.upgrade(3)
    lake.run("DELETE FROM t WHERE id = 1")
    upgraded = list_of(lake)
    assert b"format-version\x023" in upgraded.read_bytes()
    path.unlink()
    upgraded.unlink()
    list_of(replace(lake, services=replace(lake.services, cache=TableCache())))
    assert path.read_bytes() == written
    assert_same_rows(lake)


def test_version_1_goes_on_as_such_while_rows_are_only_added(lake):
    create(lake, 1)
    lake.run(FIFTY, "INSERT INTO t VALUES (1000, 'inlined')", "ALTER TABLE t ADD COLUMN more INTEGER", "DELETE FROM t")
    assert [snapshot.sequence_number for snapshot in lake.metadata().snapshots] == [0, 0, 0]
    assert lake.metadata().format_version == 1
    assert lake.metadata().current_snapshot().operation == "delete"
    assert_same_rows(lake)


@pytest.mark.parametrize("statement", ["DELETE FROM t WHERE id = 1", "UPDATE t SET name = 'z' WHERE id < 30"])
def test_version_1_becomes_version_2_when_duckdb_deletes_rows(lake, statement):
    create(lake, 1)
    lake.run(FIFTY)
    assert lake.metadata().format_version == 1
    lake.run(statement)
    metadata = lake.metadata()
    assert (metadata.format_version, metadata.last_sequence_number) == (2, 1)
    assert [snapshot.sequence_number for snapshot in metadata.snapshots] == [0, 1]
    assert [file["file_format"] for file in delete_entries(lake)] == ["PARQUET"]
    assert_same_rows(lake)


def test_column_that_needs_version_3_brings_vectors_and_row_ids(lake):
    create(lake, 2)
    lake.run(FIFTY, THIRTY_MORE, "DELETE FROM t WHERE id IN (1, 101)")
    assert lake.metadata().format_version == 2
    lake.run("INSERT INTO t VALUES (1000, 'x')", "ALTER TABLE t ADD COLUMN moment TIMESTAMP_NS")
    lake.run("DELETE FROM t WHERE id IN (2, 102)", "INSERT INTO t VALUES (1001, 'y', NULL)")
    metadata = lake.metadata()
    assert metadata.format_version == 3
    assert [(file["file_format"], file["record_count"]) for file in delete_entries(lake)] == [("PUFFIN", 2)] * 2
    rows = lake.duck.sql("SELECT rowid FROM t ORDER BY rowid").fetchall()
    assert [row_id for row_id, _ in lineage(lake.static())] == [row_id for (row_id,) in rows]
    assert lake.sql("SELECT next_row_id FROM ducklake_table_stats") == [(metadata.next_row_id,)]
