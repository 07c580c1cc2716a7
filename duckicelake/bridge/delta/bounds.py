"""PURE. Minima and maxima in a Delta log as both sides keep bounds, made once for each column: a log has millions."""

import math
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final, TypeAlias

from duckicelake.bridge.delta.types import read_timestamp, scaled
from duckicelake.bridge.texts import to_text
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.calendar import parse_date
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import to_bytes

Bound: TypeAlias = tuple[Any, str, str | None]
"""A value in `iceberg.values` terms, as Iceberg stores it in hex, and DuckLake's text of it if it has one."""
Read: TypeAlias = Callable[[Any], Bound | None]

_EXACT_DIGITS: Final = 15
"""So many digits of a decimal are exact where a JSON reader makes a float of it."""
_MILLISECOND: Final = 1000
_REMEMBERED: Final = 4096
_WIDTHS: Final = {
    "int": struct.Struct("<i"),
    "long": struct.Struct("<q"),
    "float": struct.Struct("<f"),
    "double": struct.Struct("<d"),
}
_INFINITIES: Final = {"Infinity": math.inf, "-Infinity": -math.inf}


def readers(type_: PrimitiveType) -> tuple[Read, Read] | None:
    """What reads lower and upper bounds of a type out of JSON, None for what bounds nothing; None if none are told.

    Times were cut to milliseconds, so upper bounds of them are raised by what may be missing.
    """
    match type_.name:
        case "int" | "long":
            return (_integers(type_),) * 2
        case "string":
            return (_string,) * 2
        case "float" | "double":
            return (_reals(type_),) * 2
        case "timestamp" | "timestamptz":
            return _times(type_, raised=0), _times(type_, raised=_MILLISECOND - 1)
        case "date" | "decimal" | "boolean":
            return (_others(type_),) * 2
        case _:
            return None


def is_exact(type_: PrimitiveType) -> bool:
    """Whether what the log says is the column's own minimum and maximum: times may be cut."""
    return not type_.name.startswith("timestamp")


def _string(value: Any) -> Bound | None:
    if type(value) is not str:
        return None
    return value, value.encode(errors="surrogatepass").hex(), None if "\0" in value else value


def _integers(type_: PrimitiveType) -> Read:
    pack = _WIDTHS[type_.name].pack

    def read(value: Any) -> Bound | None:
        if type(value) is not int:
            return None
        try:
            return value, pack(value).hex(), str(value)
        except struct.error:
            return None

    return read


def _reals(type_: PrimitiveType) -> Read:
    pack = _WIDTHS[type_.name].pack

    def read(value: Any) -> Bound | None:
        if type(value) is str:
            value = _INFINITIES.get(value)
        if value is None or value != value:  # noqa: PLR0124 - NaN isn't itself
            return None
        try:
            number = float(value)
            return number, pack(number).hex(), repr(number)
        except (OverflowError, struct.error):
            return None

    return read


def _times(type_: PrimitiveType, raised: int) -> Read:
    @lru_cache(_REMEMBERED)
    def read(value: Any) -> Bound | None:
        try:
            return _bound(type_, read_timestamp(value) + raised)
        except (ValueError, TypeError, AttributeError, InvalidRequest):
            return None

    return read


def _others(type_: PrimitiveType) -> Read:
    """Those of which a table has few, or the same ones again and again."""
    convert = {"date": lambda text: parse_date(text[:10]), "decimal": _decimal_of(type_), "boolean": _boolean}[
        type_.name
    ]

    @lru_cache(_REMEMBERED, typed=True)
    def read(value: Any) -> Bound | None:
        try:
            return _bound(type_, convert(value))
        except (ValueError, TypeError, InvalidOperation, InvalidRequest):
            return None

    return read


def _decimal_of(type_: PrimitiveType) -> Callable[[Any], Decimal]:
    def convert(value: Any) -> Decimal:
        if type(value) is float and (type_.precision or 0) > _EXACT_DIGITS:
            raise ValueError(value)
        return scaled(type_, Decimal(str(value)))

    return convert


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(value)
    return value


def _bound(type_: PrimitiveType, value: Any) -> Bound | None:
    try:
        return value, to_bytes(type_, value).hex(), to_text(type_, value)
    except InvalidRequest:
        return None
