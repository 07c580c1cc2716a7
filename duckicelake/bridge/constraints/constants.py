"""PURE. Constants of CHECK constraints: what the text of one means beside a value of a certain kind."""

import re
import struct
from decimal import Decimal
from typing import Any, Final

from duckicelake.bridge.constraints.tree import Call, Column, Constant, Kind, Value
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.calendar import DAY_SECONDS, parse_date, parse_timestamp

_NUMBER: Final = re.compile(r"-?(\d{1,38})(?:\.(\d{0,38}))?")
_SCIENTIFIC: Final = re.compile(r"-?\d{1,17}(\.\d{0,17})?([eE][+-]?\d{1,3})?")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d{1,6})?)")
_OFFSET: Final = re.compile(r"(Z|[+-]\d\d:\d\d)$")
_MOST_DIGITS: Final = 38
_MICROS: Final = 10**6
WHOLE_LIMIT: Final = 1 << 63
_EXACT_IN_DOUBLE: Final = 1 << 53


class UnlikeError(Exception):
    """The engines don't all take the constant for the same value of the kind; the message says what would do."""


def number(text: str, beside: Value) -> Constant:
    """The number as a constant of the kind of what it stands beside."""
    match beside.kind:
        case Kind.WHOLE:
            return Constant(_whole(text), Kind.WHOLE)
        case Kind.DECIMAL:
            return Constant(_decimal(text, beside), Kind.DECIMAL)
        case Kind.DOUBLE | Kind.FLOAT:
            return Constant(_float(text, beside.kind), beside.kind)
    raise UnlikeError(f"a {beside.kind.name.lower()} is not compared with a number")


def text(value: str, beside: Value) -> Constant:
    """The text as a constant of the kind of what it stands beside, which may be a date or time."""
    try:
        match beside.kind:
            case Kind.TEXT:
                return Constant(value, Kind.TEXT)
            case Kind.DATE if _DATE.fullmatch(value):
                return Constant(parse_date(value), Kind.DATE)
            case Kind.TIMESTAMP if _TIMESTAMP.fullmatch(value) or _DATE.fullmatch(value):
                return Constant(_micros(value), Kind.TIMESTAMP)
            case Kind.ZONED if _OFFSET.search(value):
                return Constant(_zoned(value), Kind.ZONED)
    except InvalidRequest as error:
        raise UnlikeError(str(error)) from error
    wanted = {
        Kind.DATE: "write the date as '2026-08-31'",
        Kind.TIMESTAMP: "write the time as '2026-08-31 13:45:07'",
        Kind.ZONED: "write the time with its offset, as '2026-08-31 13:45:07+00:00': without, it hangs on the session",
    }
    raise UnlikeError(wanted.get(beside.kind, f"a {beside.kind.name.lower()} is not compared with a text"))


def _whole(found: str) -> int:
    if not found.removeprefix("-").isdigit() or not -WHOLE_LIMIT <= int(found) < WHOLE_LIMIT:
        raise UnlikeError("write a whole number of up to 64 bits beside a whole number")
    return int(found)


def _decimal(found: str, beside: Value) -> Decimal:
    match = _NUMBER.fullmatch(found)
    while isinstance(beside, Call):
        beside = beside.arguments[0]
    if match is None or not isinstance(beside, Column):
        raise UnlikeError("write a number with up to 38 digits beside a decimal")
    scale, precision = beside.type.scale or 0, beside.type.precision or 0
    digits = max(precision - scale, len(match[1].lstrip("0"))) + max(scale, len(match[2] or ""))
    if digits > _MOST_DIGITS:
        raise UnlikeError(f"both sides together have {digits} digits, and decimals have up to {_MOST_DIGITS}")
    return Decimal(found)


def _float(found: str, kind: Kind) -> float:
    if not _SCIENTIFIC.fullmatch(found):
        raise UnlikeError("write a number with up to 17 digits beside a double")
    value = float(found)
    is_whole = "." not in found and "e" not in found.lower()
    if (is_whole and abs(int(found)) > _EXACT_IN_DOUBLE) or value in (float("inf"), float("-inf")):
        raise UnlikeError("a double doesn't hold this number")
    if kind is Kind.FLOAT and _as_float(value) != Decimal(found):
        raise UnlikeError("a float doesn't hold this number exactly, and engines round it in different ways")
    return value


def _as_float(value: float) -> Any:
    try:
        return Decimal(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return None


def _micros(value: str) -> int:
    if _DATE.fullmatch(value):
        return parse_date(value) * DAY_SECONDS * _MICROS
    return parse_timestamp(value.replace(" ", "T"), 6)


def _zoned(value: str) -> int:
    offset = _OFFSET.search(value)
    assert offset is not None
    bare = value[: offset.start()]
    if not _TIMESTAMP.fullmatch(bare):
        raise UnlikeError("write the time as '2026-08-31 13:45:07+00:00'")
    if offset[0] == "Z":
        return _micros(bare)
    hours, minutes = int(offset[0][1:3]), int(offset[0][4:6])
    away = (hours * 60 + minutes) * 60 * _MICROS
    return _micros(bare) - (away if offset[0][0] == "+" else -away)
