"""Tables that both sides partition: values are exact, specs change, and filters find every row."""

import math
from datetime import datetime

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from duckicelake.iceberg.manifest.entry import ManifestContent
from tests.lake.iceberg_client import append, bound, commit, evolve, field, new_table
from tests.support.client import Draft, live
from tests.support.lakes import assert_same_rows


def partition_by(lake, *fields):
    spec = {"fields": [{"source-id": source, "name": name, "transform": t} for source, name, t in fields]}
    commit(lake, {"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1})


def partitions(lake):
    """(the transforms of its spec, its partition's values) of each live data file, as the manifests say them."""
    metadata = lake.metadata()
    specs = {spec.spec_id: [str(each.transform) for each in spec.fields] for spec in metadata.partition_specs}
    lines = [line for line in Draft(metadata.to_json()).parent_manifests if line.content is ManifestContent.DATA]
    found = [(specs[line.partition_spec_id], [*entry.data_file.partition]) for line in lines for entry in live(line)]
    return sorted(found, key=repr)


def where(lake, text):
    """How many rows PyIceberg finds, which skips files by their partitions and bounds."""
    return lake.static().scan(row_filter=text).to_arrow().num_rows


@pytest.mark.parametrize("version", [1, 2])
def test_dropped_partition_fields_of_version_1_stay_as_void(lake, version):
    new_table(lake, field(2, "s", "string"), field(3, "n", "int"), version=version)
    partition_by(lake, (2, "s", "identity"), (3, "n_bucket", "bucket[4]"))
    rows = "SELECT i, 's' || (i % 2), i % 3 FROM range(20) r(i)"
    lake.run(f"INSERT INTO t {rows}")
    partition_by(lake, (2, "s", "void"), (3, "n_bucket", "bucket[4]"))
    lake.run(f"INSERT INTO t {rows}", "INSERT INTO t VALUES (100, 'x', NULL)")
    assert_same_rows(lake)
    partition_by(lake, (2, "s", "void"), (3, "n_bucket", "void"))
    evolve(lake, lambda known: [each for each in known if each["name"] != "s"])

    lake.run("INSERT INTO t SELECT i, 7 FROM range(20) r(i)", "UPDATE t SET n = 8 WHERE id = 100")

    found = partitions(lake)
    assert {tuple(transforms) for transforms, _ in found} >= {
        ("identity", "bucket[4]"),
        ("void", "bucket[4]"),
        ("void", "void"),
    }
    assert all(values == [None, None] for transforms, values in found if transforms == ["void", "void"])
    assert where(lake, "n = 7") == 20
    assert lake.one("SELECT count(*) FROM t WHERE n = 1") == (where(lake, "n = 1"),) == (14,)
    assert_same_rows(lake)


NUMBERS = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, None]


def test_partitions_of_numbers_that_json_lacks_are_exact(lake):
    new_table(lake, field(2, "c", "double"), version=2)
    partition_by(lake, (2, "c", "identity"))
    for number in NUMBERS:
        metrics = {} if number is None or math.isnan(number) else {"lower_bounds": {2: bound("double", number)}}
        append(lake, {"id": pa.array([1]), "c": pa.array([number], pa.float64())}, partition=(number,), **metrics)
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0)")
    lake.run("INSERT INTO t VALUES (2, 'nan'), (2, 'inf'), (2, '-inf'), (2, 1.5), (2, NULL), (2, '-0.0'), (2, 0.0)")

    assert_same_rows(lake)
    found = [repr(values[0]) for transforms, values in partitions(lake) if transforms]
    assert sorted(found) == sorted([*map(repr, NUMBERS), "nan", "inf", "-inf", "1.5", "None"])
    assert where(lake, "c = 1.5") == where(lake, "c is nan") == 2
    assert where(lake, "c = 0.0") == lake.one("SELECT count(*) FROM t WHERE c = 0")[0] == 4
    lake.run("CALL ducklake_merge_adjacent_files('lake')")
    assert_same_rows(lake)


