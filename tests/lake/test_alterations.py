"""Changes of a table by Iceberg clients are DuckLake rows as the extension itself would write them."""

from datetime import date, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DateType, DoubleType, ListType, LongType, StringType, StructType
from pyiceberg.types import NestedField as Field

from tests.support.lakes import assert_same_rows, iceberg_rows

EVERY_TYPE = (
    "id BIGINT, a BOOLEAN, b INTEGER, c FLOAT, d DOUBLE, e DECIMAL(9,2), f DATE, g TIME, h TIMESTAMP, i TIMESTAMPTZ,"
    " j VARCHAR, k UUID, l BLOB, s STRUCT(x INTEGER, y VARCHAR), m MAP(VARCHAR, INTEGER), n INTEGER[]"
)
ALTERATIONS = {
    "add": (lambda u: u.add_column("note", StringType()), "ADD COLUMN note VARCHAR"),
    "add nested": (lambda u: u.add_column(("s", "z"), LongType()), "ADD COLUMN s.z BIGINT"),
    "rename": (lambda u: u.rename_column("b", "bee"), "RENAME COLUMN b TO bee"),
    "rename nested": (lambda u: u.rename_column("s.y", "why"), "RENAME COLUMN s.y TO why"),
    "drop": (lambda u: u.delete_column("j"), "DROP COLUMN j"),
    "drop struct": (lambda u: u.delete_column("s"), "DROP COLUMN s"),
    "widen": (lambda u: u.update_column("b", LongType()), "ALTER COLUMN b SET DATA TYPE BIGINT"),
    "widen float": (lambda u: u.update_column("c", DoubleType()), "ALTER COLUMN c SET DATA TYPE DOUBLE"),
    "add list": (
        lambda u: u.add_column("deep", StructType(Field(1, "p", ListType(2, StringType())))),
        "ADD COLUMN deep STRUCT(p VARCHAR[])",
    ),
}  # fmt: skip


def newest_inlined_table(lake, table):
    """Columns and types of the table that DuckDB inlines its next rows into, and the schema version it is for."""
    ((name, version),) = lake.sql(
        "SELECT i.table_name, i.schema_version FROM ducklake_inlined_data_tables i"
        " JOIN ducklake_table t USING (table_id)"
        " WHERE t.table_name = %s AND t.end_snapshot IS NULL ORDER BY i.schema_version DESC LIMIT 1", table,
    )  # fmt: skip
    columns = lake.sql(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
        name,
    )
    return columns, version


def live_columns(lake, table):
    return lake.sql(
        "SELECT column_id, column_order, column_name, column_type, parent_column FROM ducklake_column"
        " JOIN ducklake_table t USING (table_id) WHERE table_name = %s AND t.end_snapshot IS NULL"
        " AND ducklake_column.end_snapshot IS NULL ORDER BY 1", table,
    )  # fmt: skip


def assert_protocol(lake):
    """What DuckDB relies on in every catalog: contiguous ids, growing counters, versions that are named."""
    rows = lake.sql(
        "SELECT snapshot_id, schema_version, next_catalog_id, next_file_id FROM ducklake_snapshot ORDER BY 1"
    )
    assert [row[0] for row in rows] == list(range(len(rows)))
    for earlier, later in pairwise(rows):
        assert later[1] - earlier[1] in (0, 1)
        assert later[2] >= earlier[2]
        assert later[3] >= earlier[3]
    assert lake.sql("SELECT count(*) FROM ducklake_snapshot_changes") == [(len(rows),)]
    assert lake.sql("SELECT count(*) FROM (SELECT data_file_id FROM ducklake_data_file WHERE end_snapshot IS NULL AND"
                    " data_file_id >= (SELECT max(next_file_id) FROM ducklake_snapshot)) f") == [(0,)]  # fmt: skip
    lake.duck.execute("SELECT snapshot_id FROM ducklake_snapshots('lake')").fetchall()


