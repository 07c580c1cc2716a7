"""Rows as JSON: which values each type takes, in memory (see `rows.kinds`), and what is said of what does not fit."""

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pytest

from duckicelake.bridge.values.columns import to_columns
from duckicelake.errors import InvalidRequestError
from duckicelake.rows.bodies import read_batch
from duckicelake.rows.columns import build_row_columns
from duckicelake.rows.layout import Layout
from tests.rows.layouts import JSON, NDJSON, column, layout_of, list_of, map_of, narrow, schema_of, struct_of

UUID_BYTES = bytes.fromhex("f81d4fae7dec11d0a76500a0c91e6bf6")
PERSON = struct_of(name=("string",), born="date")


def read(layout: Layout, body: str, **how: Any) -> list[Any]:
    """The values of the first column."""
    return read_batch(body.encode(), JSON, layout, **how).values[0]


@pytest.mark.parametrize(
    ("kind", "json", "value"),
    [
        ("boolean", "true", True),
        ("int", "-2147483648", -(2**31)),
        ("long", "9223372036854775807", 2**63 - 1),
        ("float", "0.1", 0.10000000149011612),
        ("double", "1", 1.0),
        ("double", "-0.0", -0.0),
        ("double", '"Infinity"', math.inf),
        ("float", '"-Infinity"', -math.inf),
        ("decimal(38, 10)", "1234567890123456789012345678.0123456789", "1234567890123456789012345678.0123456789"),
        ("decimal(4, 1)", '"-0.50"', "-0.5"),
        ("decimal(4, 1)", "12e1", "120.0"),
        ("date", '"1969-12-31"', -1),
        ("date", '"-0043-03-15"', -735160),
        ("time", '"13:45:07.5"', 49_507_500_000),
        ("timestamp", '"1969-12-31T23:59:59.999999"', -1),
        ("timestamp", '"2026-11-22 08:32"', 1_795_336_320_000_000),
        ("timestamp", '"+12345-01-01T00:00:00"', 327_403_382_400_000_000),
        ("timestamptz", '"1970-01-01T05:30:00+05:30"', 0),
        ("timestamptz", '"1970-01-01t00:00:00.1z"', 100_000),
        ("timestamptz", '"0001-01-01T00:00:00-00:01"', -62_135_596_740_000_000),
        ("timestamp_ns", '"1969-12-31T23:59:59.999999999"', -1),
        ("timestamptz_ns", '"1970-01-01T01:00:00.000000001+0100"', 1),
        ("string", '"\\u0000\\ud83d\\ude00"', "\0😀"),
        ("uuid", '"F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"', UUID_BYTES),
        ("binary", '"00fF"', b"\0\xff"),
        ("fixed[2]", '"00ff"', b"\0\xff"),
        (list_of("int"), "[1, null]", [1, None]),
        (map_of("string", "int"), '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        (map_of("int", "int"), '{"keys": [1, 2], "values": [3, null]}', [(1, 3), (2, None)]),
        (PERSON, '{"name": "Ada"}', ("Ada", None)),
        (list_of(PERSON), '[{"name": "Ada", "born": "1815-12-10"}, null]', [("Ada", -56270), None]),
    ],
)
def test_value_is_read(kind: Any, json: str, value: Any) -> None:
    (found,) = read(column(kind), f'[{{"a": {json}}}]')
    wanted = Decimal(value) if str(kind).startswith("decimal") else value
    assert (repr(found), type(found)) == (repr(wanted), type(wanted))


def test_nan_is_a_text() -> None:
    assert math.isnan(read(column("double"), '[{"a": "NaN"}]')[0])


@pytest.mark.parametrize(
    ("kind", "json", "said"),
    [
        ("boolean", "1", "1: write true or false"),
        ("int", "2147483648", "2147483648: write a whole number from -2147483648 to 2147483647"),
        ("int", "1.0", "1.0: write a whole number"),
        ("int", "true", "True: write a whole number"),
        ("long", "9223372036854775808", "write a whole number from -9223372036854775808 to 9223372036854775807"),
        ("float", "1e39", "1e+39: write a number that 32 bits hold"),
        ("double", '"nan"', "'nan': write a number, or 'NaN'"),
        ("decimal(4, 1)", "0.25", "write a number of at most 4 digits, 1 of them after the point"),
        ("decimal(4, 1)", "1000", "write a number of at most 4 digits"),
        ("date", '"2026-02-30"', "'2026-02-30': write a text such as 2026-08-31"),
        ("date", "20260101", "20260101: write a text such as"),
        ("date", '"+5881580-07-11"', "DuckDB's values of type date don't reach there"),
        ("time", '"24:00:00"', "'24:00:00': write a text such as 13:45:07.5"),
        ("timestamp", '"2026-01-01T00:00:00Z"', "write a text such as 2026-08-31T13:45:07.5, without a zone"),
        ("timestamptz", '"2026-01-01T00:00:00"', "2026-08-31T13:45:07.5Z, with its offset from UTC"),
        ("timestamptz", "1767225600000", "1767225600000: write a text such as"),
        ("timestamp", '"2026-01-01T00:00:00.0000001"', "or the column's 6 decimals can't say it"),
        ("timestamp", '"2026-02-30T00:00:00"', "there is no such moment"),
        ("timestamp_ns", '"3000-01-01T00:00:00"', "DuckDB's values of type timestamp_ns don't reach there"),
        ("timestamptz_ns", '"0001-01-01T00:00:00Z"', "DuckDB's values of type timestamptz_ns don't reach there"),
        ("string", "1", "1: write a text"),
        ("uuid", '"f81d4fae"', "'f81d4fae': write a text such as f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
        ("binary", '"abc"', "'abc': write a text of hexadecimal digits"),
        ("fixed[2]", '"00"', "'00': write a text of hexadecimal digits, two for each of 2 bytes"),
        ("variant", "1", "column a: 1: no values of the column's type can be stored so"),
        (list_of("int"), "1", "column a: 1: write an array"),
        (list_of("int"), '[1, "x"]', "column a[1]: 'x': write a whole number"),
        (list_of("int", required=True), "[null]", "column a[0]: null: the column is required"),
        (map_of("string", "int"), '{"k": "x"}', "column a['k']: 'x': write a whole number"),
        (map_of("int", "int"), '{"1": 2}', "write {'keys': [...], 'values': [...]}, both as long"),
        (map_of("int", "int"), '{"keys": [1, 1], "values": [2, 3]}', "column a: [1, 1]: a key comes twice"),
        (map_of("int", "int"), '{"keys": [null], "values": [2]}', "column a.key: null: the column is required"),
        (PERSON, '{"born": null}', "column a.name: it isn't there, and the column is required and has no default"),
        (
            PERSON,
            '{"name": "Ada", "Born": null}',
            "column a: 'Born': the table has no such column: did you mean 'born'?",
        ),
        (PERSON, '"Ada"', "column a: 'Ada': write an object of name, born"),
    ],
)
def test_misfit_is_named(kind: Any, json: str, said: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        read(column(kind), f'[{{}}, {{"a": {json}}}]')
    assert str(error.value).startswith("Nothing was stored, as not all rows fit: row 1, column a")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("declared", "kind", "fits", "misfit", "said"),
    [
        ("int8", "int", "-128", "128", "from -128 to 127"),
        ("uint8", "int", "255", "-1", "from 0 to 255"),
        ("uint32", "long", "4294967295", "4294967296", "from 0 to 4294967295"),
        ("uint64", "decimal(20, 0)", "18446744073709551615", "18446744073709551616", "to 18446744073709551615"),
        ("timestamp_s", "timestamp", '"2026-01-01T00:00:01"', '"2026-01-01T00:00:00.5"', "the column is a timestamp_s"),
        ("timestamp_ms", "timestamp", '"2026-01-01T00:00:00.5"', '"2026-01-01T00:00:00.0005"', "a timestamp_ms"),
        ("json", "string", '"{\\"a\\": 1}"', '"{"', "write a text that is JSON"),
    ],
)
def test_column_that_duckdb_declares_narrower_takes_what_fits(
    declared: str, kind: str, fits: str, misfit: str, said: str
) -> None:
    layout = narrow(kind, declared)
    assert len(read(layout, f'[{{"a": {fits}}}]')) == 1
    with pytest.raises(InvalidRequestError, match=said):
        read(layout, f'[{{"a": {misfit}}}]')


TWO = layout_of({"name": "id", "type": "long", "required": True}, {"name": "price", "type": "decimal(38, 20)"})


def refused(body: bytes | str, layout: Layout = TWO, kind: str = JSON, **how: Any) -> str:
    with pytest.raises(InvalidRequestError) as error:
        read_batch(body if isinstance(body, bytes) else body.encode(), kind, layout, **how)
    return str(error.value)


def test_lines_are_rows() -> None:
    batch = read_batch(b'{"id": 1}\r\n\n{"id": 2, "price": 0.5}\n', "application/x-ndjson; charset=utf-8", TWO)
    assert batch.values == [[1, 2], [None, Decimal("0.50000000000000000000")]]
    assert batch.num_rows == 2


@pytest.mark.parametrize("kind", [JSON, NDJSON])
def test_no_rows_are_no_rows(kind: str) -> None:
    assert read_batch(b"[]" if kind == JSON else b"", kind, TWO).values == [[], []]


def test_numbers_of_decimals_keep_their_digits() -> None:
    (_, (price,)) = read_batch(b'[{"id": 1, "price": 123456789.01234567890123456789}]', JSON, TWO).values
    assert str(price) == "123456789.01234567890123456789"


@pytest.mark.parametrize(
    "layout", [TWO, layout_of({"name": "id", "type": "long"}, {"name": "price", "type": "double"})]
)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            '{"id": 1}',
            "Invalid JSON body: expected an array [{...}, {...}], or an object a line as application/x-ndjson",
        ),
        ("[1]", "row 0: 1: write an object, of names and values"),
        ('[{"id": 1, "id": 2}]', "the name 'id' comes twice in one object"),
        ('[{"id" :1, "id":2}]', "the name 'id' comes twice in one object"),
        ('[{"id": 1, "\\u0069d": 2}]', "the name 'id' comes twice in one object"),
        ('[{"id": 1, "price": NaN}]', "isn't JSON"),
        ('[{"id": 1, "price": "\\ud800"}]', "isn't JSON"),
        ('[{"id": 1', "isn't JSON"),
        (b'[{"id": 1, "price": "\xff"}]', "isn't JSON"),
        ("[" * 100_000, "isn't JSON"),
        ('[{"id": ' + "9" * 5000 + "}]", ""),
    ],
)
def test_body_that_is_no_array_of_rows_is_refused(layout: Layout, body: str | bytes, said: str) -> None:
    assert said in refused(body, layout)


