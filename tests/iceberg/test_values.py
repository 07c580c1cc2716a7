import math
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyiceberg.conversions as oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pyiceberg.types import IcebergType as OracleType

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.types import IcebergType, PrimitiveType, StructType
from duckicelake.iceberg.values import from_bytes, from_json, from_unscaled, to_bytes, to_json

ORACLE: TypeAdapter[Any] = TypeAdapter(OracleType)
OURS: TypeAdapter[Any] = TypeAdapter(IcebergType)
INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": INT,
    "long": LONG,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "date": INT,
    "time": st.integers(0, 86_400 * 10**6 - 1),
    "timestamp": LONG,
    "timestamptz": LONG,
    "timestamp_ns": LONG,
    "timestamptz_ns": LONG,
    "string": st.text(st.characters(codec="utf-8")),
    "uuid": st.uuids(),
    "fixed[5]": st.binary(min_size=5, max_size=5),
    "binary": st.binary(),
    "decimal(9, 2)": st.decimals(Decimal("-9999999.99"), Decimal("9999999.99"), places=2),
    "decimal(38, 10)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda each: from_unscaled(each, 10)),
}


def typed_values() -> st.SearchStrategy[tuple[str, Any]]:
    return st.sampled_from(sorted(VALUES)).flatmap(lambda kind: VALUES[kind].map(lambda value: (kind, value)))


def kind_of(text: str) -> PrimitiveType:
    return PrimitiveType.parse(text)


@given(typed_values())
def test_stored_value_is_read_back_and_is_what_pyiceberg_stores(typed: tuple[str, Any]) -> None:
    text, value = typed
    stored = to_bytes(kind_of(text), value)
    assert from_bytes(kind_of(text), stored) == value
    if not text.endswith("_ns"):
        assert stored == oracle.to_bytes(ORACLE.validate_python(text.replace(" ", "")), value)


@given(typed_values())
def test_json_value_is_read_back(typed: tuple[str, Any]) -> None:
    text, value = typed
    if isinstance(value, float) and math.isinf(value):
        with pytest.raises(InvalidRequestError, match="inf"):
            to_json(kind_of(text), value)
    else:
        assert from_json(kind_of(text), to_json(kind_of(text), value)) == value


@given(st.dates())
def test_date_is_what_python_writes(day: date) -> None:
    days = (day - date(1970, 1, 1)).days
    assert to_json(kind_of("date"), days) == day.isoformat()
    assert from_json(kind_of("date"), day.isoformat()) == days


@given(st.datetimes())
def test_timestamp_is_what_pyiceberg_reads_and_writes(moment: Any) -> None:
    micros = (moment - moment.min.replace(year=1970)) // timedelta(microseconds=1)
    text = to_json(kind_of("timestamp"), micros)
    assert text == oracle.to_json(ORACLE.validate_python("timestamp"), micros)
    assert from_json(kind_of("timestamptz"), text + "+00:00") == micros


# Spec, Appendix D, "JSON single-value serialization": its examples.
@pytest.mark.parametrize(
    ("text", "value", "json"),
    [
        ("boolean", True, True),
        ("int", 34, 34),
        ("long", 34, 34),
        ("float", 1.0, 1.0),
        ("double", 1.0, 1.0),
        ("decimal(9, 2)", Decimal("14.20"), "14.20"),
        ("date", 17486, "2017-11-16"),
        ("time", 81_068_123_456, "22:31:08.123456"),
        ("timestamp", 1_510_871_468_123_456, "2017-11-16T22:31:08.123456"),
        ("timestamptz", 1_510_871_468_123_456, "2017-11-16T22:31:08.123456+00:00"),
        ("timestamp_ns", 1_510_871_468_123_456_789, "2017-11-16T22:31:08.123456789"),
        ("timestamptz_ns", 1_510_871_468_123_456_789, "2017-11-16T22:31:08.123456789+00:00"),
        ("string", "iceberg", "iceberg"),
        ("uuid", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        ("fixed[4]", b"\x00\x01\x02\xff", "000102ff"),
        ("binary", b"\x00\x01\x02\xff", "000102ff"),
    ],
)
def test_json_of_the_specs_examples(text: str, value: Any, json: Any) -> None:
    assert to_json(kind_of(text), value) == json
    assert from_json(kind_of(text), json) == value


def test_years_beyond_pythons_calendar_are_written_with_their_sign() -> None:
    assert to_json(kind_of("date"), 2_932_897) == "+10000-01-01"
    assert to_json(kind_of("date"), -719_529) == "-0001-12-31"
    assert from_json(kind_of("date"), "+10000-01-01") == 2_932_897


@pytest.mark.parametrize(
    ("text", "stored", "value"),
    [
        ("long", (-7).to_bytes(4, "little", signed=True), -7),
        ("double", b"\x00\x00\xc0\x3f", 1.5),
        ("timestamp", (2).to_bytes(4, "little"), 2 * 86_400 * 10**6),
        ("timestamp_ns", (2).to_bytes(4, "little"), 2 * 86_400 * 10**9),
        ("decimal(20, 2)", b"\x01\x00", Decimal("2.56")),
        ("decimal(9, 2)", b"\x00\x00\x00\x01", Decimal("0.01")),
        ("boolean", b"\x07", True),
        ("fixed[16]", b"truncated", b"truncated"),
    ],
)
def test_bound_of_a_promoted_or_truncated_column_is_read_by_its_length(text: str, stored: bytes, value: Any) -> None:
    result = from_bytes(kind_of(text), stored)
    assert (type(result), result) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("int", bytes(8)),
        ("int", b""),
        ("long", bytes(3)),
        ("time", bytes(4)),
        ("timestamptz", bytes(4)),
        ("float", bytes(8)),
        ("double", bytes(9)),
        ("boolean", b""),
        ("uuid", bytes(15)),
        ("decimal(9, 2)", b""),
        ("decimal(9, 2)", bytes(17)),
        ("string", b"\xff"),
        ("unknown", b""),
    ],
)
def test_bound_of_a_wrong_length_is_refused_naming_the_type(text: str, stored: bytes) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        from_bytes(kind_of(text), stored)
    assert text in str(caught.value)


