"""Comparing tables as Spark and DuckDB read them: what is the same has one checksum in both, what isn't is shown."""

import json

import duckdb
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from duckicelake.cli.main import app
from duckicelake.errors import BadColumnError, BadInputError, JobConflictError, MissingTableError
from duckicelake.pipeline.destination import CATALOG_NAME
from duckicelake.pipeline.progress import SILENT
from duckicelake.pipeline.sides import RowDifference, SparkSide, parse_reference
from duckicelake.pipeline.verification import Comparison, VerifyResult, compare_tables
from scripts.demo_job.server import RunningLake

pytestmark = [
    pytest.mark.more_engines,
    pytest.mark.engine,
    pytest.mark.spark,
    pytest.mark.usefixtures("duckdb_has_keys"),
]

COLUMNS = (
    "id bigint, i int, f float, d double, p decimal(2,2), q decimal(38,10), s string, b binary, o boolean, dt date, "
    "ts timestamp_ntz, tz timestamp, l array<double>, st struct<a: int, `b c`: struct<d: string>>, "
    "m map<string, array<float>>"
)
FIRST = """(1, -2147483648, float('nan'), double('nan'), -0.05, -1.5, 'é🤦 "quoted"', X'00ff',
    true, DATE '0001-01-01', TIMESTAMP_NTZ '1969-12-31 23:59:59.999999',
    TIMESTAMP '2020-06-01 12:00:00.000001+02:00',
    array(double('nan'), NULL, -0.0D), named_struct('a', 1, 'b c', named_struct('d', 'x')),
    map('b', array(float('inf'), NULL), 'a', NULL))"""
SECOND = """(2, 2147483647, float('-0.0'), double('-0.0'), 0.05, 9999999999999999999999999999.9999999999, '', X'',
    false, DATE '9999-12-31', TIMESTAMP_NTZ '9999-12-31 23:59:59.999999', TIMESTAMP '0001-01-01 00:00:00Z',
    array(), named_struct('a', NULL, 'b c', named_struct('d', NULL)), map())"""
THIRD = """(3, 0, 3.4e38F, 1e-300D, 0, 0.0000000001, 'n', X'6e', true, DATE '1970-01-01',
    TIMESTAMP_NTZ '2024-02-29 00:00:00', TIMESTAMP '1970-01-01 00:00:00Z', array(0.0D),
    named_struct('a', 2, 'b c', NULL), map('', array()))"""
NULLS = f"(4{', NULL' * 14})"
ROWS = (FIRST, SECOND, THIRD, NULLS, NULLS)


def compare(spark: SparkSession, left: str, right: str, **more: object) -> VerifyResult:
    return compare_tables(spark, Comparison(left, right, **more), SILENT)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [2, 3])
def test_spark_and_duckdb_have_one_checksum_for_values_of_every_type_whoever_wrote_them(
    spark: SparkSession, duck: duckdb.DuckDBPyConnection, lake: RunningLake, namespace: str, version: int
) -> None:
    table = f"{namespace}.everything"
    spark.sql(f"CREATE TABLE lake.{table} ({COLUMNS}) TBLPROPERTIES ('format-version' = '{version}')")
    spark.sql(f"INSERT INTO lake.{table} VALUES {', '.join(ROWS)}")
    duck.execute(f"INSERT INTO lake.{table} SELECT * REPLACE (id + 10 AS id) FROM lake.{table} WHERE id < 3")
    duck.execute(f"INSERT INTO lake.{table} (id, ts, tz, dt) VALUES (20, 'infinity', '-infinity', 'infinity')")
    found = compare(spark, table, f"duckdb:{table}", attach=lake.ducklake_attach)
    assert found.differences == ()
    assert (found.equal, found.rows, len(found.compared)) == (True, (8, 8), 15)


def test_rows_that_differ_are_shown_by_key(spark: SparkSession, lake: RunningLake, namespace: str) -> None:
    for name, rows in {
        "one": "(1, 'a', 1.0D), (2, 'b', 2.0D), (3, 'c', 0.0D), (4, 'd', 4.0D), (4, 'd', 4.0D)",
        "two": "(4, 'd', 4.0D), (2, 'b', NULL), (3, 'c', -0.0D), (1, 'a', 1.0D), (5, 'e', 5.0D)",
    }.items():
        spark.sql(f"CREATE TABLE lake.{namespace}.{name} (id int, s string, x double)")
        spark.sql(f"INSERT INTO lake.{namespace}.{name} VALUES {rows}")
    one, two = f"{namespace}.one", f"{namespace}.two"
    for right in (two, f"duckdb:{two}"):
        found = compare(spark, one, right, keys=["id"], attach=lake.ducklake_attach)
        assert [difference.name for difference in found.differences] == ["id", "s", "x"]
        assert sorted(found.row_differences, key=lambda row: str(row.key["id"])) == [
            RowDifference({"id": "2"}, 1, 1, {"x": ("2.0", None)}),
            RowDifference({"id": "3"}, 1, 1, {"x": ("0.0", "-0.0")}),
            RowDifference({"id": "4"}, 2, 1, {}),
            RowDifference({"id": "5"}, 0, 1, {}),
        ]
    spark.sql(f"DELETE FROM lake.{one} WHERE id > 3")
    spark.sql(f"DELETE FROM lake.{two} WHERE id > 3")
    assert compare(spark, one, two, leave_out=["x"]).equal


