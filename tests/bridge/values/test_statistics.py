"""Statistics of columns: what is told of each type, and what isn't (design §6.9)."""

from uuid import UUID

import pytest

from duckicelake.bridge.data_files import serialize_metrics
from duckicelake.bridge.values.statistics import LakeMetrics, LakeStats, widen_table_stats
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.manifest.entry import DataFile, FileContent
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import to_bytes
from duckicelake.lake.model import ColumnStats

NANOS = 1709622489123456789


def file_stats(file, leaves):
    return LakeStats(leaves).build_rows(serialize_metrics(file))


def leaves(kind):
    return {7: PrimitiveType.parse(kind)}


def file(low, high, **counts):
    return DataFile(
        content=FileContent.DATA, file_path="f.parquet", file_format="PARQUET", partition=(), record_count=3,
        file_size_in_bytes=1, lower_bounds={7: low}, upper_bounds={7: high},
        **{"value_counts": {7: 3}, "null_value_counts": {7: 1}, **counts},
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "low", "high"), [
    ("timestamp_ns", "1969-12-31 23:59:59.999999999", "2024-03-05 07:08:09.123456789"),
    ("timestamptz_ns", "1970-01-01 00:00:00+00", "2024-03-05 07:08:09.123456+00"),
])  # fmt: skip
def test_bounds_in_nanoseconds_are_reported_as_duckdb_reads_them(kind, low, high):
    type_ = PrimitiveType.parse(kind)

    (row,) = file_stats(file(to_bytes(type_, -1), to_bytes(type_, NANOS)), leaves(kind))

    assert (row.min_value, row.max_value, row.value_count, row.null_count) == (low, high, 2, 1)
    assert widen_table_stats(None, [(row,)], leaves(kind), 16)[7].max_value == high
    earlier = ColumnStats(7, contains_null=False, min_value=low.replace("19", "18", 1), max_value=low)
    wider = widen_table_stats({7: earlier}, [(row,)], leaves(kind), 16)[7]
    assert (wider.min_value, wider.max_value, wider.contains_null) == (earlier.min_value, high, True)


def test_bounds_of_days_are_those_of_the_timestamps_that_they_became():
    day = (19787).to_bytes(4, "little")

    (row,) = file_stats(file(day, day), leaves("timestamp_ns"))

    assert (row.min_value, row.max_value) == ("2024-03-05 00:00:00", "2024-03-05 00:00:00")


@pytest.mark.parametrize(("kind", "low", "high", "texts"), [
    ("int", b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", ("-1", "-2147483648")),
    ("long", b"\xfe\xff\xff\xff", b"\x00" * 7 + b"\x80", ("-2", "-9223372036854775808")),
    ("double", b"\x00\x00\x80\x3f", b"\x00" * 6 + b"\x00\x40", ("1.0", "2.0")),
])  # fmt: skip
def test_bounds_are_as_long_as_their_type_was_when_they_were_written(kind, low, high, texts):
    (row,) = file_stats(file(low, high), leaves(kind))
    assert (row.min_value, row.max_value) == texts


@pytest.mark.parametrize(("kind", "length"), [("int", 8), ("int", 3), ("long", 5), ("long", 0), ("date", 8)])
def test_bounds_of_another_length_are_refused(kind, length):
    with pytest.raises(InvalidRequestError, match=rf"\({length} bytes\) isn't a stored value of type {kind}"):
        file_stats(file(b"\1" * length, b"\1" * length), leaves(kind))


@pytest.mark.parametrize("kind", ["variant", "geometry", "geometry(EPSG:3857)", "geography", "unknown"])
def test_types_without_order_have_no_statistics_on_either_side(kind):
    assert file_stats(file(b"\0" * 16, b"\1" * 16), leaves(kind)) == ()
    metrics = LakeMetrics(leaves(kind)).build_metrics(
        [ColumnStats(7, value_count=2, null_count=0, column_size_bytes=9)]
    )
    assert metrics == {}
    assert widen_table_stats({7: ColumnStats(7, contains_null=False)}, [()], leaves(kind), 16) == {7: None}


def test_moments_beyond_64_bits_of_nanoseconds_have_no_bounds():
    row = ColumnStats(
        7, min_value="1600-01-01 00:00:00+00", max_value="2024-03-05 07:08:09+00", value_count=2, null_count=0
    )

    metrics = LakeMetrics(leaves("timestamptz_ns")).build_metrics([row])

    assert "lower_bounds" not in metrics
    assert metrics["upper_bounds"] == {"7": to_bytes(PrimitiveType.parse("timestamptz_ns"), 1709622489 * 10**9).hex()}


@pytest.mark.parametrize(("low", "high", "bounds"), [
    ("-5", "2", {"lower_bounds": {"7": "fbffffff"}, "upper_bounds": {"7": "02000000"}}),
    ("-5", None, {"lower_bounds": {"7": "fbffffff"}}),
    ("-5", "y", {"lower_bounds": {"7": "fbffffff"}}),
    ("x", "2", {"upper_bounds": {"7": "02000000"}}),
])  # fmt: skip
def test_each_bound_of_whole_numbers_is_reported_by_itself_where_the_other_is_none(low, high, bounds):
    metrics = LakeMetrics(leaves("int")).build_metrics([ColumnStats(7, min_value=low, max_value=high)])

    assert metrics == bounds


def test_table_wide_bounds_that_were_lost_are_not_begun_anew():
    lost = ColumnStats(7, contains_null=False, contains_nan=None, min_value=None, max_value=None)
    added = ColumnStats(7, contains_null=False, min_value="500", max_value="519", value_count=20, null_count=0)

    assert widen_table_stats({7: lost}, [(added,)], leaves("long"), 16) == {7: None}


def test_table_wide_bounds_of_nothing_but_nulls_are_begun_with_the_first_values():
    nulls = ColumnStats(7, contains_null=True, contains_nan=None, min_value=None, max_value=None)
    added = ColumnStats(7, contains_null=False, min_value="500", max_value="519", value_count=20, null_count=0)

    assert widen_table_stats({7: nulls}, [(added,)], leaves("long"), 16) == {
        7: ColumnStats(7, contains_null=True, contains_nan=None, min_value="500", max_value="519")
    }


def test_uuids_in_the_order_of_java_show_duckdb_nothing():
    kind = PrimitiveType.parse("uuid")
    low, high = (to_bytes(kind, UUID(f"{digit}0000000-0000-4000-8000-000000000000")) for digit in "81")

    assert file_stats(file(low, high), leaves("uuid")) == ()
    assert len(file_stats(file(high, low), leaves("uuid"))) == 1


@pytest.mark.parametrize(("contains_nan", "values", "counts"), [
    (False, 2, {"7": 0}), (None, 0, {"7": 0}), (None, 2, None), (True, 2, None),
])  # fmt: skip
def test_nan_are_counted_only_where_there_are_none(contains_nan, values, counts):
    row = ColumnStats(7, contains_nan=contains_nan, value_count=values, null_count=1)

    assert LakeMetrics(leaves("double")).build_metrics([row]).get("nan_value_counts") == counts


def test_bytes_of_files_of_ducklake_have_no_bounds_as_they_may_be_hex_or_the_bytes_themselves():
    row = ColumnStats(7, min_value="ab", max_value="ab", value_count=2, null_count=0)

    assert "lower_bounds" not in LakeMetrics(leaves("binary")).build_metrics([row])
