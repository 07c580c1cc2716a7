"""Partition values of both sides say the same: DuckDB's own files, PyIceberg's transforms, and each other's inverse."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from duckicelake.bridge.values.lake_values import parse_cast_text
from duckicelake.bridge.values.partitions import (
    is_described_by,
    to_partition,
    to_partition_keys,
    to_partition_spec,
    to_partition_values,
)
from duckicelake.iceberg.partition import PartitionField, PartitionSpec, Transform
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, PrimitiveType, StructType
from duckicelake.lake.ducklake import native
from duckicelake.lake.model import ColumnStats, PartitionKey

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENTS = ["2024-03-05 07:08:09.123", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "1815-12-10 01:00:00"]
MICROS = [(datetime.fromisoformat(m).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) for m in MOMENTS]
DAYS = [micros // 86_400_000_000 for micros in MICROS]

# DuckDB type: (Iceberg type, PyIceberg's type, DuckDB literals, the values that they are)
SOURCES = {
    "BOOLEAN": ("boolean", BooleanType(), ["true", "false"], [True, False]),
    "TINYINT": ("int", IntegerType(), ["-128", "127"], [-128, 127]),
    "SMALLINT": ("int", IntegerType(), ["-32768"], [-32768]),
    "UTINYINT": ("int", IntegerType(), ["255"], [255]),
    "USMALLINT": ("int", IntegerType(), ["65535"], [65535]),
    "INTEGER": ("int", IntegerType(), ["-5", "34"], [-5, 34]),
    "BIGINT": ("long", LongType(), ["-5000000000", "34"], [-5000000000, 34]),
    "FLOAT": ("float", FloatType(), ["-1.5", "0.1", "'-inf'"], [-1.5, 0.10000000149011612, -math.inf]),
    "DOUBLE": ("double", DoubleType(), ["-1.5", "1e300", "'inf'"], [-1.5, 1e300, math.inf]),
    "DECIMAL(9,2)": (
        "decimal(9, 2)", DecimalType(9, 2), ["-1.5", "1234567.89"], [Decimal("-1.50"), Decimal("1234567.89")],
    ),
    "DATE": ("date", DateType(), [f"'{m[:10]}'" for m in MOMENTS], DAYS),
    "TIME": ("time", TimeType(), ["'01:02:03.5'"], [3723500000]),
    "TIMESTAMP": ("timestamp", TimestampType(), [f"'{m}'" for m in MOMENTS], MICROS),
    "TIMESTAMP_S": ("timestamp", TimestampType(), ["'2024-03-05 07:08:09'"], [1709622489000000]),
    "TIMESTAMP_NS": (
        "timestamp_ns", TimestampNanoType(),
        ["'2024-03-05 07:08:09.123456789'", "'1969-12-31 23:59:59.999999999'", "'1970-01-01'", "'1815-12-10 00:00:00'"],
        [1709622489123456789, -1, 0, -4861728000000000000],
    ),
    "TIMESTAMPTZ": ("timestamptz", TimestamptzType(), [f"'{m}+00'" for m in MOMENTS], MICROS),
    "VARCHAR": ("string", StringType(), ["''", "'a/b=c ü%'", "'null'", "'__HIVE_DEFAULT_PARTITION__'", "'a''\"b'"],
                ["", "a/b=c ü%", "null", "__HIVE_DEFAULT_PARTITION__", "a'\"b"]),
    "UUID": ("uuid", UUIDType(), ["'00000000-0000-0000-0000-0000000000ff'"], [UUID(int=255)]),
    "BLOB": ("binary", BinaryType(), ["'\\x00a\\x27b'::BLOB", "'ab'::BLOB", "''::BLOB"], [b"\0a'b", b"ab", b""]),
}  # fmt: skip
TEMPORAL = {"DATE": ["year", "month", "day"]}
HOURLY = ["year", "month", "day", "hour"]
TEMPORAL |= dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_NS", "TIMESTAMPTZ"), HOURLY)
BUCKETED = [
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "BLOB",
]  # fmt: skip
BY_BOUNDS = {(kind, part) for kind in ("TIMESTAMPTZ", "TIMESTAMP_NS") for part in TEMPORAL[kind]}
CASES = [(name, "identity") for name in SOURCES]
CASES += [(name, transform) for name, transforms in TEMPORAL.items() for transform in transforms]
CASES += [(name, "bucket[7]") for name in BUCKETED]
DUCKDB_KEYS = {
    "identity": "c", "year": "year(c)", "month": "year(c), month(c)", "day": "year(c), month(c), day(c)",
    "hour": "year(c), month(c), day(c), hour(c)", "bucket[7]": "bucket(7, c)",
}  # fmt: skip


def one_column(type_, transform):
    schema = Schema(schema_id=0, fields=(NestedField(id=1, name="c", required=False, type=PrimitiveType.parse(type_)),))
    field = PartitionField(source_id=1, field_id=1000, name="p", transform=Transform.parse(transform))
    return schema, PartitionSpec(spec_id=0, fields=(field,))


def stats(nulls, values):
    return {1: ColumnStats(1, null_count=nulls, value_count=values)}


def test_files_that_duckdb_partitions_have_pyicebergs_values_and_ours(lake):
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0)", "SET TimeZone = 'Asia/Kolkata'")
    for kind, transform in sorted(CASES):
        assert_partitioned_alike(lake, kind, transform)


def assert_partitioned_alike(lake, kind, transform):
    type_, source, literals, values = SOURCES[kind]
    schema, spec = one_column(type_, transform)
    lake.run(f"CREATE OR REPLACE TABLE t (c {kind})", f"ALTER TABLE t SET PARTITIONED BY ({DUCKDB_KEYS[transform]})")
    keys = tuple(
        PartitionKey(*row)
        for row in lake.sql(
            "SELECT column_id, transform FROM ducklake_partition_column WHERE table_id ="
            " (SELECT max(table_id) FROM ducklake_table) ORDER BY partition_key_index"
        )
    )
    assert to_partition_keys(spec, schema, with_buckets=True) == keys
    assert to_partition_spec(keys, schema, 0, 1000).fields[0].transform == spec.fields[0].transform
    assert to_partition_spec(keys, schema, 0, 1000).same_as(spec) or spec.fields[0].name == "p"

    for literal, value in zip([*literals, "NULL"], [*values, None], strict=True):
        lake.run(f"INSERT INTO t VALUES (CAST({literal} AS {kind}))")
        written = tuple(
            text
            for (text,) in lake.sql(
                "SELECT partition_value FROM ducklake_file_partition_value WHERE data_file_id ="
                " (SELECT max(data_file_id) FROM ducklake_data_file) ORDER BY partition_key_index"
            )
        )
        expected = parse_transform(transform).transform(source)(value)
        found = to_partition(spec, schema, dict(zip(keys, written, strict=True)), stats_of_newest_file(lake))
        assert found == (expected,), (literal, written)
        if (kind, transform) not in BY_BOUNDS:
            assert from_texts(schema, to_partition_values(spec, schema, keys, (expected,))) == from_texts(
                schema, written
            )


def from_texts(schema, texts):
    """As values: floats have more than one text."""
    return [None if text is None else parse_cast_text(schema.fields[0].type, text) for text in texts]


def stats_of_newest_file(lake):
    with lake.services.database.reading() as cursor:
        ((file_id,),) = cursor.execute("SELECT max(data_file_id) FROM ducklake_data_file").fetchall()
        return {row.column_id: row for row in native.read_file_stats(cursor, [file_id])[file_id]}


@given(st.data())
def test_partitions_survive_the_way_through_ducklakes_values(data):
    kind, transform = data.draw(st.sampled_from(CASES))
    schema, spec = one_column(SOURCES[kind][0], transform)
    low, high = {"year": (-5000, 8029), "month": (-60000, 96359), "day": (-(2**31), 2**31 - 1)}.get(transform, (0, 0))
    if transform == "hour":
        low, high = -719162 * 48, 2932896 * 48 + 23
    if transform == "identity":
        partition = (data.draw(st.sampled_from(SOURCES[kind][3]) | st.none()),)
    elif transform.startswith("bucket"):
        partition = (data.draw(st.integers(0, 6) | st.none()),)
    else:
        partition = (data.draw(st.integers(low, high) | st.none()),)
    keys = to_partition_keys(spec, schema, with_buckets=True)

    values = to_partition_values(spec, schema, keys, partition)

    known = dict(zip(keys, values, strict=True))
    if (kind, transform) not in BY_BOUNDS or partition == (None,):
        assert to_partition(spec, schema, known, stats(partition == (None,), partition != (None,))) == partition


@pytest.mark.parametrize(
    "bounds", [("2024-03-05 07:59:59+00", "2024-03-05 08:00:00+00"), (None, None), ("infinity",) * 2]
)
def test_hours_of_a_zone_that_parts_them_elsewhere_are_reported_only_if_utc_has_the_same(bounds):
    schema, spec = one_column("timestamptz", "hour")
    local = dict(zip(to_partition_keys(spec, schema, with_buckets=True), ("2024", "3", "5", "13"), strict=True))

    def partition(low, high, nulls=0):
        row = ColumnStats(1, min_value=low, max_value=high, null_count=nulls, value_count=2)
        return to_partition(spec, schema, local, {1: row})

    assert partition("2024-03-05 07:30:00+00", "2024-03-05 07:59:59+00") == (474895,)
    assert partition("2024-03-05 07:30:00+00", "2024-03-05 07:59:59+00", nulls=1) is None
    assert partition(*bounds) is None
    assert to_partition(spec, schema, local, {}) is None


def test_null_and_bucket_zero_are_distinguished_by_counts_alone():
    schema, spec = one_column("int", "bucket[7]")
    zero = {PartitionKey(1, "bucket(7)"): "0"}

    assert to_partition(spec, schema, zero, stats(0, 5)) == (0,)
    assert to_partition(spec, schema, zero, stats(5, 0)) == (None,)
    assert to_partition(spec, schema, zero, stats(2, 3)) is None
    assert to_partition(spec, schema, zero, {}) is None


def test_transforms_that_ducklake_lacks_leave_no_key_and_no_value():
    for type_, transform in [
        ("string", "truncate[3]"),
        ("int", "void"),
        ("uuid", "bucket[7]"),
        ("decimal(9, 2)", "bucket[7]"),
        ("timestamp_ns", "bucket[7]"),
        ("timestamptz_ns", "bucket[7]"),
    ]:
        schema, spec = one_column(type_, transform)
        assert to_partition_keys(spec, schema, with_buckets=True) == ()
        assert to_partition_values(spec, schema, (), (None,)) == ()
        assert to_partition(spec, schema, {}, {}) == ((None,) if transform == "void" else None)


@pytest.mark.parametrize(("type_", "transform", "low", "high", "value"), [
    ("string", "truncate[3]", "abcd", "abcz", "abc"), ("string", "truncate[3]", "abc", "abd", None),
    ("int", "truncate[10]", "-10", "-1", -10), ("int", "truncate[10]", "-1", "0", None),
    ("decimal(9, 2)", "truncate[50]", "10.50", "10.99", Decimal("10.50")),
    ("binary", "truncate[1]", "AB00", "ABFF", b"\xab"),
    ("timestamp_ns", "hour", "1969-12-31 23:00:00", "1969-12-31 23:59:59.999999999", -1),
    ("timestamp_ns", "year", "1969-12-31 23:59:59.999999999", "1970-01-01 00:00:00", None),
    ("timestamptz_ns", "day", "2024-03-05 00:00:00+00", "2024-03-05 23:59:59.999999+00", 19787),
    ("date", "month", "0001-01-01 (BC)", "0001-01-31 (BC)", -23640),
    ("date", "identity", "2024-03-05", "2024-03-05", 19787),
    ("double", "identity", "0.0", "0.0", None), ("uuid", "bucket[7]", str(UUID(int=1)), str(UUID(int=1)), None),
])  # fmt: skip
def test_bounds_show_the_value_that_they_agree_on(type_, transform, low, high, value):
    schema, spec = one_column(type_, transform)

    def partition(**counts):
        row = ColumnStats(1, min_value=low, max_value=high, **counts)
        return to_partition(spec, schema, {}, {1: row})

    assert partition(value_count=2, null_count=0) == (None if value is None else (value,))
    assert partition(value_count=2, null_count=1) is None
    assert partition(value_count=2, null_count=None) is None
    assert partition(value_count=2, null_count=0, contains_nan=True) is None
    assert partition(value_count=0, null_count=2) == (None,)


def test_fields_of_structs_are_partitioned_by_their_bounds():
    inner = NestedField(id=2, name="x", required=False, type=PrimitiveType.parse("int"))
    outer = NestedField(id=1, name="s", required=False, type=StructType(fields=(inner,)))
    spec = PartitionSpec(spec_id=0, fields=(
        PartitionField(source_id=2, field_id=1000, name="p", transform=Transform.parse("identity")),
        PartitionField(source_id=9, field_id=1001, name="gone", transform=Transform.parse("void")),
    ))  # fmt: skip
    seven = ColumnStats(2, min_value="7", max_value="7", value_count=3, null_count=0)

    schema = Schema(schema_id=0, fields=(outer,))

    assert to_partition_keys(spec, schema, with_buckets=True) == ()
    assert to_partition(spec, schema, {}, {2: seven}) == (7, None)


def test_partitions_of_not_a_number_are_exact_and_those_of_either_zero_are_left_out():
    schema, spec = one_column("float", "identity")
    (key,) = to_partition_keys(spec, schema, with_buckets=True)

    (nan,) = to_partition(spec, schema, {key: "nan"}, {})

    assert math.isnan(nan)
    assert to_partition_values(spec, schema, (key,), (math.nan,)) == ("nan",)
    assert to_partition_values(spec, schema, (key,), (-0.0,)) == ("-0.0",)
    assert to_partition(spec, schema, {key: "-0.0"}, {}) is None


@pytest.mark.parametrize(("type_", "key", "transform"), [
    ("boolean", "bucket(7)", None), ("double", "bucket(7)", None), ("variant", "identity", None),
    ("geometry", "identity", None), ("date", "hour", None), ("decimal(9, 2)", "bucket(7)", "bucket[7]"),
])  # fmt: skip
def test_keys_that_duckdb_takes_and_iceberg_does_not_are_left_out(type_, key, transform):
    schema, _ = one_column(type_, "void")

    fields = to_partition_spec((PartitionKey(1, key),), schema, 0, 1000).fields

    assert [str(field.transform) for field in fields] == ([transform] if transform else [])


def test_hours_of_a_date_are_its_days():
    schema, _ = one_column("date", "day")
    keys = tuple(PartitionKey(1, part) for part in ("year", "month", "day", "hour"))

    assert [str(field.transform) for field in to_partition_spec(keys, schema, 0, 1000).fields] == ["day"]


@pytest.mark.parametrize(("type_", "transform", "value"), [
    ("string", "identity", "a\0b"), ("date", "identity", 2**31 - 1), ("timestamp", "identity", 2**63 - 1),
])  # fmt: skip
def test_values_that_ducklake_cannot_say_leave_the_file_without_partition(type_, transform, value):
    schema, spec = one_column(type_, transform)

    assert to_partition_values(spec, schema, to_partition_keys(spec, schema, with_buckets=True), (value,)) is None


def test_calendar_parts_without_the_coarser_ones_are_not_reported_to_iceberg():
    schema, _ = one_column("date", "day")

    assert to_partition_spec((PartitionKey(1, "month"), PartitionKey(1, "day")), schema, 0, 1000).fields == ()
    assert [
        str(f.transform)
        for f in to_partition_spec((PartitionKey(1, "day"), PartitionKey(1, "year")), schema, 0, 1000).fields
    ] == ["year"]


EPOCHS = [
    ("date", "day", "epoch_day", "19787", 19787),
    ("date", "month", "epoch_month", "-1", -1),
    ("timestamp", "hour", "epoch_hour", "-1", -1),
    ("timestamp", "year", "epoch_year", "-155", -155),
    ("timestamptz", "hour", "epoch_hour", "474895", 474895),
    ("timestamptz", "day", "epoch_day", "19787", 19787),
    ("timestamp_ns", "day", "epoch_day", "-1", -1),
    ("timestamptz_ns", "month", "epoch_month", "650", 650),
]


@pytest.mark.parametrize(("type_", "transform", "key", "text", "value"), EPOCHS)
def test_epoch_keys_of_ducklake_1_1_have_icebergs_own_values(type_, transform, key, text, value):
    schema, spec = one_column(type_, transform)
    keys = (PartitionKey(1, key),)

    assert to_partition_keys(spec, schema, with_buckets=True, with_epochs=True) == keys
    assert to_partition_spec(keys, schema, 0, 1000).fields[0].transform == spec.fields[0].transform
    assert to_partition_values(spec, schema, keys, (value,)) == (text,)
    assert to_partition_values(spec, schema, keys, (None,)) == (None,)
    assert to_partition(spec, schema, {keys[0]: text}, {}) == (value,)
    assert to_partition(spec, schema, {keys[0]: None}, stats(1, 0)) == (None,)
    assert is_described_by(spec, schema, keys)
    assert not is_described_by(spec, schema, ())


@pytest.mark.parametrize("text", ["", "x", "1.5", "2147483648", "-2147483649", "٣", "1 "])
def test_an_epoch_value_that_is_none_leaves_the_file_to_its_bounds(text):
    schema, spec = one_column("date", "day")
    values = {PartitionKey(1, "epoch_day"): text}
    bounds = ColumnStats(1, min_value="2024-03-05", max_value="2024-03-05", null_count=0, value_count=3)

    assert to_partition(spec, schema, values, {}) is None
    assert to_partition(spec, schema, values, {1: bounds}) == (19787,)


@pytest.mark.parametrize("keys", [("year", "month", "day"), ("epoch_day",)])
def test_infinite_days_are_not_the_partition_of_nulls(keys):
    schema, spec = one_column("date", "day")
    values = dict.fromkeys((PartitionKey(1, key) for key in keys), None)
    infinite = ColumnStats(1, min_value="infinity", max_value="infinity", null_count=0, value_count=2)

    assert to_partition(spec, schema, values, {1: infinite}) is None
    assert to_partition(spec, schema, values, stats(2, 0)) == (None,)


@pytest.mark.parametrize(("type_", "key"), [
    ("int", "epoch_hour"), ("string", "epoch_year"), ("date", "epoch_hour"), ("time", "epoch_hour"),
    ("date", "epoch_week"),
])  # fmt: skip
def test_epoch_keys_of_types_that_iceberg_does_not_transform_so_are_left_out(type_, key):
    schema, _ = one_column(type_, "void")

    assert to_partition_spec((PartitionKey(1, key),), schema, 0, 1000).fields == ()


def test_calendar_keys_stay_as_they_were_declared_beside_epoch_keys_of_others():
    schema = Schema(schema_id=0, fields=tuple(
        NestedField(id=i, name=name, required=False, type=PrimitiveType.parse("date"))
        for i, name in enumerate(["a", "b"], 1)
    ))  # fmt: skip
    keys = (PartitionKey(1, "year"), PartitionKey(1, "month"), PartitionKey(2, "epoch_day"))

    spec = to_partition_spec(keys, schema, 0, 1000)

    assert [str(field.transform) for field in spec.fields] == ["month", "day"]
    assert is_described_by(spec, schema, keys)
    assert to_partition_values(spec, schema, keys, (650, 19787)) == ("2024", "3", "19787")


def test_spec_of_two_keys_of_one_column_names_its_fields_apart():
    schema = Schema(schema_id=0, fields=tuple(
        NestedField(id=i, name=name, required=False, type=PrimitiveType.parse("date"))
        for i, name in enumerate(["c", "c_year"], 1)
    ))  # fmt: skip
    spec = to_partition_spec(
        (PartitionKey(1, "year"), PartitionKey(1, "identity"), PartitionKey(2, "identity")), schema, 0, 1000
    )

    names = [field.name for field in spec.fields]
    assert len(set(names)) == 3
    assert [field.field_id for field in spec.fields] == [1000, 1001, 1002]


def test_day_of_a_leap_year_before_the_epoch_is_the_calendars():
    schema, spec = one_column("date", "day")
    keys = to_partition_keys(spec, schema, with_buckets=True)

    assert to_partition_values(spec, schema, keys, ((date(1600, 2, 29) - date(1970, 1, 1)).days,)) == (
        "1600",
        "2",
        "29",
    )