def test_duplicate_name_is_found_beside_texts_with_colons() -> None:
    layout = layout_of({"name": "a", "type": "string"}, {"name": "s", "type": struct_of(t="string", u="string")})
    good = {"a": "12:30:00", "s": {"t": ":", "u": "::"}}
    assert read_batch(orjson.dumps([good, good]), JSON, layout).values[0] == ["12:30:00"] * 2
    twice = '[{"a": "12:30", "s": {"t": "a:b", "u": "\\u003a", "t": ":"}}]'
    assert "the name 't' comes twice" in refused(twice, layout)


def test_line_that_is_no_json_is_named() -> None:
    assert "line 2 isn't JSON" in refused('{"id": 1}\n\n{"id":', kind=NDJSON)


def test_other_content_types_are_refused() -> None:
    said = refused(b"id\n1\n", kind="text/csv")
    assert said.startswith(
        "Rows can't be read from 'text/csv': send application/vnd.apache.arrow.stream, application/json"
    )


def test_first_few_misfits_are_named_by_row() -> None:
    rows = [{"id": row, "price": "x"} if row % 2 else {"price": 1} for row in range(1000)]
    said = refused(orjson.dumps(rows))
    assert said.count("row ") == 5
    assert (
        "row 0, column id: it isn't there, and the column is required and has no default; row 1, column price" in said
    )
    assert said.endswith("; …")


