"""Transformed values are those of PyIceberg, and keep the order of their sources."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
)

from duckicelake.iceberg.partition import Transform
from duckicelake.iceberg.transforms import apply_transform
from duckicelake.iceberg.types import PrimitiveType

TICKS = ["year", "month", "day", "hour", "identity"]
EPOCH_YEARS = st.integers(-2_000_000_000, 2_000_000_000)  # seconds, within what Python's calendar has
SOURCES: dict[str, Any] = {
    "int": (IntegerType(), st.integers(-(2**31) + 100, 2**31 - 1), ["truncate[10]", "identity"]),
    "long": (LongType(), st.integers(-(2**63) + 100, 2**63 - 1), ["truncate[7]"]),
    "decimal(9, 2)": (DecimalType(9, 2), st.decimals(-99999, 9999999, places=2), ["truncate[50]", "identity"]),
    "string": (StringType(), st.text(), ["truncate[3]", "identity"]),
    "binary": (BinaryType(), st.binary(), ["truncate[3]"]),
    "date": (DateType(), st.integers(-25_000, 25_000), ["year", "month", "day"]),
    "timestamp": (TimestampType(), EPOCH_YEARS.map(lambda seconds: seconds * 10**6 + 999_999), TICKS),
    "timestamp_ns": (TimestampNanoType(), EPOCH_YEARS.map(lambda seconds: seconds * 10**9 + 999_999_999), TICKS),
}


@pytest.mark.parametrize("kind", SOURCES)
@given(data=st.data())
def test_values_are_those_of_pyiceberg_and_in_order(kind: str, data: st.DataObject) -> None:
    oracle, values, transforms = SOURCES[kind]
    text = data.draw(st.sampled_from(transforms))
    transform, source = Transform.parse(text), PrimitiveType.parse(kind)
    value, other = data.draw(values), data.draw(values)

    found = apply_transform(transform, source, value)

    assert found == parse_transform(text).transform(oracle)(value)
    assert (found <= apply_transform(transform, source, other)) or value >= other


def test_days_beyond_pythons_calendar_have_their_years() -> None:
    day = PrimitiveType.parse("date")
    assert apply_transform(Transform.parse("year"), day, -(2**31)) == -5879611
    assert apply_transform(Transform.parse("month"), day, 2**31 - 1) == (5881580 - 1970) * 12 + 6


def test_void_of_anything_is_null() -> None:
    assert apply_transform(Transform.parse("void"), PrimitiveType.parse("variant"), b"\0") is None


def test_truncated_decimals_keep_their_scale() -> None:
    found = apply_transform(Transform.parse("truncate[50]"), PrimitiveType.parse("decimal(9, 2)"), Decimal("-0.01"))
    assert str(found) == "-0.50"
