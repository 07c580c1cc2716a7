"""Texts of values are exactly those that DuckDB keeps as file and table statistics."""

import math
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.types import TimestamptzType

from duckicelake.bridge.values.lake_values import format_cast_text, format_stats_text, parse_cast_text, parse_stats_text
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import to_bytes

DAY = 86_400_000_000

# DuckDB type, Iceberg type, (DuckDB literal, Iceberg value or None where it has none)
CASES = {
    ("BOOLEAN", "boolean"): [("false", False), ("true", True)],
    ("TINYINT", "int"): [("-128", -128), ("127", 127)],
    ("INTEGER", "int"): [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)],
    ("BIGINT", "long"): [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)],
    ("FLOAT", "float"): [
        ("'-1e-45'", -1.401298464324817e-45), ("0.1", 0.10000000149011612), ("'3.4e38'", 3.3999999521443642e38),
        ("'inf'", math.inf), ("16777216", 16777216.0),
    ],
    ("DOUBLE", "double"): [
        ("'-inf'", -math.inf), ("-1.5", -1.5), ("0", 0.0), ("0.1", 0.1), ("1e15", 1e15), ("1e16", 1e16),
        ("1e300", 1e300), ("5e-324", 5e-324), ("123456789.125", 123456789.125),
    ],
    ("DECIMAL(9,2)", "decimal(9, 2)"): [("-1234567.89", Decimal("-1234567.89")), ("0.1", Decimal("0.10"))],
    ("DECIMAL(38,10)", "decimal(38, 10)"): [
        ("1234567890123456789012345678.0123456789", Decimal("1234567890123456789012345678.0123456789")),
        ("-0.0000000001", Decimal("-0.0000000001")),
    ],
    ("DATE", "date"): [
        ("'2024-03-05'", 19787), ("'1969-12-31'", -1), ("'0001-01-01'", -719162), ("'0044-03-15 (BC)'", -735160),
        ("'0001-12-31 (BC)'", -719163), ("'12024-03-05'", 3672212), ("'5881580-07-10'", 2**31 - 2),
        ("'5877642-06-25 (BC)'", -(2**31) + 2), ("'infinity'", None), ("'-infinity'", None),
    ],
    ("TIME", "time"): [
        ("'00:00:00'", 0), ("'01:02:03.000004'", 3723000004), ("'23:59:59.5'", DAY - 500000), ("'24:00:00'", None)
    ],
    ("TIMESTAMP", "timestamp"): [
        ("'2024-03-05 07:08:09.123'", 1709622489123000), ("'1969-12-31 23:59:59.999999'", -1), ("'1970-01-01'", 0),
        ("'0044-03-15 (BC) 00:00:00'", -735160 * DAY), ("'infinity'", None), ("'99999-01-01'", 35804357 * DAY),
    ],
    ("TIMESTAMP_NS", "timestamp_ns"): [
        ("'2024-03-05 07:08:09.123456789'", 1709622489123456789), ("'1969-12-31 23:59:59.999999999'", -1),
        ("'1970-01-01 00:00:00'", 0), ("'2024-03-05 07:08:09.5'", 1709622489500000000),
        ("'1970-01-01 00:00:00.00000001'", 10), ("'1677-09-22'", -9223286400000000000),
    ],
    ("TIMESTAMPTZ", "timestamptz"): [
        ("'2023-12-31 22:00:00.5+00'", 1704060000500000), ("'2024-01-01 00:30:00+02'", 1704061800000000),
        ("'1883-01-01 00:00:00+00'", -2745446400000000), ("'infinity'", None),
    ],
    ("TIMESTAMP_S", "timestamp"): [("'2024-03-05 07:08:09'", 1709622489000000)],
    ("VARCHAR", "string"): [("''", ""), ("'it''s ü 🦆, \"x\"'", "it's ü 🦆, \"x\""), ("repeat('z', 40)", "z" * 40)],
    ("JSON", "string"): [("'{\"a\": [1, null]}'", '{"a": [1, null]}')],
    ("BLOB", "binary"): [("''::BLOB", b""), ("'\\x00\\xFFab'::BLOB", b"\0\xffab")],
    ("UUID", "uuid"): [
        ("'00000000-0000-0000-0000-000000000001'", UUID(int=1)),
        ("'ffffffff-ffff-ffff-ffff-ffffffffffff'", UUID(int=2**128 - 1)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_texts_of_statistics_written_by_duckdb_are_read_and_written_alike(lake, zone):
    lake.run(f"SET TimeZone = '{zone}'", "CALL lake.set_option('data_inlining_row_limit', 0)")
    columns = {f"c{i}": key for i, key in enumerate(CASES)}
    lake.run(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, (kind, _) in columns.items())})")
    expected = {}
    for name, (kind, iceberg) in columns.items():
        for literal, value in CASES[kind, iceberg]:
            lake.run(f"INSERT INTO t ({name}) VALUES (CAST({literal} AS {kind}))")
            file_id = lake.sql("SELECT max(data_file_id) FROM ducklake_data_file")[0][0]
            expected[file_id, name] = (iceberg, literal, value)
    written = lake.sql(
        "SELECT data_file_id, column_name, min_value, max_value FROM ducklake_file_column_stats"
        " JOIN ducklake_column USING (table_id, column_id) WHERE value_count > 0"
    )
    assert len(written) == len(expected)
    for file_id, name, low, high in written:
        iceberg, literal, value = expected[file_id, name]
        type_ = PrimitiveType.parse(iceberg)
        assert low == high
        assert parse_stats_text(type_, low) == value, (iceberg, literal, low)
        if value is not None:
            same = format_stats_text(type_, value)
            if iceberg == "float":
                assert parse_stats_text(type_, same) == value
            else:
                assert same == low, (iceberg, literal)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_texts_of_inlined_rows_statistics_are_read(lake, zone):
    lake.run(f"SET TimeZone = '{zone}'")
    columns = {f"c{i}": key for i, key in enumerate(CASES) if key[1] != "json"}
    for number in range(max(map(len, CASES.values()))):
        given = {name: CASES[key][number] for name, key in columns.items() if number < len(CASES[key])}
        literals = (f"CAST({literal} AS {columns[name][0]}) AS {name}" for name, (literal, _) in given.items())
        lake.run(f"CREATE TABLE t{number} AS SELECT {', '.join(literals)} LIMIT 0")
        lake.run(f"INSERT INTO t{number} VALUES ({', '.join(literal for literal, _ in given.values())})")
    found = lake.sql(
        "SELECT substr(table_name, 2)::int, column_name, min_value, max_value FROM ducklake_table_column_stats"
        " JOIN ducklake_table USING (table_id) JOIN ducklake_column USING (table_id, column_id)"
    )
    assert len(found) == sum(len(CASES[key]) for key in columns.values())
    for number, name, low, high in found:
        iceberg, (literal, value) = columns[name][1], CASES[columns[name]][number]
        assert low == high
        if iceberg != "binary" or low == "" or "\\" in low:  # else ambiguous: see bridge.stats
            assert parse_stats_text(PrimitiveType.parse(iceberg), low) == value, (iceberg, literal, low)


