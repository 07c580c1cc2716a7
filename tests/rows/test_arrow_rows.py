"""Rows as Arrow IPC streams: which types go into which, what is said of those that don't, and streams that are none."""

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from duckicelake.errors import InvalidRequestError
from duckicelake.rows.bodies import read_batch
from duckicelake.rows.layout import Layout
from tests.rows.layouts import ARROW, JSON, column, ipc, layout_of, list_of, map_of, narrow, struct_of
from tests.support.examples import count_examples

UUID_BYTES = bytes.fromhex("f81d4fae7dec11d0a76500a0c91e6bf6")


def read(layout: Layout, array: pa.Array, **how: Any) -> list[Any]:
    """The values of column `a`."""
    return read_batch(ipc(pa.table({"a": array})), ARROW, layout, **how).values[0]


def refused(layout: Layout, array: pa.Array, **how: Any) -> str:
    with pytest.raises(InvalidRequestError) as error:
        read(layout, array, **how)
    return str(error.value)


@pytest.mark.parametrize(
    ("kind", "array", "values"),
    [
        ("boolean", pa.array([True, None]), [True, None]),
        ("int", pa.array([1, 2**31 - 1], pa.uint64()), [1, 2**31 - 1]),
        ("long", pa.array([-1], pa.int8()), [-1]),
        ("float", pa.array([0.1, 1e-50, float("inf")]), [0.10000000149011612, 0.0, float("inf")]),
        ("double", pa.array([1, None], pa.int32()), [1.0, None]),
        ("double", pa.array([1.5], pa.float16()), [1.5]),
        ("decimal(9, 2)", pa.array([1, None]), [Decimal("1.00"), None]),
        ("decimal(9, 2)", pa.array([Decimal("1.5")], pa.decimal256(60, 1)), [Decimal("1.50")]),
        ("decimal(9, 2)", pa.array([Decimal("1.5")], pa.decimal32(4, 1)), [Decimal("1.50")]),
        ("date", pa.array([date(1969, 12, 31)], pa.date64()), [-1]),
        ("time", pa.array([time(0, 0, 1)], pa.time32("s")), [1_000_000]),
        ("timestamp", pa.array([datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("s")), [1_000_000]),
        ("timestamptz", pa.array([datetime(1970, 1, 1, tzinfo=UTC)], pa.timestamp("ns", "Europe/Rome")), [0]),
        ("timestamp_ns", pa.array([1], pa.timestamp("us")), [1000]),
        ("string", pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        ("string", pa.array(["é" * 20, None, "b"], pa.string_view()), ["é" * 20, None, "b"]),
        ("string", pa.array(["a"], pa.large_string()), ["a"]),
        ("uuid", pa.array([UUID_BYTES, None], pa.uuid()), [UUID_BYTES, None]),
        ("uuid", pa.array(["f81d4fae-7dec-11d0-a765-00a0c91e6bf6", None]), [UUID_BYTES, None]),
        ("binary", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        ("fixed[2]", pa.array([b"ab"], pa.large_binary()), [b"ab"]),
        ("int", pa.nulls(2), [None, None]),
        (list_of("long"), pa.array([[1], None, []], pa.large_list(pa.int32())), [[1], None, []]),
        (list_of("long"), pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), [[1, 2], None]),
        (map_of("string", "long"), pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())), [[("a", 1)], None]),
        (struct_of(x="long", y="string"), pa.array([{"y": "b"}, None]), [(None, "b"), None]),
        (
            list_of(struct_of(d="timestamp")),
            pa.array([[{"d": datetime(1970, 1, 2)}, None]]),
            [[(86_400_000_000,), None]],
        ),
    ],
)
def test_type_goes_into_the_columns(kind: Any, array: pa.Array, values: list[Any]) -> None:
    layout = column(kind)
    found = read(layout, array)
    assert repr(found) == repr(values)
    again = read_batch(ipc(pa.table({"a": array}), "zstd", chunk=1), ARROW, layout)
    assert again.table.schema == layout.arrow_schema
    assert repr(again.values) == repr([values])


