"""PURE. Rows of Python values as lines of JSON, in the forms that the catalog reads."""

import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from duckicelake.errors import BadInput


def line(row: Mapping[str, Any]) -> bytes:
    """A row as JSON without a line break.

    Times are written as ISO 8601, binary as hexadecimal digits, decimals, uuids, NaN and infinities as texts; numpy's
    numbers as Python's. BadInput for what is no mapping, and for values that JSON can't say.
    """
    if not isinstance(row, Mapping):
        raise BadInput(f"a row is a mapping from column to value, not {type(row).__name__}")
    try:
        return _ENCODER.encode(row if isinstance(row, dict) else dict(row)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return _finite_line(row, error)


def _finite_line(row: Mapping[str, Any], error: Exception) -> bytes:
    try:
        return _ENCODER.encode(_finite(row)).encode()
    except (TypeError, ValueError, RecursionError):
        raise BadInput(f"a value can't be written as JSON: {error}") from error


def _finite(value: Any) -> Any:
    """The value with texts in place of numbers that JSON doesn't have."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def _written(value: Any) -> Any:
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return value.hex()
        case Mapping():
            return dict(value)
    if hasattr(value, "dtype"):
        return _finite(value.tolist())
    raise TypeError(f"{type(value).__name__} is no type of a column's values")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_written)
