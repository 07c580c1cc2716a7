"""Tables of format version 3 that PyIceberg writes: the rows are right, and keep their numbers as the spec demands."""

import pyarrow as pa
import pyiceberg
import pytest
from pyiceberg.types import IntegerType

from tests.pyiceberg_v3.rows import SCHEMA, newest, numbers, row_ids, rows
from tests.support.lakes import assert_same_rows

pytestmark = pytest.mark.filterwarnings("ignore:Merge on read is not yet supported:UserWarning")

RETRIES = pytest.mark.skipif(pyiceberg.__version__ == "0.11.1", reason="PyIceberg 0.11 leaves retries to its caller")


def test_appended_rows_get_the_next_row_ids(lake, table):
    table.append(rows({1: "a", 2: "b"}))
    first = newest(table)
    table.append(rows({3: "c"}))
    assert numbers(lake, table) == {1: (0, first), 2: (1, first), 3: (2, newest(table))}
    assert table.metadata.next_row_id == 3
    assert [(each.first_row_id, each.added_rows) for each in table.snapshots()] == [(0, 2), (2, 1)]


def test_rows_that_stay_when_others_of_their_file_are_deleted_keep_both_numbers(lake, table):
    table.append(rows({1: "a", 2: "b", 3: "c"}))
    before = numbers(lake, table)
    table.delete("id = 2")
    assert numbers(lake, table) == {1: before[1], 3: before[3]}
    assert_same_rows(lake)


def test_row_that_is_copied_a_second_time_keeps_both_numbers(lake, table):
    table.append(rows({1: "a", 2: "b", 3: "c"}))
    before = numbers(lake, table)
    table.delete("id = 1")
    table.delete("id = 2")
    assert numbers(lake, table) == {3: before[3]}


def test_upsert_keeps_the_row_id_of_a_changed_row_and_renews_its_number(lake, table):
    table.append(rows({1: "a", 2: "b", 3: "c"}))
    before = numbers(lake, table)
    result = table.upsert(rows({4: "new", 2: "B", 3: "c"}), join_cols=["id"])
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    after = numbers(lake, table)
    assert (after[1], after[3]) == (before[1], before[3])
    assert after[2][0] == before[2][0]
    assert after[2][1] > before[2][1]
    assert after[4][0] >= 3
    assert_same_rows(lake)


def test_upsert_by_identifier_fields_keeps_row_ids(lake, catalog):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    table = catalog.create_table("main.t", schema, properties={"format-version": "3"})
    with table.update_schema() as update:
        update.set_identifier_fields("id")
    table.append(pa.table({"id": [1, 2], "name": ["a", "b"]}, schema))
    table.upsert(pa.table({"id": [2], "name": ["B"]}, schema))
    assert row_ids(lake, table) == {1: 0, 2: 1}


def test_upsert_of_a_key_that_several_rows_have_is_refused(table):
    table.append(rows({1: "a"}))
    table.append(rows({1: "b"}))
    with pytest.raises(ValueError, match="Target table has duplicate rows"):
        table.upsert(rows({1: "c"}), join_cols=["id"])


def test_upsert_of_rows_with_one_key_is_refused(table):
    table.append(rows({1: "a"}))
    with pytest.raises(ValueError, match="Duplicate rows found in source"):
        table.upsert(pa.concat_tables([rows({1: "b"}), rows({1: "c"})]), join_cols=["id"])


def test_upsert_that_only_inserts_writes_new_rows(lake, table):
    table.append(rows({1: "a"}))
    table.upsert(rows({1: "x", 2: "b"}), join_cols=["id"], when_matched_update_all=False)
    assert row_ids(lake, table) == {1: 0, 2: 1}
    assert lake.duck_rows() == [(1, "a"), (2, "b")]


def test_overwrite_replaces_rows_by_new_ones_and_leaves_the_others(lake, table):
    table.append(rows({1: "a", 2: "b", 3: "c"}))
    before = numbers(lake, table)
    table.overwrite(rows({2: "B"}), overwrite_filter="id = 2")
    after = numbers(lake, table)
    assert (after[1], after[3]) == (before[1], before[3])
    assert after[2][0] > 2
    table.overwrite(rows({9: "z"}))
    assert lake.duck_rows() == [(9, "z")]
    assert_same_rows(lake)


def test_dynamic_partition_overwrite_leaves_other_partitions(lake, partitioned):
    partitioned.append(rows({1: "a", 2: "b", 3: "a"}))
    before = numbers(lake, partitioned)
    partitioned.dynamic_partition_overwrite(rows({4: "b", 5: "c"}))
    after = numbers(lake, partitioned)
    assert (after[1], after[3]) == (before[1], before[3])
    assert min(after[4][0], after[5][0]) > 2
    assert_same_rows(lake)


def test_rows_of_one_transaction_get_their_numbers_when_it_commits(lake, table):
    """Before, they only have provisional ones, which a copy must not carry on."""
    table.append(rows({1: "a"}))
    with table.transaction() as transaction:
        transaction.append(rows({2: "b", 3: "c", 4: "d"}))
        transaction.delete("id = 3")
        transaction.upsert(rows({1: "A", 4: "D"}), join_cols=["id"])
    after = numbers(lake, table)
    assert after[1][0] == 0
    assert len({row_id for row_id, _ in after.values()}) == 3
    assert max(row_id for row_id, _ in after.values()) < table.metadata.next_row_id
    assert_same_rows(lake)


@RETRIES
def test_append_that_is_tried_again_takes_row_ids_anew(lake, catalog, table):
    stale = catalog.load_table("main.t")
    table.append(rows({1: "a", 2: "b"}))
    stale.append(rows({3: "c"}))
    assert row_ids(lake, table) == {1: 0, 2: 1, 3: 2}