def test_unknown_names_are_refused_or_ignored() -> None:
    body = '[{"id": 1, "prize": 2}]'
    assert "row 0: 'prize': the table has no such column: did you mean 'price'?" in refused(body)
    assert read_batch(body.encode(), JSON, TWO, on_unknown="ignore").values == [[1], [None]]
    assert "did you mean 'id'?" in refused('[{"ID": 1}]', on_unknown="ignore")


def test_unknown_names_inside_structs_are_ignored_alike() -> None:
    layout = column(struct_of(x="int"))
    assert "'z': the table has no such column" in refused('[{"a": {"x": 1, "z": 2}}]', layout)
    assert read(layout, '[{"a": {"x": 1, "z": 2}}]', on_unknown="ignore") == [(1,)]


def test_defaults_stand_in_for_missing_values_and_not_for_nulls() -> None:
    inner = struct_of(x="int")
    inner["fields"][0] |= {"write-default": 7}
    layout = layout_of(
        {"name": "a", "type": "timestamptz", "write-default": "1970-01-01T00:00:01+00:00"}, {"name": "s", "type": inner}
    )
    body = b'[{}, {"a": null, "s": {}}, {"s": {"x": null}}]'
    assert read_batch(body, JSON, layout).values == [[1_000_000, None, 1_000_000], [None, (7,), (None,)]]