def test_nanoseconds_are_partitioned_alike_by_both_writers(lake):
    new_table(lake, field(2, "c", "timestamp_ns"))
    partition_by(lake, (2, "c_hour", "hour"), (2, "c_bucket", "bucket[4]"))
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0)")
    lake.run(
        "INSERT INTO t VALUES (1, '1969-12-31 23:59:59.999999999')", "INSERT INTO t VALUES (2, '2024-03-05 07:08:09')"
    )
    partition_by(lake, (2, "c_hour", "hour"))
    lake.run("INSERT INTO t VALUES (3, '1969-12-31 23:59:59.999999999'), (4, '2024-03-05 07:08:09'), (5, NULL)")

    found = partitions(lake)

    assert [values for transforms, values in found if transforms == ["hour"]] == [[-1], [474895], [None]]
    assert [transforms for transforms, _ in found].count([]) == 2  # DuckDB's buckets of nanoseconds are others
    assert lake.one("SELECT count(*) FROM t WHERE c < '1970-01-01'") == (2,)
    assert_same_rows(lake)


def test_bucket_on_a_type_that_duckdb_hashes_otherwise_skips_no_file_on_either_side(lake):
    lake.run("CREATE TABLE t (id BIGINT, n USMALLINT)", "ALTER TABLE t SET PARTITIONED BY (bucket(4, n))")
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0)", "INSERT INTO t SELECT i, i FROM range(50) r(i)")
    assert lake.metadata().spec().fields == ()
    partition_by(lake, (2, "n_bucket", "bucket[4]"))

    lake.run("INSERT INTO t SELECT i, i FROM range(50) r(i)")

    for number in range(0, 50, 7):
        assert lake.one(f"SELECT count(*) FROM t WHERE n = {number}") == (2,)
        assert where(lake, f"n = {number}") == 2
    assert_same_rows(lake)


def test_bucket_of_an_empty_table_is_declared_for_a_column_that_duckdb_then_hashes_alike(lake):
    lake.run(
        "CREATE TABLE t (id BIGINT, n USMALLINT, s TIMESTAMP_S)", "CALL lake.set_option('data_inlining_row_limit', 0)"
    )
    lake.metadata()
    partition_by(lake, (2, "n_bucket", "bucket[4]"), (3, "s_bucket", "bucket[4]"))

    lake.run("INSERT INTO t SELECT i, i, TIMESTAMP '2024-01-01' + to_days(i::INT) FROM range(50) r(i)")

    assert all(transforms == ["bucket[4]", "bucket[4]"] for transforms, _ in partitions(lake))
    for number in range(0, 50, 7):
        assert lake.one(f"SELECT count(*) FROM t WHERE n = {number}") == (1,) == (where(lake, f"n = {number}"),)
        day = datetime.fromordinal(datetime(2024, 1, 1).toordinal() + number).isoformat()
        assert lake.one(f"SELECT count(*) FROM t WHERE s = '{day}'") == (1,) == (where(lake, f"s = '{day}'"),)
    assert lake.duck.sql("SELECT typeof(n), typeof(s) FROM t LIMIT 1").fetchone() == ("INTEGER", "TIMESTAMP")
    assert_same_rows(lake)


def test_duckdb_maintains_tables_whose_partitions_hold_files_of_both_writers(lake):
    new_table(lake, field(2, "c", "long"), version=2)
    partition_by(lake, (2, "c", "identity"), (2, "c_bucket", "bucket[4]"))
    buckets = {value: BucketTransform(4).transform(LongType())(value) for value in (1, 2)}
    for value in (1, 2, 1, 2):
        limit = {2: bound("long", value)}
        columns = {"id": pa.array([1, 2, 3]), "c": pa.array([value] * 3)}
        append(lake, columns, partition=(value, buckets[value]), lower_bounds=limit, upper_bounds=limit)
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0)")
    lake.run(*["INSERT INTO t SELECT i, 1 + i % 2 FROM range(10) r(i)"] * 3)
    assert lake.one("SELECT count(*) FROM t WHERE c = 1") == (21,)

    for statement in (
        "CALL ducklake_merge_adjacent_files('lake')", "DELETE FROM t WHERE id = 2", "UPDATE t SET id = 77 WHERE id = 3",
        "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.01)", "CHECKPOINT lake",
    ):  # fmt: skip
        lake.run(statement)
        assert_same_rows(lake)

    assert lake.one("SELECT count(*) FROM t WHERE c = 1") == (16,) == (where(lake, "c = 1"),)
    assert len(lake.sql("SELECT FROM ducklake_data_file WHERE end_snapshot IS NULL")) == len(partitions(lake)) < 10