@RETRIES
def test_delete_that_is_tried_again_still_copies_numbers(lake, catalog, table):
    table.append(rows({1: "a", 2: "b"}))
    stale = catalog.load_table("main.t")
    table.append(rows({30: "c"}))
    before = numbers(lake, table)
    stale.delete("id = 1")
    assert numbers(lake, table) == {2: before[2], 30: before[30]}


def test_merged_manifests_keep_row_ids(lake, table):
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    for key in range(4):
        table.append(rows({key: "x", key + 10: "y"}))
    assert row_ids(lake, table) == {0: 0, 10: 1, 1: 2, 11: 3, 2: 6, 12: 7, 3: 12, 13: 13}
    assert_same_rows(lake)


def test_deletion_vector_ends_with_its_data_file(lake, table):
    table.append(rows(dict.fromkeys(range(20), "x")))
    table.append(rows(dict.fromkeys(range(20, 40), "y")))
    lake.run("DELETE FROM t WHERE id IN (3, 5, 25)")
    before = numbers(lake, table)
    assert before.keys() == set(range(40)) - {3, 5, 25}
    table.delete("id = 7")
    assert numbers(lake, table) == {key: number for key, number in before.items() if key != 7}
    summary = table.current_snapshot().summary.additional_properties
    assert (summary["removed-dvs"], summary["removed-position-deletes"]) == ("1", "2")
    assert (summary["total-delete-files"], summary["total-position-deletes"]) == ("1", "1")
    assert_same_rows(lake)


def test_rows_that_duckdb_inlined_or_changed_keep_their_numbers(lake, table):
    table.append(rows({1: "a", 2: "b", 3: "c"}))
    lake.run("INSERT INTO t VALUES (4, 'd'), (5, 'e')", "UPDATE t SET name = 'C' WHERE id = 3")
    before = numbers(lake, table)
    table.delete("id IN (1, 5)")
    assert numbers(lake, table) == {key: before[key] for key in (2, 3, 4)}
    assert_same_rows(lake)


def test_branch_takes_row_ids_of_the_table(lake, table):
    table.append(rows({1: "a", 2: "b"}))
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    table.append(rows({3: "c"}), branch="audit")
    table.delete("id = 1", branch="audit")
    table.append(rows({4: "d"}))
    assert row_ids(lake, table) == {1: 0, 2: 1, 4: table.metadata.next_row_id - 1}
    assert table.metadata.next_row_id > 3
    assert sorted(table.scan().use_ref("audit").to_arrow()["id"].to_pylist()) == [2, 3]


def test_upgraded_table_gives_row_ids_with_its_first_commit(lake, catalog):
    table = catalog.create_table("main.t", SCHEMA)
    table.append(rows({1: "a", 2: "b"}))
    table.append(rows({3: "c"}))
    table.scan().to_arrow()
    with table.transaction() as transaction:
        transaction.upgrade_table_version(3)
    assert table.refresh().format_version == 3
    table.append(rows({4: "d"}))
    table.delete("id = 2")
    found = lake.duck.sql("SELECT id, rowid FROM lake.t ORDER BY id").fetchall()
    assert found == [(1, 0), (3, 2), (4, 3)]
    assert_same_rows(lake)


def test_upgrade_and_delete_in_one_transaction(lake, catalog):
    table = catalog.create_table("main.t", SCHEMA)
    table.append(rows({1: "a", 2: "b"}))
    with table.transaction() as transaction:
        transaction.upgrade_table_version(3)
        transaction.delete("id = 2")
    assert table.refresh().format_version == 3
    assert lake.duck_rows() == [(1, "a")]


def test_table_created_in_a_transaction_is_of_version_3(lake, catalog):
    with catalog.create_table_transaction("main.t", SCHEMA, properties={"format-version": "3"}) as transaction:
        transaction.append(rows({1: "a"}))
    table = catalog.load_table("main.t")
    assert table.format_version == 3
    assert row_ids(lake, table) == {1: 0}


def test_column_that_rows_lack_gets_its_write_default(lake, table):
    table.append(rows({1: "a"}))
    with table.update_schema() as update:
        update.add_column("legs", IntegerType(), default_value=4)
    with table.update_schema() as update:
        update.set_default_value("legs", 2)
    table.append(rows({2: "b"}))
    assert lake.duck_rows() == [(1, "a", 4), (2, "b", 2)]


def test_column_of_unknown_type_is_in_no_data_file(catalog):
    schema = SCHEMA.append(pa.field("nothing", pa.null()))
    table = catalog.create_table("main.t", schema, properties={"format-version": "3"})
    table.append(pa.table({"id": [1, 2], "name": ["a", "b"], "nothing": [None, None]}, schema))
    table.delete("id = 1")
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "name": "b", "nothing": None}]
    (file,) = table.inspect.files().to_pylist()
    assert file["readable_metrics"]["nothing"]["value_count"] is None


def test_table_of_version_2_is_written_as_without_the_patches(lake, catalog):
    table = catalog.create_table("main.t", SCHEMA)
    table.append(rows({1: "a", 2: "b"}))
    table.delete("id = 1")
    table.upsert(rows({2: "B"}), join_cols=["id"])
    (manifest, *_) = table.current_snapshot().manifests(table.io)
    (entry,) = manifest.fetch_manifest_entry(table.io)
    assert (len(manifest), len(entry.data_file)) == (15, 16)
    assert {(each.first_row_id, each.added_rows) for each in table.snapshots()} == {(None, None)}
    assert_same_rows(lake)