def test_default_that_only_duckdb_computes_must_be_sent() -> None:
    schema = schema_of({"name": "a", "type": "timestamptz"})
    (declared,) = to_columns(schema)
    layout = Layout(
        build_row_columns(schema, [replace(declared, default_value="now()", default_value_type="expression")])
    )
    assert "only DuckDB computes the column's default now(): send a value" in refused("[{}]", layout)
    assert read(layout, '[{"a": null}]') == [None]


def test_columns_that_hold_nothing_take_nulls() -> None:
    layout = layout_of({"name": "u", "type": "unknown"}, {"name": "v", "type": "variant"}, {"name": "a", "type": "int"})
    assert read(layout, '[{"u": null, "v": null, "a": 1}, {}]') == [1, None]
    assert layout.arrow_schema.names == ["a"]
    assert layout.obstacle == "DuckLake inlines no rows of a table with a column of type variant"


def test_rows_of_nothing_are_counted() -> None:
    layout = layout_of(*({"name": f"c{index}", "type": "int"} for index in range(1000)))
    said = refused(b"[" + b"{}," * 40_000 + b"{}]", layout)
    assert said == "A batch takes up to 33,554 rows of this table, not 40001: send several"


def test_long_values_are_shortened() -> None:
    assert len(refused(orjson.dumps([{"id": "x" * 10**6}]))) < 300


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b"{}\n" * 1_048_577, NDJSON, "up to 1,048,576 rows of this table, not 1048577"),
        (
            b"[" + b"[]," * 3_000_000,
            JSON,
            "up to 2097152 opening brackets of JSON, those in texts included, not 3000001",
        ),
        (b'[{"l": [' + b"1," * 9_000_000, JSON, "up to 8388608 brackets and commas of JSON"),
        (b'[{"l": [' + b"null," * 100_000 + b"{}]}]", JSON, "lists and maps, not 10100101 or more: send several"),
    ],
)
def test_body_of_too_many_values_is_refused(body: bytes, kind: str, said: str) -> None:
    layout = column(list_of(struct_of(**{f"f{index}": "int" for index in range(100)})))
    assert said in refused(body.replace(b'"l"', b'"a"'), layout, kind)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"price": 9e99999999999999999999}', "a number whose exponent no type holds"),
        ('{"d": 1e400}', "row 0, column d: Decimal('1E+400'): write a number that 64 bits hold"),
    ],
)
def test_number_beyond_every_type_is_refused_beside_decimals(row: str, said: str) -> None:
    layout = layout_of({"name": "price", "type": "decimal(38, 2)"}, {"name": "d", "type": "double"})
    assert said in refused(f"[{row}]", layout)
