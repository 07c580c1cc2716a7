"""PURE. Values as the texts of DuckLake's statistics, partition values and defaults (`ducklake-facts.md` §2.2)."""

import math
import re
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.calendar import DAY_SECONDS, format_date, format_time, parse_date, parse_time
from duckicelake.iceberg.types import PrimitiveType

_TICK_DIGITS = {"timestamp": 6, "timestamptz": 6, "timestamp_ns": 9, "timestamptz_ns": 6}
"""Decimals of a second in DuckDB's texts; a `timestamptz_ns` is DuckDB's timestamptz, which drops its nanoseconds."""
_BOOLEANS = {"1": True, "true": True, "t": True, "0": False, "false": False, "f": False}
_LAST_DAY = 2**31 - 2  # the next one is DuckDB's infinity
_LAST_TICK = {6: 9_223_372_022_400_000_000, 9: 9_223_286_400_000_000_000}  # midnights within 64 bits
_NANOSECONDS = 1000
_DATE = re.compile(r"(\d{4,7})(-\d\d-\d\d)( \(BC\))?", re.ASCII)
_ZONED = re.compile(r"(.*)([+-])(\d\d)(?::(\d\d))?", re.ASCII)
_BYTES_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})")


def format_stats_text(type_: PrimitiveType, value: Any) -> str | None:
    """Return the text of a value in statistics; None where DuckLake has none (NaN, a NUL, a day that DuckDB lacks)."""
    match type_.name:
        case "boolean":
            return "1" if value else "0"
        case "float" | "double" if math.isnan(value):
            return None
        case "binary" | "fixed":
            return bytes(value).hex().upper()
        case _:
            return format_cast_text(type_, value)


def parse_stats_text(type_: PrimitiveType, text: str) -> Any:
    """Return the value of a text in statistics.

    None where Iceberg has no such value (infinity) or the text is not one.
    """
    if type_.name in {"binary", "fixed"} and "\\" not in text:
        return _parse_value(bytes.fromhex, text)
    value = parse_cast_text(type_, text)
    return None if isinstance(value, float) and math.isnan(value) else value


def format_cast_text(type_: PrimitiveType, value: Any) -> str | None:
    """Return the text that DuckDB casts the value to, as in partition values and defaults; None as for `to_text`."""
    match type_.name:
        case "boolean":
            return "true" if value else "false"
        case "float" | "double":
            return repr(float(value))
        case "decimal":
            return f"{value:.{type_.scale}f}"
        case "date":
            return _format_date(value)
        case "time":
            return _trim_fraction(format_time(value, 6)) if 0 <= value < DAY_SECONDS * 10**6 else None
        case "timestamp" | "timestamp_ns" | "timestamptz" | "timestamptz_ns":
            return _format_timestamp(type_, value)
        case "binary" | "fixed":
            return "".join(map(_escape_byte, bytes(value)))
        case "string":
            return None if "\0" in value else str(value)
        case _:
            return str(value)


def parse_cast_text(type_: PrimitiveType, text: str) -> Any:
    """Return the value of a text that DuckDB casts to the type; None as for `from_text`, but NaN is NaN."""
    return _parse_value(_READ.get(type_.name, str), text)


def _parse_value(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except (KeyError, ValueError, InvalidOperation, InvalidRequestError, OverflowError):
        return None


def _parse_float(text: str) -> float:
    value: float = struct.unpack("<f", struct.pack("<f", float(text)))[0]
    return value


def _unescape_bytes(text: str) -> bytes:
    return _BYTES_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).encode("latin-1")


def _format_date(days: int) -> str | None:
    if abs(days) > _LAST_DAY:
        return None
    iso = format_date(days)
    year, rest = int(iso[:-6]), iso[-6:]
    return f"{year:04d}{rest}" if year > 0 else f"{1 - year:04d}{rest} (BC)"


def _parse_days(text: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year = 1 - int(match[1]) if match[3] else int(match[1])
    return parse_date((f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}") + match[2])


def _format_timestamp(type_: PrimitiveType, value: int) -> str | None:
    digits = _TICK_DIGITS[type_.name]
    ticks = _truncate_nanos(value) if type_.name == "timestamptz_ns" else value
    if abs(ticks) > _LAST_TICK[digits]:
        return None
    days, rest = divmod(ticks, DAY_SECONDS * 10**digits)
    zone = "+00" if type_.name.startswith("timestamptz") else ""
    return f"{_format_date(days)} {_trim_fraction(format_time(rest, digits))}{zone}"


def _truncate_nanos(nanos: int) -> int:
    """Return the microseconds of a Parquet value in nanoseconds with a zone.

    Towards the epoch, unlike everywhere else.
    """
    return nanos // _NANOSECONDS if nanos >= 0 else -(-nanos // _NANOSECONDS)


def _parse_ticks(text: str, digits: int) -> int:
    date, _, clock = text.rpartition(" ") if ":" in text else (text, "", "00:00")
    ticks: int = 10**digits
    return _parse_days(date) * DAY_SECONDS * ticks + parse_time(clock, digits)


def _parse_zoned_micros(text: str) -> int:
    """Of a text with its offset from UTC: without one it would mean another moment in every session."""
    match = _ZONED.fullmatch(text)
    if match is None or ":" not in match[1]:
        raise ValueError(text)
    offset = (int(match[3]) * 60 + int(match[4] or 0)) * 60 * 10**6
    return _parse_ticks(match[1], 6) - (offset if match[2] == "+" else -offset)


def _require_64_bits(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise OverflowError(value)
    return value


_READ: dict[str, Callable[[str], Any]] = {
    "boolean": lambda text: _BOOLEANS[text.lower()],
    "int": int,
    "long": int,
    "float": _parse_float,
    "double": float,
    "decimal": Decimal,
    "date": _parse_days,
    "time": lambda text: parse_time(text, 6),
    "timestamp": lambda text: _parse_ticks(text, 6),
    "timestamp_ns": lambda text: _parse_ticks(text, 9),
    "timestamptz": _parse_zoned_micros,
    "timestamptz_ns": lambda text: _require_64_bits(_parse_zoned_micros(text) * _NANOSECONDS),
    "uuid": uuid.UUID,
    "binary": _unescape_bytes,
    "fixed": _unescape_bytes,
}


def _trim_fraction(text: str) -> str:
    """Without the trailing zeros of a fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _escape_byte(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte not in b"\\'\"" else f"\\x{byte:02X}"