@given(st.sampled_from(sorted(VALUES)), st.binary(max_size=20))
def test_any_bytes_are_a_value_or_a_bad_request(text: str, stored: bytes) -> None:
    try:
        value = from_bytes(kind_of(text), stored)
    except InvalidRequestError:
        return
    assert type(value) in {bool, int, float, str, bytes, UUID, Decimal}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(VALUES)), JSON)
def test_any_json_is_a_value_or_a_bad_request(text: str, json: Any) -> None:
    try:
        value = from_json(kind_of(text), json)
    except InvalidRequestError:
        return
    assert value is None or to_bytes(kind_of(text), value) is not None


@pytest.mark.parametrize(
    ("text", "json"),
    [
        ("boolean", 1),
        ("int", 2**31),
        ("int", True),
        ("int", 1.0),
        ("long", "1"),
        ("float", 1e39),
        ("double", "NaN"),
        ("decimal(9, 2)", 14.2),
        ("decimal(9, 2)", "14.205"),
        ("decimal(9, 2)", "10000000.00"),
        ("decimal(9, 2)", "Infinity"),
        ("decimal(9, 2)", "1e999999999"),
        ("decimal(9, 2)", "1e-999999999"),
        ("decimal(9, 2)", "0." + "1" * 200),
        ("date", "2023-02-29"),
        ("date", "2023-13-01"),
        ("date", "23-01-01"),
        ("date", "+999999999-01-01"),
        ("time", "24:00:00"),
        ("time", "10:00:00.1234567"),
        ("timestamp", "2023-01-01 10:00:00"),
        ("timestamp", "2023-01-01T10:00:00+00:00"),
        ("timestamptz", "2023-01-01T10:00:00"),
        ("timestamptz", "2023-01-01T10:00:00+01:00"),
        ("timestamp_ns", "2500-01-01T00:00:00"),
        ("uuid", "f79c3e09677c4bbda4793f349cb785e7"),
        ("fixed[4]", "0001"),
        ("binary", "0g"),
        ("geometry", "POINT (30 10)"),
        ("variant", {}),
        ("unknown", 1),
    ],
)
def test_json_that_is_no_value_of_the_type_is_refused(text: str, json: Any) -> None:
    with pytest.raises(InvalidRequestError):
        from_json(kind_of(text), json)


@pytest.mark.parametrize(
    ("text", "value"),
    [("int", 2**31), ("int", "1"), ("int", True), ("double", 1), ("decimal(4, 2)", Decimal(100)), ("unknown", 1)],
)
def test_value_of_another_type_is_not_stored(text: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"isn't|doesn't"):
        to_bytes(kind_of(text), value)


def test_nested_values_have_the_specs_json() -> None:
    kind: StructType = OURS.validate_python(
        {
            "type": "struct",
            "fields": [
                {"id": 1, "name": "a", "required": True, "type": "int"},
                {
                    "id": 2,
                    "name": "b",
                    "required": False,
                    "type": {"type": "list", "element-id": 3, "element": "date", "element-required": False},
                },
                {
                    "id": 4,
                    "name": "c",
                    "required": False,
                    "type": {
                        "type": "map",
                        "key-id": 5,
                        "key": "string",
                        "value-id": 6,
                        "value": "decimal(4, 1)",
                        "value-required": False,
                    },
                },
            ],
        }
    )
    value = {1: 7, 2: (0, None), 4: (("x", Decimal("1.5")), ("y", None))}
    json = {"1": 7, "2": ["1970-01-01", None], "4": {"keys": ["x", "y"], "values": ["1.5", None]}}
    assert to_json(kind, value) == json
    assert from_json(kind, json) == value
    for wrong in ([], {"2": 1}, {"4": {}}, {"4": {"keys": ["x"], "values": []}}):
        with pytest.raises(InvalidRequestError):
            from_json(kind, wrong)
