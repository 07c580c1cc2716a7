"""Transforms of values that keep their order (table spec, "Partition Transforms"): all but bucket."""

from decimal import Decimal
from typing import Any

from duckicelake.iceberg.calendar import DAY_SECONDS, civil
from duckicelake.iceberg.decimals import scaled, unscaled
from duckicelake.iceberg.partition import Transform
from duckicelake.iceberg.types import PrimitiveType

_HOUR_SECONDS = 3600
_TICKS = dict.fromkeys(("timestamp", "timestamptz"), 10**6) | dict.fromkeys(("timestamp_ns", "timestamptz_ns"), 10**9)
"""How many of a type's units are a second."""


def transformed(transform: Transform, source: PrimitiveType, value: Any) -> Any:
    """The value, which isn't null, transformed; the transform must take the source type and be no bucket."""
    match transform.name:
        case "identity":
            return value
        case "void":
            return None
        case "truncate":
            return _truncated(transform.width or 1, source, value)
        case name:
            return _offset(name, source, value)


def _truncated(width: int, source: PrimitiveType, value: Any) -> Any:
    if isinstance(value, Decimal):
        whole = unscaled(value, source.precision or 0, source.scale or 0)
        return scaled(whole - whole % width, source.scale or 0)
    return value - value % width if isinstance(value, int) else value[:width]


def _offset(transform: str, source: PrimitiveType, value: int) -> int:
    ticks = _TICKS.get(source.name)
    if transform == "hour":
        return value // (_HOUR_SECONDS * (ticks or 1))
    days = value if ticks is None else value // (DAY_SECONDS * ticks)
    if transform == "day":
        return days
    year, month, _ = civil(days)
    return year - 1970 if transform == "year" else (year - 1970) * 12 + month - 1