def test_values_that_changed_their_rows_differ_though_no_column_does(
    spark: SparkSession, lake: RunningLake, namespace: str
) -> None:
    spark.sql(f"CREATE TABLE lake.{namespace}.t (a int, b int)")
    spark.sql(f"INSERT INTO lake.{namespace}.t VALUES (1, 1), (2, 2)")
    numbers = f"SELECT snapshot_id, summary['ducklake.snapshot-id'] FROM lake.{namespace}.t.snapshots"
    before, ducklakes = spark.sql(numbers).collect()[0]
    spark.sql(f"INSERT OVERWRITE lake.{namespace}.t VALUES (1, 2), (2, 1)")
    found = compare(spark, f"{namespace}.t@{before}", f"{namespace}.t", keys=["a"])
    assert (found.equal, found.differences, len(found.row_differences)) == (False, (), 2)
    then = f"duckdb:{namespace}.t@{ducklakes}"
    assert compare(spark, f"{namespace}.t@{before}", then, attach=lake.ducklake_attach).equal


def test_columns_are_those_of_now_though_nothing_was_written_since_they_changed(
    spark: SparkSession, lake: RunningLake, namespace: str
) -> None:
    one, two = f"{namespace}.one", f"{namespace}.two"
    for name in (one, two):
        spark.sql(f"CREATE TABLE lake.{name} (a int, b int)")
        spark.sql(f"INSERT INTO lake.{name} VALUES (1, 2)")
    spark.sql(f"ALTER TABLE lake.{one} RENAME COLUMN a TO c")
    spark.sql(f"ALTER TABLE lake.{one} ADD COLUMN d int")
    found = compare(spark, one, f"duckdb:{one}", attach=lake.ducklake_attach)
    assert (found.equal, sorted(found.compared)) == (True, ["b", "c", "d"])
    assert [each.name for each in compare(spark, one, two).differences] == ["c", "d", "a"]


def test_table_that_is_written_to_while_it_is_read_is_said_to_be(spark: SparkSession, namespace: str) -> None:
    spark.sql(f"CREATE TABLE lake.{namespace}.t (a int)")
    spark.sql(f"INSERT INTO lake.{namespace}.t VALUES (1)")
    side = SparkSide(spark, CATALOG_NAME, parse_reference(f"{namespace}.t"))
    (snapshot,) = spark.sql(f"SELECT snapshot_id FROM lake.{namespace}.t.snapshots").collect()[0]
    pinned = SparkSide(spark, CATALOG_NAME, parse_reference(f"{namespace}.t@{snapshot}"))
    side.check()
    spark.sql(f"INSERT INTO lake.{namespace}.t VALUES (2)")
    with pytest.raises(JobConflictError, match=f"compare @{snapshot}"):
        side.check()
    pinned.check()
    assert pinned.rows(f"SELECT a FROM {pinned.relation}") == [(1,)]


def test_verify_command_exits_with_what_it_found(spark: SparkSession, lake: RunningLake, namespace: str) -> None:
    spark.sql(f"CREATE TABLE lake.{namespace}.one (id int, gone string, x float)")
    spark.sql(f"CREATE TABLE lake.{namespace}.two (x double, id bigint)")
    command = ["pipeline", "verify", f"{namespace}.one", f"{namespace}.two", "--uri", lake.uri]
    different = CliRunner().invoke(app, [*command, "--json"])
    assert different.exit_code == 9
    assert json.loads(different.stdout)["differences"] == [
        {"name": "gone", "left_type": "text", "right_type": None, "left": None, "right": None},
        {"name": "x", "left_type": "float", "right_type": "double", "left": None, "right": None},
    ]
    same = CliRunner().invoke(app, [*command, "--leave-out", "gone", "--leave-out", "x"])
    assert (same.exit_code, "are the same: 0 rows, 1 column" in same.stdout) == (0, True)


def test_what_cannot_be_compared_is_refused(spark: SparkSession, lake: RunningLake, namespace: str) -> None:
    spark.sql(f"CREATE TABLE lake.{namespace}.t (id int, v variant) TBLPROPERTIES ('format-version' = '3')")
    table = f"{namespace}.t"
    with pytest.raises(BadColumnError, match="v can't be compared, being variant: leave it out with --leave-out v"):
        compare(spark, table, table)
    with pytest.raises(BadColumnError, match="no column 'w' to leave out"):
        compare(spark, table, table, leave_out=["w"])
    with pytest.raises(BadInputError, match="'w' can't be a key"):
        compare(spark, table, table, leave_out=["v"], keys=["w"])
    with pytest.raises(BadInputError, match="give --attach"):
        compare(spark, table, f"duckdb:{table}")
    with pytest.raises(MissingTableError, match="DuckDB finds no"):
        compare(spark, table, f"duckdb:{namespace}.u", attach=lake.ducklake_attach)
    assert compare(spark, table, table, leave_out=["v"]).equal
