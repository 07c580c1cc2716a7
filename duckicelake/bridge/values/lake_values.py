"""PURE. Values as the texts of DuckLake's statistics, partition values and defaults (`ducklake-facts.md` §2.2)."""

import math
import re
import struct
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from duckicelake.bridge.values.types import KEPT_DIGITS
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.calendar import DAY_SECONDS, format_date, format_time, parse_date, parse_time
from duckicelake.iceberg.primitives import TRAITS, PrimitiveTypeTraits, TypeFamily
from duckicelake.iceberg.types import PrimitiveType

_BOOLEANS = {"1": True, "true": True, "t": True, "0": False, "false": False, "f": False}
_LAST_DAY = 2**31 - 2  # the next one is DuckDB's infinity
_LAST_TICK = {6: 9_223_372_022_400_000_000, 9: 9_223_286_400_000_000_000}  # midnights within 64 bits
_DATE = re.compile(r"(\d{4,7})(-\d\d-\d\d)( \(BC\))?", re.ASCII)
_ZONED = re.compile(r"(.*)([+-])(\d\d)(?::(\d\d))?", re.ASCII)
_BYTES_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})")


def format_stats_text(type_: PrimitiveType, value: Any) -> str | None:
    """Return the text of a value in statistics; None where DuckLake has none (NaN, a NUL, a day that DuckDB lacks)."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float) and math.isnan(value):
        return None
    return bytes(value).hex().upper() if type_.name in _BYTES else format_cast_text(type_, value)


def parse_stats_text(type_: PrimitiveType, text: str) -> Any:
    """Parse a text in statistics; None where Iceberg has no such value (infinity) or the text is not one."""
    if type_.name in _BYTES and "\\" not in text:
        return _parse_value(bytes.fromhex, text)
    value = parse_cast_text(type_, text)
    return None if isinstance(value, float) and math.isnan(value) else value


def format_cast_text(type_: PrimitiveType, value: Any) -> str | None:
    """Return the text that DuckDB casts to the value, in partition values and defaults.

    None as for `format_stats_text`, but for NaN.
    """
    form = _FORMS.get(type_.name)
    return str(value) if form is None else form.format(type_, value)


def parse_cast_text(type_: PrimitiveType, text: str) -> Any:
    """Parse a text that DuckDB casts to the type; None as for `parse_stats_text`, but NaN is NaN."""
    form = _FORMS.get(type_.name)
    return text if form is None else _parse_value(form.parse, text)


def _parse_value(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except (KeyError, ValueError, InvalidOperation, InvalidRequestError, OverflowError):
        return None


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


def _format_time(type_: PrimitiveType, value: int) -> str | None:
    digits = _CLOCKS[type_.name].digits
    return _trim_fraction(format_time(value, digits)) if 0 <= value < DAY_SECONDS * 10**digits else None


def _format_timestamp(type_: PrimitiveType, value: int) -> str | None:
    digits, units, zone = _CLOCKS[type_.name]
    ticks = value if units == 1 else _truncate_ticks(value, units)
    if abs(ticks) > _LAST_TICK[digits]:
        return None
    days, rest = divmod(ticks, DAY_SECONDS * 10**digits)
    return f"{_format_date(days)} {_trim_fraction(format_time(rest, digits))}{zone}"


def _truncate_ticks(ticks: int, units: int) -> int:
    """Drop decimals of a Parquet value with a zone: towards the epoch, unlike everywhere else."""
    return ticks // units if ticks >= 0 else -(-ticks // units)


def _parse_ticks(text: str, digits: int) -> int:
    date, _, clock = text.rpartition(" ") if ":" in text else (text, "", "00:00")
    ticks: int = 10**digits
    return _parse_days(date) * DAY_SECONDS * ticks + parse_time(clock, digits)


def _parse_zoned(text: str, digits: int) -> int:
    """Parse a text with its offset from UTC: without one it would mean another moment in every session."""
    match = _ZONED.fullmatch(text)
    if match is None or ":" not in match[1]:
        raise ValueError(text)
    ticks: int = 10**digits
    offset = (int(match[3]) * 60 + int(match[4] or 0)) * 60 * ticks
    return _parse_ticks(match[1], digits) - (offset if match[2] == "+" else -offset)


def _require_64_bits(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise OverflowError(value)
    return value


def _trim_fraction(text: str) -> str:
    """Drop the trailing zeros of a fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _escape_byte(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte not in b"\\'\"" else f"\\x{byte:02X}"


def _parse_single(text: str) -> float:
    value: float = struct.unpack("<f", struct.pack("<f", float(text)))[0]
    return value


class _Form(NamedTuple):
    """How the text of a value is written and read; `parse` may raise the errors that `_parse_value` catches."""

    format: Callable[[PrimitiveType, Any], str | None]
    parse: Callable[[str], Any]


class _Clock(NamedTuple):
    """How DuckDB says times of a type: decimals of a second, units of the type in the last one, the zone."""

    digits: int
    units: int
    zone: str


_CLOCKS: Final = {
    name: _Clock(digits, 10 ** (TRAITS[name].digits - digits), "+00" if TRAITS[name].has_zone else "")
    for name, digits in KEPT_DIGITS.items()
}


def _make_time_form(traits: PrimitiveTypeTraits) -> _Form:
    digits = _CLOCKS[traits.name].digits
    return _Form(_format_time, lambda text: parse_time(text, digits))


def _make_timestamp_form(traits: PrimitiveTypeTraits) -> _Form:
    digits, units, zone = _CLOCKS[traits.name]
    if not zone:
        return _Form(_format_timestamp, lambda text: _parse_ticks(text, digits))
    if units == 1:
        return _Form(_format_timestamp, lambda text: _parse_zoned(text, digits))
    return _Form(_format_timestamp, lambda text: _require_64_bits(_parse_zoned(text, digits) * units))


_BY_FAMILY: Final[Mapping[TypeFamily, Callable[[PrimitiveTypeTraits], _Form]]] = {
    "boolean": lambda _: _Form(lambda _, value: "true" if value else "false", lambda text: _BOOLEANS[text.lower()]),
    "integer": lambda _: _Form(lambda _, value: str(value), int),
    "float": lambda traits: _Form(lambda _, value: repr(float(value)), _parse_single if traits.size == 4 else float),
    "decimal": lambda _: _Form(lambda type_, value: f"{value:.{type_.scale}f}", Decimal),
    "date": lambda _: _Form(lambda _, value: _format_date(value), _parse_days),
    "time": _make_time_form,
    "timestamp": _make_timestamp_form,
    "string": lambda _: _Form(lambda _, value: None if "\0" in value else str(value), str),
    "uuid": lambda _: _Form(lambda _, value: str(value), uuid.UUID),
    "bytes": lambda _: _Form(lambda _, value: "".join(map(_escape_byte, bytes(value))), _unescape_bytes),
}
_FORMS: Final = {
    name: _BY_FAMILY[traits.family](traits) for name, traits in TRAITS.items() if traits.family in _BY_FAMILY
}
"""By Iceberg's name of a type; values of the others are texts as they are."""
_BYTES: Final = frozenset(name for name, traits in TRAITS.items() if traits.family == "bytes")
