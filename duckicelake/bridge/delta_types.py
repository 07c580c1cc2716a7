"""PURE. Delta's primitive types as Iceberg's, and Delta's texts of their values (Delta protocol, "Primitive Types")."""

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

from duckicelake.delta.schema import DeltaDecimal, DeltaPrimitive, DeltaType, type_json
from duckicelake.errors import DamagedLog, InvalidRequest, Unsupported
from duckicelake.iceberg.calendar import DAY_SECONDS, parse_date, parse_time
from duckicelake.iceberg.types import MAX_PRECISION, PrimitiveType

_TYPES: Final = {
    "string": "string",
    "long": "long",
    "integer": "int",
    "short": "int",
    "byte": "int",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "variant": "variant",
    "void": "unknown",
}
_TIMESTAMP: Final = re.compile(r"([+-]?\d{4,})-(\d\d)-(\d\d)(?:[ T](\d\d:\d\d:\d\d(?:\.\d{1,9})?))?(Z|[+-]\d\d:?\d\d)?")
_EXACT_DIGITS: Final = 15
"""So many digits of a decimal are exact where a JSON reader makes a float of it."""
_MILLISECOND: Final = 1000
Bound: TypeAlias = Callable[[Any, bool], Any]


def primitive(type_: DeltaType, column: str) -> PrimitiveType:
    """The Iceberg type that reads a Delta type exactly; Unsupported, naming the column, where none does."""
    if isinstance(type_, DeltaDecimal) and 0 <= type_.scale <= type_.precision <= MAX_PRECISION:
        return PrimitiveType.parse(f"decimal({type_.precision}, {type_.scale})")
    if isinstance(type_, DeltaPrimitive) and type_.name in _TYPES:
        return PrimitiveType.parse(_TYPES[type_.name])
    raise Unsupported("delta-types", f"Column {column} has the Delta type {type_json(type_)}, which Iceberg lacks")


def partition_value(type_: PrimitiveType, text: str | None, column: str) -> Any:
    """The value of a partition's text, in `iceberg.values` terms (protocol, "Partition Value Serialization")."""
    if text is None or text == "":
        return None
    try:
        return _OF_TEXT[type_.name](type_, text)
    except (KeyError, ValueError, InvalidOperation, InvalidRequest) as error:
        raise DamagedLog(f"the log has the partition value {text!r} of column {column}, no {type_}") from error


def stored_bound(type_: PrimitiveType) -> Bound | None:
    """What makes the value of a JSON statistic, given also whether it is an upper bound; None where none can be told.

    It gives None for a value that isn't known exactly enough to bound. Times were cut to milliseconds, so upper bounds
    of them are raised by one.
    """
    made = _BOUNDS.get(type_.name)
    return None if made is None else made(type_)


def is_exact(type_: PrimitiveType) -> bool:
    """Whether Delta's minimum and maximum are the column's own: times may be cut, and binaries aren't told of."""
    return not type_.name.startswith("timestamp")


def _timestamp(text: str) -> int:
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    clock = match[4] or "00:00:00"
    micros = parse_time(clock[:15], 6)
    year = match[1] if len(match[1]) == 4 else f"{int(match[1]):+05d}"
    ticks = parse_date(f"{year}-{match[2]}-{match[3]}") * DAY_SECONDS * 10**6 + micros
    return ticks - _offset(match[5])


def _offset(zone: str | None) -> int:
    if zone in (None, "Z"):
        return 0
    assert zone is not None
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (minutes if zone[0] == "+" else -minutes) * 60 * 10**6


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _scaled(type_: PrimitiveType, value: Decimal) -> Decimal:
    scale = type_.scale or 0
    exact = value.quantize(Decimal(1).scaleb(-scale))
    if exact != value:
        raise ValueError(value)
    return exact


_OF_TEXT: Final[dict[str, Callable[[PrimitiveType, str], Any]]] = {
    "string": lambda _, text: text,
    "int": lambda _, text: int(text),
    "long": lambda _, text: int(text),
    "float": lambda _, text: float(text),
    "double": lambda _, text: float(text),
    "boolean": lambda _, text: _boolean(text),
    "binary": lambda _, text: text.encode(),
    "date": lambda _, text: parse_date(text[:10] if len(text) > 10 and text[10] in " T" else text),
    "timestamp": lambda _, text: _timestamp(text),
    "timestamptz": lambda _, text: _timestamp(text),
    "decimal": lambda type_, text: _scaled(type_, Decimal(text)),
}


def _integer(_: PrimitiveType) -> Bound:
    return lambda value, _: value if type(value) is int else None


def _real(_: PrimitiveType) -> Bound:
    def bound(value: Any, _: bool) -> Any:
        if type(value) is str:
            value = {"Infinity": math.inf, "-Infinity": -math.inf}.get(value)
        return None if value is None or value != value else float(value)  # noqa: PLR0124 - NaN isn't itself

    return bound


def _decimal(type_: PrimitiveType) -> Bound:
    def bound(value: Any, _: bool) -> Any:
        if type(value) is float and (type_.precision or 0) > _EXACT_DIGITS:
            return None
        try:
            return _scaled(type_, Decimal(str(value)))
        except (ValueError, InvalidOperation):
            return None

    return bound


def _time(_: PrimitiveType) -> Bound:
    def bound(value: Any, is_upper: bool) -> Any:
        try:
            ticks = _timestamp(value)
        except (ValueError, TypeError, AttributeError, InvalidRequest):
            return None
        return ticks + _MILLISECOND - 1 if is_upper and ticks % _MILLISECOND == 0 else ticks

    return bound


def _date(_: PrimitiveType) -> Bound:
    def bound(value: Any, _: bool) -> Any:
        try:
            return parse_date(value[:10])
        except (ValueError, TypeError, InvalidRequest):
            return None

    return bound


_BOUNDS: Final[dict[str, Callable[[PrimitiveType], Bound]]] = {
    "string": lambda _: lambda value, _: value if type(value) is str else None,
    "int": _integer,
    "long": _integer,
    "float": _real,
    "double": _real,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _time,
    "timestamptz": _time,
    "boolean": lambda _: lambda value, _: value if type(value) is bool else None,
}