@pytest.mark.parametrize(
    ("kind", "array", "said"),
    [
        ("int", pa.array([1.0]), "column a: it is a double, which doesn't go into a int32 without loss: cast it first"),
        ("int", pa.array([0, 2**31]), "row 1, column a: 2147483648: it doesn't go into a int32: Integer value"),
        ("float", pa.array([1.0, 1e39]), "row 1, column a: 1e+39: it doesn't go into a float: a number is beyond"),
        ("decimal(3, 2)", pa.array([1, 10]), "row 1, column a: 10: it doesn't go into a decimal128(3, 2)"),
        ("decimal(9, 1)", pa.array([Decimal("0.25")]), "row 0, column a: Decimal('0.25'): it doesn't go into a"),
        ("timestamp", pa.array([1], pa.timestamp("us", "UTC")), "it is a timestamp[us, tz=UTC], which doesn't go into"),
        ("timestamptz", pa.array([1], pa.timestamp("us")), "it is a timestamp[us], which doesn't go into"),
        (
            "timestamp",
            pa.array([0, 1], pa.timestamp("ns")),
            "Casting from timestamp[ns] to timestamp[us] would lose data: 1",
        ),
        ("timestamp", pa.array([0, 2**63 - 1], pa.timestamp("us")), "row 1, column a: 9223372036854775807: DuckDB's"),
        ("date", pa.array([2**31 - 1], pa.int32()).view(pa.date32()), "row 0, column a: 2147483647: DuckDB's values"),
        ("string", pa.array([b"a"]), "it is a binary, which doesn't go into a string"),
        ("uuid", pa.array(["f81d"]), "row 0, column a: 'f81d': it doesn't go into a fixed_size_binary[16]"),
        ("fixed[2]", pa.array([b"abc"]), "row 0, column a: b'abc': it doesn't go into a fixed_size_binary[2]"),
        ("variant", pa.array(["x"]), "column a: no values of type variant can be stored so: leave the column out"),
        (list_of("int"), pa.array([[1], [2**40]]), "row 1, column a: [1099511627776]: it doesn't go into a list"),
        (list_of("int", required=True), pa.array([[1], [2, None]], pa.list_(pa.int32())), "row 1, column a[1]: null"),
        (struct_of(x=("int",)), pa.array([{"x": None}], pa.struct({"x": pa.int32()})), "row 0, column a.x: null"),
        (struct_of(x="int"), pa.array([{"x": 1, "z": 2}]), "column a: 'z': the table has no such column"),
        (struct_of(x="int"), pa.array([{"x": "1"}]), "column a.x: it is a string, which doesn't go into a int32"),
        (map_of("string", "int"), pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int32())), "comes twice"),
        ("int", pa.RunEndEncodedArray.from_arrays([2], [1]), "it is a run_end_encoded<run_ends: int64, values: int64>"),
        ("uuid", pa.array([b"x" * 16], pa.binary(16)).cast(pa.binary()), "it is a binary, which doesn't go into"),
        (list_of("int"), pa.array([{"x": 1}]), "it is a struct<x: int64>, which doesn't go into a list"),
    ],
)
def test_misfit_is_named(kind: Any, array: pa.Array, said: str) -> None:
    assert said in refused(column(kind), array)


@pytest.mark.parametrize(
    ("declared", "kind", "array"),
    [
        ("int8", "int", pa.array([0, 128], pa.int32())),
        ("uint64", "decimal(20, 0)", pa.array([Decimal(0), Decimal(2**64)], pa.decimal128(20, 0))),
        ("timestamp_ms", "timestamp", pa.array([0, 1], pa.timestamp("us"))),
        ("json", "string", pa.array(["{}", "{"])),
    ],
)
def test_column_that_duckdb_declares_narrower_takes_what_fits(declared: str, kind: str, array: pa.Array) -> None:
    layout = narrow(kind, declared)
    assert len(read(layout, array[:1])) == 1
    assert "row 1, column a: " in refused(layout, array)


def test_nulls_of_a_required_column_are_named_by_row() -> None:
    layout = column("int", required=True)
    assert "row 1, column a: null: the column is required" in refused(layout, pa.array([1, None], pa.int32()))


def test_columns_come_by_name_in_any_order_and_missing_ones_get_defaults() -> None:
    layout = layout_of(
        {"name": "a", "type": "int"},
        {"name": "b", "type": "string", "write-default": "x"},
        {"name": "c", "type": "int"},
    )
    body = ipc(pa.table({"c": [3], "a": [1]}))
    assert read_batch(body, ARROW, layout).values == [[1], ["x"], [3]]
    extra = ipc(pa.table({"c": [3], "z": [1]}))
    assert read_batch(extra, ARROW, layout, on_unknown="ignore").values == [[None], ["x"], [3]]
    with pytest.raises(InvalidRequestError, match="'z': the table has no such column: there are a, b, c"):
        read_batch(extra, ARROW, layout)
    with pytest.raises(InvalidRequestError, match="'c': the name comes twice"):
        read_batch(ipc(pa.Table.from_arrays([pa.array([1])] * 2, names=["c", "c"])), ARROW, layout)


ROWS = pa.table({"a": list(range(500)), "s": ["x" * 100] * 500})


