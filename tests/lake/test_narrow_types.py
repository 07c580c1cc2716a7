"""Types of DuckDB's that Iceberg lacks: small and unsigned integers, seconds, milliseconds (`ducklake-facts.md` §9)."""

from datetime import datetime

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from tests.support.lakes import Lake, assert_same_rows, iceberg_rows

KINDS = {
    "TINYINT": ("-128", "127", "int", "int32"),
    "SMALLINT": ("-32768", "32767", "int", "int32"),
    "UTINYINT": ("0", "255", "int", "int32"),
    "USMALLINT": ("0", "65535", "int", "int32"),
    "UINTEGER": ("0", "4294967295", "long", "int64"),
    "UBIGINT": ("0", "18446744073709551615", "decimal(20, 0)", "decimal(20,0)"),
    "TIMESTAMP_S": ("'1969-12-31 23:59:59'", "'2024-02-29 00:00:01'", "timestamp", "timestamp"),
    "JSON": ("'[1, null]'", '\'{"a": "ü"}\'', "string", "varchar"),
    "TIMESTAMP_MS": ("'1969-12-31 23:59:59.999'", "'2024-02-29 00:00:00.001'", "timestamp", "timestamp"),
}
"""Least and greatest value, Iceberg's type, and DuckLake's once the column is widened."""
FLUSH = "CALL ducklake_flush_inlined_data('lake')"
MERGE = "CALL ducklake_merge_adjacent_files('lake')"
REWRITE = "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.01)"


def value(kind: str, text: str) -> str:
    return f"({text})::{kind}"


def rows(kind: str, first: int, count: int) -> str:
    low, high = (value(kind, text) for text in KINDS[kind][:2])
    if "INT" in kind:
        nested = f"{{'a': {high}, 'b': [{low}, NULL], 'c': MAP {{{low}: {high}}}}}"
    else:
        nested = f"[{low}, NULL, {high}]" if "TIME" in kind else high
    return (
        f"INSERT INTO t SELECT i, [{low}, {high}, NULL][i % 3 + 1], CASE WHEN i % 4 > 0 THEN {nested} END "
        f"FROM range({first}, {first + count}) r(i)"
    )


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, lake: Lake) -> str:
    """A table `t` with a column of the type, and one of it inside others, as far as DuckDB reads what it inlined."""
    kind = str(request.param)
    nested = "STRUCT(a {0}, b {0}[], c MAP({0}, {0}))" if "INT" in kind else "{0}[]" if "TIME" in kind else "{0}"
    lake.run(f"CREATE TABLE t (id BIGINT, v {kind}, n {nested.format(kind)})")
    return kind


def lake_types(lake: Lake) -> list[str]:
    """The types of `v` and of the leaves of `n`."""
    query = "SELECT column_type FROM ducklake_column WHERE column_id <> 1 AND end_snapshot IS NULL ORDER BY column_id"
    return [text for (text,) in lake.sql(query) if text not in {"struct", "list", "map"}]


def test_rows_are_the_same_inlined_and_in_files(lake: Lake, kind: str) -> None:
    lake.run(rows(kind, 0, 9))
    assert_same_rows(lake)
    assert str(lake.metadata().schema().fields[1].type) == KINDS[kind][2]
    lake.run(rows(kind, 10, 30))
    assert_same_rows(lake)
    lake.run("DELETE FROM t WHERE id IN (1, 11)", "UPDATE t SET id = id + 100 WHERE id % 7 = 2")
    assert_same_rows(lake)
    lake.run(FLUSH)
    assert_same_rows(lake)
    lake.run(rows(kind, 50, 30), MERGE)
    assert_same_rows(lake)
    lake.run("DELETE FROM t WHERE id > 50 AND id % 2 = 0", REWRITE)
    assert_same_rows(lake)


def test_deletes_of_an_iceberg_client_hit_the_rows(lake: Lake, kind: str, catalog: Catalog) -> None:
    lake.run(rows(kind, 0, 30), rows(kind, 30, 3))
    catalog.load_table("main.t").delete("id = 4 or id = 31 or id = 17")
    assert_same_rows(lake)
    assert len(lake.duck_rows()) == 30


def test_column_is_widened_before_values_join_that_do_not_fit(lake: Lake, kind: str, catalog: Catalog) -> None:
    lake.run(rows(kind, 0, 20), rows(kind, 20, 3))
    table = catalog.load_table("main.t")
    wide = {
        "int": pa.scalar(-(2**31)),
        "long": pa.scalar(-(2**63)),
        "decimal(20, 0)": pa.scalar(-1),
        "string": pa.scalar("{"),
    }
    scalar = wide.get(KINDS[kind][2], pa.scalar(datetime(2024, 2, 29, 1, 2, 3, 456789)))
    schema = table.schema().as_arrow()
    column = pa.array([scalar.as_py(), None]).cast(schema.field("v").type)
    data = {"id": [100, 101], "v": column, "n": pa.nulls(2, schema.field("n").type)}
    table.append(pa.table(data, schema))
    assert lake_types(lake)[0] == KINDS[kind][3]
    assert_same_rows(lake)
    low = scalar.as_py()
    assert lake.one("SELECT count(*), min(v) FROM t WHERE v IN (SELECT v FROM t WHERE id = 100)")[0] == 1
    assert lake.one("SELECT v FROM t WHERE id = 100") == (low,)
    lake.run(rows(kind, 200, 3), rows(kind, 210, 20), "UPDATE t SET id = id + 1000 WHERE id % 5 = 0", FLUSH, MERGE)
    assert_same_rows(lake)


@pytest.mark.parametrize("kind", [name for name in KINDS if "INT" in name], indirect=True)
def test_values_that_fit_leave_the_column_as_it_is(lake: Lake, kind: str, catalog: Catalog) -> None:
    lake.run("ALTER TABLE t DROP COLUMN n", "INSERT INTO t SELECT i, 1 FROM range(20) r(i)")
    before = lake_types(lake)
    table = catalog.load_table("main.t")
    table.append(pa.table({"id": [100, 101], "v": [7, None]}).cast(table.schema().as_arrow()))
    assert lake_types(lake) == before
    assert_same_rows(lake)
    assert (100, 7) in iceberg_rows(lake.static())


def test_partitions_by_such_columns_are_exact(lake: Lake, kind: str) -> None:
    lake.run("ALTER TABLE t SET PARTITIONED BY (v)", rows(kind, 0, 20))
    assert_same_rows(lake)
    lake.run("ALTER TABLE t SET PARTITIONED BY (bucket(4, v))", rows(kind, 20, 20))
    assert_same_rows(lake)


@pytest.mark.parametrize("kind", [name for name in KINDS if name[0] == "U" or "TIME" in name], indirect=True)
def test_bucket_of_a_widened_column_is_given_up(lake: Lake, kind: str, catalog: Catalog) -> None:
    lake.run("ALTER TABLE t SET PARTITIONED BY (bucket(4, v))", rows(kind, 0, 30))
    table = catalog.load_table("main.t")
    schema = table.schema().as_arrow()
    low, high = (lake.one(f"SELECT {value(kind, text)}")[0] for text in KINDS[kind][:2])
    data = {"id": [100], "v": pa.array([high], schema.field("v").type), "n": pa.nulls(1, schema.field("n").type)}
    table.append(pa.table(data, schema))  # nested leaves without metrics may hold anything, so all are widened
    assert_same_rows(lake)
    for each, count in ((low, 10), (high, 11)):
        assert lake.duck.execute("SELECT count(*) FROM t WHERE v = ?", [each]).fetchone() == (count,)
