"""Types of format version 3: DuckDB works with each of them, and both sides read the same values."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimestampNanoType

from duckicelake.errors import UnsupportedError
from tests.lake.iceberg_client import add, append, bound, evolve, field, fields_of, new_table, retype, struct
from tests.support.lakes import assert_same_rows

NANOS = 1709622489123456789
NANO_TEXT = "2024-03-05 07:08:09.123456789"

# Iceberg type: (what DuckDB calls it, a literal of DuckDB's)
STORED = {
    "timestamp_ns": ("TIMESTAMP_NS", f"'{NANO_TEXT}'"),
    "timestamptz_ns": ("TIMESTAMP WITH TIME ZONE", f"'{NANO_TEXT}+00'"),
    "variant": ("VARIANT", "{'a': 1}::VARIANT"),
    "geometry": ("GEOMETRY", "'POINT(1 2)'::GEOMETRY"),
    "geometry(EPSG:3857)": ("GEOMETRY", "'POINT(1 2)'::GEOMETRY"),
    "geography(OGC:CRS84, vincenty)": ("GEOMETRY", "'POINT(1 2)'::GEOMETRY"),
}


def types_of(lake):
    return {"id": "long"} | {name: each["type"] for name, each in fields_of(lake).items()}


@pytest.mark.parametrize("kind", STORED)
def test_duckdb_works_with_a_column_that_an_iceberg_client_made(lake, attach, kind):
    sql_type, literal = STORED[kind]
    new_table(lake, field(2, "c", kind))
    lake.run("CREATE TABLE other AS FROM range(3) AS r(id)")

    with attach() as duck:
        described = [row[:2] for row in duck.execute("DESCRIBE t").fetchall()]
        assert described == [("id", "BIGINT"), ("c", sql_type)]
        assert len(duck.execute("SHOW ALL TABLES").fetchall()) == 2
        assert duck.execute("SELECT count(*) FROM other").fetchone() == (3,)
        duck.execute(f"INSERT INTO t VALUES (1, {literal}), (2, NULL)")
        duck.execute(f"INSERT INTO t SELECT i, {literal} FROM range(10, 30) r(i)")
        same = f"c::VARCHAR = ({literal})::{sql_type}::VARCHAR"
        assert duck.execute(f"SELECT count(*) FROM t WHERE {same}").fetchone() == (21,)
        assert duck.execute("SELECT id FROM t WHERE c IS NULL").fetchall() == [(2,)]
        duck.execute("UPDATE t SET id = 3 WHERE id = 2")
        duck.execute("DELETE FROM t WHERE id = 10")
        duck.execute("ALTER TABLE t ADD COLUMN later INTEGER")
        duck.execute("INSERT INTO t (id, later) VALUES (4, 5)")
        duck.execute("CALL ducklake_flush_inlined_data('lake')")
        duck.execute("CALL ducklake_merge_adjacent_files('lake')")
        assert duck.execute("SELECT count(*), count(c) FROM t").fetchone() == (22, 20)

    assert types_of(lake) == {"id": "long", "c": kind, "later": "int"}
    assert lake.metadata().format_version == 3


@pytest.mark.parametrize("kind", STORED)
def test_duckdb_works_with_a_nested_field_that_an_iceberg_client_made(lake, attach, kind):
    """But that it can write no variants inside of other types, wherever they come from."""
    sql_type, literal = STORED[kind]
    new_table(lake, field(2, "s", struct(field(3, "x", kind))))

    with attach() as duck:
        assert [row[:2] for row in duck.execute("DESCRIBE t").fetchall()][1] == ("s", f"STRUCT(x {sql_type})")
        assert duck.execute("SELECT id, s.x FROM t").fetchall() == []
        duck.execute("CALL lake.set_option('data_inlining_row_limit', 0)")  # it can't read what it inlines of these
        if kind != "variant":
            duck.execute(f"INSERT INTO t VALUES (1, {{'x': {literal}}}), (2, NULL)")
            assert duck.execute(
                f"SELECT id FROM t WHERE s.x::VARCHAR = ({literal})::{sql_type}::VARCHAR"
            ).fetchall() == [(1,)]
        duck.execute("ALTER TABLE t ADD COLUMN s.y INTEGER")

    assert fields_of(lake)["s"]["type"] == struct(field(3, "x", kind), field(4, "y", "int"))


@pytest.mark.parametrize("kind", STORED)
def test_column_of_version_3_may_join_rows_that_duckdb_inlined(lake, kind):
    """DuckDB inlines no rows of a table with a variant or geometry, but keeps reading those from before."""
    _, literal = STORED[kind]
    new_table(lake)
    lake.run("INSERT INTO t VALUES (1)", "INSERT INTO t FROM range(10, 30)")

    add(lake, field(2, "c", kind))

    lake.run(f"INSERT INTO t VALUES (2, {literal})", "DELETE FROM t WHERE id IN (1, 11)")
    assert lake.one("SELECT count(*), count(c) FROM t") == (20, 1)
    evolve(lake, lambda known: known[:1])
    lake.run("INSERT INTO t VALUES (3)", "CALL ducklake_flush_inlined_data('lake')")
    assert lake.one("SELECT count(*) FROM t") == (21,)
    summary = lake.metadata().current_snapshot().summary
    assert int(summary["total-records"]) - int(summary["total-position-deletes"]) == 21


@pytest.mark.parametrize(
    ("sql", "kind"), [("TIMESTAMP_NS", "timestamp_ns"), ("VARIANT", "variant"), ("GEOMETRY", "geometry")]
)
def test_table_that_duckdb_makes_with_a_type_of_version_3_is_of_version_3(lake, sql, kind):
    lake.run(f"CREATE TABLE t (id BIGINT, c {sql})", "INSERT INTO t SELECT i, NULL FROM range(20) r(i)")

    assert lake.metadata().format_version == 3
    assert types_of(lake) == {"id": "long", "c": kind}
    assert lake.metadata().next_row_id == 20
    vectorized = lake.metadata().properties.get("read.parquet.vectorization.enabled")
    assert vectorized == ("false" if kind == "variant" else None)


@pytest.mark.parametrize(
    ("sql", "kind"), [("TIMESTAMP_NS", "timestamp_ns"), ("VARIANT", "variant"), ("GEOMETRY", "geometry")]
)
def test_table_that_duckdb_gives_a_type_of_version_3_becomes_one_of_version_3(lake, sql, kind):
    lake.run("CREATE TABLE t (id BIGINT)", "INSERT INTO t FROM range(20)", "INSERT INTO t VALUES (100)")
    assert lake.metadata().format_version == 2

    lake.run(f"ALTER TABLE t ADD COLUMN c {sql}", "DELETE FROM t WHERE id = 3", "INSERT INTO t (id) VALUES (101)")

    metadata = lake.metadata()
    assert metadata.format_version == 3
    assert types_of(lake) == {"id": "long", "c": kind}
    assert metadata.next_row_id == lake.sql("SELECT next_row_id FROM ducklake_table_stats")[0][0]
    lake.run("ALTER TABLE t DROP COLUMN c")
    assert lake.metadata().format_version == 3
    if kind != "variant":  # PyIceberg can't even read that there was one
        assert_same_rows(lake)


def test_nanoseconds_that_duckdb_writes_are_read_by_pyiceberg(lake):
    lake.run("CREATE TABLE t (id BIGINT, c TIMESTAMP_NS)", f"INSERT INTO t VALUES (1, '{NANO_TEXT}'), (2, NULL)")
    lake.run(f"INSERT INTO t SELECT i, '{NANO_TEXT}' FROM range(10, 30) r(i)")

    read = lake.static().scan().to_arrow()

    assert read.schema.field("c").type == pa.timestamp("ns")
    values = read.column("c").combine_chunks().cast(pa.int64()).to_pylist()
    assert sorted(values, key=str) == [NANOS] * 21 + [None]
    file = next(iter(lake.static().inspect.files().to_pylist()))
    assert file["readable_metrics"]["c"]["lower_bound"] is not None


def test_table_that_pyiceberg_creates_with_nanoseconds_has_duckdbs_rows(lake, catalog):
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "c", TimestampNanoType()))
    table = catalog.create_table("main.t", schema, properties={"format-version": "3"})

    lake.run(f"INSERT INTO t VALUES (1, '{NANO_TEXT}'), (2, NULL)")

    read = table.refresh().scan().to_arrow().sort_by("id")
    assert read.column("c").combine_chunks().cast(pa.int64()).to_pylist() == [NANOS, None]
    with table.update_schema() as update:
        update.rename_column("c", "renamed")
    assert lake.one("SELECT count(renamed) FROM t") == (1,)
    assert_same_rows(lake)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_moments_in_nanoseconds_are_the_same_moments_in_every_session_of_duckdb(lake, zone):
    new_table(lake, field(2, "c", "timestamptz_ns"))
    moments = pa.array([NANOS, None, -1], pa.timestamp("ns", "UTC"))
    low, high = bound("timestamptz_ns", -1), bound("timestamptz_ns", NANOS)
    append(lake, {"id": pa.array([1, 2, 3]), "c": moments}, lower_bounds={2: low}, upper_bounds={2: high})

    lake.run(f"SET TimeZone = '{zone}'")

    rows = lake.duck.execute("SELECT id, c FROM t ORDER BY id").fetchall()
    assert [(row[0], row[1] and row[1].astimezone(UTC)) for row in rows] == [
        (1, datetime(2024, 3, 5, 7, 8, 9, 123456, tzinfo=UTC)), (2, None), (3, datetime(1970, 1, 1, tzinfo=UTC)),
    ]  # fmt: skip
    assert lake.one("SELECT min(c), max(c), count(c) FROM t")[0].astimezone(UTC) == datetime(1970, 1, 1, tzinfo=UTC)
    assert lake.one(f"SELECT id FROM t WHERE c = '{NANO_TEXT}+00'::TIMESTAMPTZ") == (1,)
    values = lake.static().scan().to_arrow().column("c").combine_chunks().cast(pa.int64()).to_pylist()
    assert sorted(values, key=str) == [-1, NANOS, None]


def test_duckdb_answers_from_statistics_of_nanoseconds_as_from_the_rows(lake):
    new_table(lake, field(2, "c", "timestamp_ns"))
    lake.run(f"INSERT INTO t SELECT i, '{NANO_TEXT}'::TIMESTAMP_NS - to_days(i::INT) FROM range(20) r(i)")
    for values in ([-1, None], [NANOS + 1, NANOS]):
        known = [value for value in values if value is not None]
        append(
            lake, {"id": pa.array([100, 101]), "c": pa.array(values, pa.timestamp("ns"))},
            lower_bounds={2: bound("timestamp_ns", min(known))}, upper_bounds={2: bound("timestamp_ns", max(known))},
        )  # fmt: skip

    assert lake.one("SELECT min(c)::VARCHAR, max(c)::VARCHAR, count(c), count(*) FILTER (c IS NULL) FROM t") == (
        "1969-12-31 23:59:59.999999999", "2024-03-05 07:08:09.12345679", 23, 1,
    )  # fmt: skip
    assert lake.one(f"SELECT count(*) FROM t WHERE c > '{NANO_TEXT}'") == (1,)
    assert lake.one("SELECT id FROM t WHERE c < '1970-01-01'") == (100,)
    assert_same_rows(lake)


def test_columns_of_type_unknown_are_not_duckdbs_and_stay(lake):
    unknown = field(2, "u", "unknown", doc="of no type yet")
    new_table(
        lake, unknown, field(3, "s", struct(field(5, "v", "unknown"), field(6, "x", "int"))), field(4, "last", "int")
    )
    assert lake.duck.sql("FROM t").columns == ["id", "s", "last"]

    lake.run("INSERT INTO t VALUES (1, {'x': 1}, 2)", "INSERT INTO t SELECT i, NULL, i FROM range(20) r(i)")
    lake.run(
        "ALTER TABLE t ADD COLUMN more INTEGER",
        "ALTER TABLE t RENAME COLUMN s.x TO y",
        "ALTER TABLE t DROP COLUMN last",
    )

    fields = fields_of(lake)
    assert [*fields] == ["u", "s", "more"]
    assert fields["u"] == unknown
    assert [each["name"] for each in fields["s"]["type"]["fields"]] == ["v", "y"]
    assert fields["more"]["id"] == 7
    read = lake.static().scan().to_arrow()
    assert read.column("u").null_count == len(read) == 21
    retype(lake, "u", "string")
    lake.run("INSERT INTO t (id, u) VALUES (100, 'known')")
    assert lake.one("SELECT count(*), count(u) FROM t") == (22, 1)
    assert lake.static().scan().to_arrow().column("u").null_count == 21


def test_name_that_duckdb_takes_from_a_column_of_type_unknown_is_duckdbs(lake):
    new_table(lake, field(2, "u", "unknown"))

    lake.run("ALTER TABLE t ADD COLUMN U VARCHAR", "INSERT INTO t VALUES (1, 'x')")

    assert types_of(lake) == {"id": "long", "U": "string"}
    assert_same_rows(lake)


@pytest.mark.parametrize("kind", [
    {"type": "list", "element-id": 3, "element": "unknown", "element-required": False},
    {"type": "map", "key-id": 3, "key": "string", "value-id": 4, "value": "unknown", "value-required": False},
    {"type": "struct", "fields": [field(3, "x", "unknown")]},
])  # fmt: skip
def test_nested_types_of_nothing_but_unknown_are_refused_by_name(lake, kind):
    with pytest.raises(UnsupportedError, match="'odd'"):
        new_table(lake, field(2, "odd", kind))
