"""PURE. Statistics that a checkpoint has as columns (`stats_parsed`), as the JSON that commits have them in."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import orjson

PARSED: Final = "stats_parsed"


def stats_text(row: dict[str, Any]) -> str:
    """Statistics as JSON: nulls left out, dates and times as ISO 8601, decimals as numbers of as many digits."""
    return orjson.dumps(_struct(row)).decode()


def _struct(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in row.items() if value is not None}


def _value(value: Any) -> Any:
    match value:
        case dict():
            return _struct(value)
        case datetime():
            return _moment(value)
        case date():
            return value.isoformat()
        case Decimal():
            return orjson.Fragment(f"{value:f}")
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case _:
            return value


def _moment(value: datetime) -> str:
    digits = "microseconds" if value.microsecond % 1000 else "milliseconds"
    if value.tzinfo is None:
        return value.isoformat(timespec=digits)
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=digits) + "Z"
