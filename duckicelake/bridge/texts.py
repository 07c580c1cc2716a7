"""PURE. Values as the texts that DuckLake keeps for statistics and partitions (`ducklake-facts.md` §2.2).

Values are those of `iceberg.values`: dates are days, times and timestamps microseconds since the epoch.
"""

import math
import re
import struct
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from duckicelake.iceberg.types import PrimitiveType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_BYTES_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})")


def to_text(type_: PrimitiveType, value: Any) -> str | None:
    """DuckLake's text of a value; None where DuckLake has no text for it (a date beyond the year 9999, NaN, NUL)."""
    try:
        return _to_text(type_, value)
    except (OverflowError, ValueError):
        return None


def from_text(type_: PrimitiveType, text: str) -> Any:
    """The value of DuckLake's text; None where Iceberg has no such value (infinity, BC) or the text is not one."""
    try:
        return _from_text(type_, text)
    except (ValueError, InvalidOperation, OverflowError):
        return None


def partition_text(type_: PrimitiveType, value: Any) -> str | None:
    """DuckLake's text of an identity partition value: what DuckDB casts the value to; None as for `to_text`."""
    match type_.name:
        case "boolean":
            return "true" if value else "false"
        case "binary" | "fixed":
            return "".join(map(_escaped, bytes(value)))
        case _:
            return to_text(type_, value)


def from_partition_text(type_: PrimitiveType, text: str) -> Any:
    """The value of an identity partition's text; None as for `from_text`."""
    if type_.name in {"binary", "fixed"}:
        return _unescaped(text)
    return from_text(type_, text)


def _to_text(type_: PrimitiveType, value: Any) -> str | None:
    match type_.name:
        case "boolean":
            return "1" if value else "0"
        case "float" | "double":
            return None if math.isnan(value) else repr(float(value))
        case "decimal":
            return f"{value:.{type_.scale}f}"
        case "date":
            return (_EPOCH_DAY + timedelta(days=value)).isoformat()
        case "time":
            return _trimmed((_EPOCH + timedelta(microseconds=value)).time().isoformat())
        case "timestamp":
            return _timestamp_text(value)
        case "timestamptz":
            return _timestamp_text(value) + "+00"
        case "binary" | "fixed":
            return bytes(value).hex().upper()
        case "string":
            return None if "\0" in value else str(value)
        case _:
            return str(value)


def _timestamp_text(micros: int) -> str:
    return _trimmed((_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat(sep=" "))


def _trimmed(text: str) -> str:
    """Without the trailing zeros of a fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _from_text(type_: PrimitiveType, text: str) -> Any:
    match type_.name:
        case "boolean":
            return {"1": True, "true": True, "0": False, "false": False}.get(text.lower())
        case "int" | "long":
            return int(text)
        case "float":
            return _number(struct.unpack("<f", struct.pack("<f", float(text)))[0])
        case "double":
            return _number(float(text))
        case "decimal":
            return Decimal(text)
        case "date":
            return (date.fromisoformat(text) - _EPOCH_DAY).days
        case "time":
            return _micros(datetime.combine(_EPOCH_DAY, time.fromisoformat(text), UTC))
        case "timestamp":
            return _micros(datetime.fromisoformat(text).replace(tzinfo=UTC))
        case "timestamptz":
            return _micros(datetime.fromisoformat(text.removesuffix("+00")).replace(tzinfo=UTC))
        case "uuid":
            return uuid.UUID(text)
        case "binary" | "fixed":
            return _bytes(text)
        case _:
            return text


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _bytes(text: str) -> bytes:
    """A blob's text: hex from file statistics; inlined rows leave DuckDB's escapes, told apart by their backslash."""
    return _unescaped(text) if "\\" in text else bytes.fromhex(text)


def _unescaped(text: str) -> bytes:
    return _BYTES_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).encode("latin-1")


def _escaped(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte not in b"\\'\"" else f"\\x{byte:02X}"