@pytest.mark.parametrize("name", ALTERATIONS)
def test_alter_by_pyiceberg_leaves_what_duckdbs_own_alter_leaves(lake, catalog, name):
    change, native = ALTERATIONS[name]
    lake.run(f"CREATE TABLE u ({EVERY_TYPE})", f"ALTER TABLE u {native}", f"CREATE TABLE t ({EVERY_TYPE})")
    lake.run(
        "INSERT INTO t (id, s) VALUES (1, {'x': 1, 'y': 'one'})", "INSERT INTO t (id) SELECT i FROM range(2, 30) r(i)"
    )
    table = catalog.load_table("main.t")

    with table.update_schema(allow_incompatible_changes=True) as update:
        change(update)

    assert live_columns(lake, "t") == live_columns(lake, "u")
    columns, version = newest_inlined_table(lake, "t")
    assert columns == newest_inlined_table(lake, "u")[0]
    newest = lake.sql(
        "SELECT schema_version, changes_made FROM ducklake_snapshot JOIN ducklake_snapshot_changes USING (snapshot_id)"
        " ORDER BY snapshot_id DESC LIMIT 1"
    )
    assert newest == [(version, f"altered_table:{table_id(lake)}")]
    assert (version,) in lake.sql(
        "SELECT schema_version FROM ducklake_schema_versions WHERE table_id = %s", table_id(lake)
    )
    lake.run("INSERT INTO t (id) VALUES (100)", "UPDATE t SET c = 2.5 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    assert_same_rows(lake)
    table.refresh().append(table.scan(limit=3).to_arrow())
    assert_same_rows(lake)
    lake.run("CALL ducklake_flush_inlined_data('lake')")
    assert_same_rows(lake)
    assert_protocol(lake)


def table_id(lake, table="t"):
    ((found,),) = lake.sql("SELECT table_id FROM ducklake_table WHERE table_name = %s AND end_snapshot IS NULL", table)
    return found


def test_moved_columns_keep_their_values_whoever_writes(lake, catalog):
    lake.run("CREATE TABLE t (a INTEGER, b INTEGER, c VARCHAR)", "INSERT INTO t VALUES (1, 2, 'x')")
    table = catalog.load_table("main.t")
    with table.update_schema() as update:
        update.move_first("b").move_after("a", "c").add_column("d", LongType())
    lake.run("INSERT INTO t (a, b, c, d) VALUES (3, 4, 'y', 5)", "UPDATE t SET d = 6 WHERE a = 1")

    read = catalog.load_table("main.t").scan().to_arrow().select(["a", "b", "c", "d"]).to_pylist()

    expected = [{"a": 1, "b": 2, "c": "x", "d": 6}, {"a": 3, "b": 4, "c": "y", "d": 5}]
    assert sorted(read, key=str) == expected
    assert sorted(lake.duck.sql("SELECT a, b, c, d FROM t").fetchall()) == [(1, 2, "x", 6), (3, 4, "y", 5)]


def test_next_column_of_duckdb_never_takes_an_id_that_iceberg_gave_out(lake, catalog):
    table = catalog.create_table("main.t", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    with table.update_schema() as update:
        update.add_column("c", LongType())
    with table.update_schema() as update:
        update.delete_column("c")
    lake.run("INSERT INTO t VALUES (1, 2)", "CALL ducklake_expire_snapshots('lake', older_than => now())")

    lake.run("ALTER TABLE t ADD COLUMN d VARCHAR")

    assert catalog.load_table("main.t").schema().find_field("d").field_id == 4
    assert_protocol_after_expiry(lake)
    assert_same_rows(lake)


def assert_protocol_after_expiry(lake):
    lake.duck.execute("SELECT snapshot_id FROM ducklake_snapshots('lake')").fetchall()


def test_partitioning_by_pyiceberg_partitions_duckdbs_files(lake, catalog):
    table = catalog.create_table(
        "main.t",
        Schema(Field(1, "id", LongType()), Field(2, "day", DateType()), Field(3, "s", StringType())),
        partition_spec=PartitionSpec(
            PartitionField(1, 1000, BucketTransform(4), "bucket"), PartitionField(2, 1001, DayTransform(), "d")
        ),
    )
    rows = "SELECT i, DATE '1969-12-30' + i::INT, 's' || i FROM range(6) r(i)"
    lake.run(f"INSERT INTO t {rows}", "CALL lake.set_option('data_inlining_row_limit', 0)", f"INSERT INTO t {rows}")

    for number in range(6):
        assert lake.one(f"SELECT count(*) FROM t WHERE id = {number}") == (2,)
        assert len(iceberg_rows_where(lake, f"id = {number}")) == 2
        assert len(iceberg_rows_where(lake, f"day = '{date(1969, 12, 30) + timedelta(days=number)}'")) == 2
    with table.refresh().update_spec() as update:
        update.remove_field("bucket").remove_field("d").add_field("s", IdentityTransform(), "s_id")
    table.append(lake.duck.sql(rows).to_arrow_table().rename_columns(["id", "day", "s"]))
    lake.run(f"INSERT INTO t {rows}")
    assert_same_rows(lake)
    assert lake.one("SELECT count(*) FROM t WHERE id = 3 AND s = 's3'") == (4,)
    assert len(iceberg_rows_where(lake, "s = 's3'")) == 4
    assert_protocol(lake)


def iceberg_rows_where(lake, where):
    return lake.static().scan(row_filter=where).to_arrow().to_pylist()


def test_rename_across_namespaces_keeps_all_files_readable_and_writable(lake, catalog):
    lake.run(
        "CREATE SCHEMA other",
        "CREATE TABLE t (id BIGINT)",
        "INSERT INTO t FROM range(20)",
        "INSERT INTO t VALUES (100)",
    )
    table = catalog.load_table("main.t")
    table.append(pa.table({"id": [200]}))
    lake.run("DELETE FROM t WHERE id < 3")

    catalog.rename_table("main.t", "other.moved")

    assert_same_rows(lake, "moved", "other")
    lake.run("INSERT INTO other.moved FROM range(300, 320)", "DELETE FROM other.moved WHERE id IN (4, 100, 200, 301)")
    assert_same_rows(lake, "moved", "other")
    lake.run("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')",
             "CALL ducklake_expire_snapshots('lake', older_than => now())",
             "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")  # fmt: skip
    assert_same_rows(lake, "moved", "other")
    assert not catalog.table_exists("main.t")


@pytest.mark.parametrize("purge", [False, True])
def test_dropped_tables_files_go_with_duckdbs_cleanup_only_if_purged(lake, catalog, warehouse, purge):
    table = catalog.create_table("main.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2]}))
    lake.run("INSERT INTO t FROM range(20)", "DELETE FROM t WHERE id < 3", "CREATE TABLE kept AS FROM range(50)")
    files = set(table.refresh().inspect.files().to_pydict()["file_path"])
    location = catalog.load_table("main.t").metadata_location

    (catalog.purge_table if purge else catalog.drop_table)("main.t")
    lake.run("CALL ducklake_expire_snapshots('lake', older_than => now())",
             "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")  # fmt: skip

    store = lake.services.store
    assert {store.exists(path) for path in {*files, location}} == {not purge}
    assert lake.one("SELECT count(*) FROM kept") == (50,)
    catalog.create_table("main.t", pa.schema([("id", pa.int64())])).append(pa.table({"id": [7]}))
    assert_same_rows(lake)


def test_tokens_of_our_commits_are_those_that_duckdb_checks_conflicts_by(lake, catalog):
    table = catalog.create_table("main.t", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    first = lake.newest()
    number = table_id(lake)
    table.append(pa.table({"id": range(5), "s": ["x"] * 5}))
    table.delete("id = 2")
    with table.transaction() as transaction:
        transaction.set_properties(colour="red")
    lake.run("INSERT INTO t VALUES (10, 'inlined'), (11, 'too')")
    table.refresh().delete("id >= 10")
    table.delete("true")

    made = [text for (text,) in lake.sql(
        "SELECT changes_made FROM ducklake_snapshot_changes WHERE snapshot_id >= %s ORDER BY snapshot_id", first
    )]  # fmt: skip
    assert made[:2] == ['created_table:"main"."t"', f"inserted_into_table:{number}"]
    assert set(made[2].split(",")) == {f"inserted_into_table:{number}", f"deleted_from_table:{number}"}
    assert made[3] == f"inlined_insert:{number}"
    assert set(made[4].split(",")) == {f"deleted_from_table:{number}", f"inlined_delete:{number}"}
    assert made[5] == f"deleted_from_table:{number}"
    assert_protocol(lake)


@pytest.mark.parametrize("name", ["x" * 70, "ü" * 40, "ROW_ID", "begin_snapshot", 'we "quote" it', "a.b", "_row_id"])
def test_columns_of_any_name_can_be_added_to_a_table_with_inlined_rows(lake, catalog, name):
    lake.run("CREATE TABLE t (id BIGINT)", "INSERT INTO t VALUES (1)")
    table = catalog.load_table("main.t")

    with table.update_schema() as update:
        update.add_column((name,), LongType())

    lake.run("INSERT INTO t VALUES (2, 3)", "DELETE FROM t WHERE id = 1")
    assert_same_rows(lake)
    table.refresh().append(pa.table({"id": [4], name: [5]}))
    lake.run("INSERT INTO t FROM (SELECT 6, 7 FROM range(20))")
    assert_same_rows(lake)


def test_column_default_of_duckdb_survives_a_schema_change_by_pyiceberg(lake, catalog):
    lake.run(
        "CREATE TABLE t (id BIGINT)",
        "INSERT INTO t FROM range(20)",
        "ALTER TABLE t ADD COLUMN colour VARCHAR DEFAULT 'grey'",
        "INSERT INTO t VALUES (100, 'red')",
    )

    with catalog.load_table("main.t").update_schema() as update:
        update.add_column("size", LongType())

    assert_same_rows(lake, "t")
    lake.run("INSERT INTO t (id, size) VALUES (101, 7)")
    assert_same_rows(lake, "t")
    assert lake.one("SELECT count(*) FILTER (colour = 'grey'), count(*) FILTER (colour = 'red') FROM t") == (21, 1)


def test_rename_may_change_the_case_of_a_table_s_own_name(lake, catalog):
    lake.run("CREATE TABLE t AS FROM range(20) AS r(id)")
    catalog.rename_table("main.t", "main.T")
    assert_same_rows(lake, "T")
    assert catalog.list_tables("main") == [("main", "T")]
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table("main.T", "main.T")


def test_columns_in_capitals_are_served_though_duckdb_inlines_them_under_other_names(lake):
    lake.run('CREATE TABLE t (Id BIGINT, "We Ird" INTEGER, SELECT_ VARCHAR)', "INSERT INTO t VALUES (1, 2, 'x')")
    assert_same_rows(lake)
    lake.run(
        "ALTER TABLE t ADD COLUMN ÜBER INTEGER", "INSERT INTO t VALUES (2, 3, 'y', 4)", "DELETE FROM t WHERE id = 1"
    )
    assert_same_rows(lake)


def test_columns_that_differ_by_the_case_of_letters_beyond_ascii_are_distinguished(lake):
    lake.run('CREATE TABLE t (id BIGINT, "Ü" VARCHAR, "ü" VARCHAR)', "INSERT INTO t VALUES (1, 'large', 'small')")

    assert iceberg_rows(lake.static()) == [(1, "large", "small")]
    assert_same_rows(lake)