def test_stream_that_was_cut_off_anywhere_is_refused() -> None:
    layout = layout_of({"name": "a", "type": "long"}, {"name": "s", "type": "string"})
    body = ipc(ROWS, "zstd", chunk=100)
    assert read_batch(body, ARROW, layout).num_rows == 500
    for length in range(0, len(body), 37):
        with pytest.raises(InvalidRequestError):
            read_batch(body[:length], ARROW, layout)
    with pytest.raises(InvalidRequestError, match="goes on after the end"):
        read_batch(body + b"x", ARROW, layout)


def test_damaged_streams_are_refused_or_read() -> None:
    """None crashes the process, hangs, or fails as if the server were to blame."""
    layout = layout_of({"name": "a", "type": "long"}, {"name": "s", "type": "string"})
    chance = random.Random(7)
    body = ipc(ROWS.slice(0, 20), "zstd")
    refusals = 0
    for _ in range(400):
        damaged = bytearray(body)
        for _ in range(3):
            damaged[chance.randrange(len(body))] = chance.randrange(256)
        try:
            read_batch(bytes(damaged), ARROW, layout)
        except InvalidRequestError:
            refusals += 1
    assert refusals > 300


def test_text_that_is_no_utf8_is_refused() -> None:
    array = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    assert "Invalid Arrow IPC stream: " in refused(column("string"), array)


@pytest.mark.parametrize(
    ("make_table", "said"),
    [
        (lambda: pa.table({"a": ["x" * 100_000_000] * 3}), "up to 268435456 bytes uncompressed, not 300000"),
        (
            lambda: pa.table({"a": pa.nulls(2_000_000)}),
            "A batch takes up to 1,048,576 rows of this table, not 2000000: send several",
        ),
        (
            lambda: pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0] * 1_000_000), pa.array(["x" * 1000]))}),
            "up to 268435456 bytes uncompressed, not 1000000000",
        ),
    ],
    ids=["compressed", "nulls", "dictionary"],
)
def test_small_body_that_becomes_large_is_refused(make_table: Callable[[], pa.Table], said: str) -> None:
    body = ipc(make_table(), "zstd")
    assert len(body) < 1_000_000
    with pytest.raises(InvalidRequestError, match=said):
        read_batch(body, ARROW, column("string"))


TYPES = {
    "boolean": some.booleans(),
    "int": some.integers(-(2**31), 2**31 - 1),
    "double": some.floats(allow_nan=False, allow_infinity=False),
    "decimal(12, 3)": some.decimals(-(10**9) + 1, 10**9 - 1, places=3, allow_nan=False).map(str),
    "date": some.dates().map(str),
    "timestamp": some.datetimes().map(datetime.isoformat),
    "string": some.text(),
    "uuid": some.uuids().map(str),
}
NESTED = struct_of(x="timestamptz", l=list_of("uuid"))
LAYOUT = layout_of(*({"name": kind, "type": kind} for kind in TYPES), {"name": "s", "type": map_of("string", NESTED)})
MOMENTS = some.datetimes(timezones=some.just(UTC)).map(datetime.isoformat)
STRUCTS = some.fixed_dictionaries({}, optional={"x": MOMENTS, "l": some.lists(some.none() | TYPES["uuid"], max_size=2)})
NESTED_ROWS = {"s": some.dictionaries(some.text(max_size=3), some.none() | STRUCTS, max_size=2)}
ANY_ROWS = some.lists(some.fixed_dictionaries({}, optional=TYPES | NESTED_ROWS), max_size=4)


@settings(max_examples=count_examples(60), deadline=None)
@given(ANY_ROWS)
def test_rows_are_the_same_as_json_and_as_arrow(rows: list[dict[str, Any]]) -> None:
    from_json = read_batch(orjson.dumps(rows), JSON, LAYOUT)
    from_arrow = read_batch(ipc(from_json.table, chunk=2), ARROW, LAYOUT)
    assert from_arrow.values == from_json.values
    for index in range(len(LAYOUT.stored)):
        assert from_arrow.encode_column(index) == from_json.encode_column(index)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (struct_of(x="long"), pa.Array.from_buffers(pa.struct([]), 150_000_000, [None])),
        ("binary", pa.Array.from_buffers(pa.binary(0), 150_000_000, [None, pa.py_buffer(b"")])),
        ("long", pa.nulls(150_000_000)),
    ],
    ids=["structs of nothing", "no bytes", "nulls"],
)
def test_list_of_values_without_bytes_is_refused(kind: Any, values: pa.Array) -> None:
    lists = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    assert "up to 8388608 values inside lists and maps, not " in refused(column(list_of(kind)), lists)