def test_to_text_of_what_duckdb_has_no_text_for_is_none():
    beyond = {
        "date": 2**31 - 1, "timestamp": 2**63 - 1, "timestamp_ns": -(2**63), "timestamptz_ns": 10**30,
        "double": math.nan, "float": math.nan, "string": "a\0b", "time": DAY,
    }  # fmt: skip

    assert {
        name: format_stats_text(PrimitiveType.parse(name), value) for name, value in beyond.items()
    } == dict.fromkeys(beyond)


def test_nanoseconds_with_a_zone_are_the_microseconds_that_duckdb_reads(lake, tmp_path):
    moments = [1709622489123456789, -1, -1001, 0, 999]
    table = pa.table({"c": pa.array(moments, pa.timestamp("ns", "UTC"))})
    pq.write_table(table, tmp_path / "nanos.parquet", store_schema=False)
    lake.run("SET TimeZone = 'UTC'")
    read = lake.duck.execute(f"SELECT c::VARCHAR FROM '{tmp_path}/nanos.parquet'").fetchall()

    type_ = PrimitiveType.parse("timestamptz_ns")

    assert [format_stats_text(type_, moment) for moment in moments] == [text for (text,) in read]
    assert parse_stats_text(type_, "1969-12-31 23:59:59.999999+00") == -1000


@pytest.mark.parametrize(("text", "value"), [
    ("2024-03-05 09:08:09.5+02", 1709622489500000), ("2024-03-05 01:38:09.5-05:30", 1709622489500000),
    ("2024-03-05 07:08:09.5", None), ("2024-03-05", None),
])  # fmt: skip
def test_moments_are_reported_by_their_offset_only(text, value):
    assert parse_stats_text(PrimitiveType.parse("timestamptz"), text) == value


def texts_of(name):
    days, micros = st.integers(-(2**31) + 2, 2**31 - 2), st.integers(-(10**18) * 9, 10**18 * 9)
    values = {
        "boolean": st.booleans(), "int": st.integers(-(2**31), 2**31 - 1), "double": st.floats(allow_nan=False),
        "float": st.floats(allow_nan=False, width=32), "date": days, "time": st.integers(0, DAY - 1),
        "timestamp": micros, "timestamp_ns": micros, "timestamptz": micros, "binary": st.binary(),
        "timestamptz_ns": st.integers(-(10**15), 10**15).map(lambda value: value * 1000),
        "decimal(9, 2)": st.decimals(-9999999, 9999999, places=2), "uuid": st.uuids(),
        "string": st.text(st.characters(exclude_characters="\0", codec="utf-8")),
    }  # fmt: skip
    return st.tuples(st.just(name), values[name])


NAMES = ["boolean", "int", "double", "float", "date", "time", "timestamp", "timestamp_ns", "timestamptz", "binary",
         "timestamptz_ns", "decimal(9, 2)", "uuid", "string"]  # fmt: skip


@given(st.sampled_from(NAMES).flatmap(texts_of))
def test_values_survive_the_way_through_their_texts(typed):
    type_, value = PrimitiveType.parse(typed[0]), typed[1]

    assert parse_cast_text(type_, format_cast_text(type_, value)) == value
    if typed[0] != "binary":  # without a backslash, hex and escapes may look the same: see bridge.stats
        assert parse_stats_text(type_, format_stats_text(type_, value)) == value


def test_values_of_texts_are_what_pyiceberg_reads_from_our_bounds():
    moment = datetime(2024, 3, 5, 7, 8, 9, 123000, tzinfo=UTC)
    type_ = PrimitiveType.parse("timestamptz")
    bound = to_bytes(type_, parse_stats_text(type_, "2024-03-05 07:08:09.123+00"))

    assert from_bytes(TimestamptzType(), bound) == int(moment.timestamp() * 1_000_000)
