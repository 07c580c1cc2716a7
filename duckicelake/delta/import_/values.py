"""PURE. Delta's types, partition values and statistics as Iceberg's types and bounds (protocol, "Primitive Types")."""

import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final, TypeAlias

from duckicelake.bridge.values.lake_values import format_stats_text
from duckicelake.delta.log.schema import DeltaDecimal, DeltaPrimitive, DeltaType, encode_type
from duckicelake.errors import DamagedLogError, InvalidRequestError, UnsupportedError
from duckicelake.iceberg.calendar import DAY_SECONDS, parse_date, parse_time
from duckicelake.iceberg.types import MAX_PRECISION, PrimitiveType
from duckicelake.iceberg.values import to_bytes

_ICEBERG_TYPES: Final = {
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
BoundValue: TypeAlias = tuple[Any, str, str | None]
"""A value in `iceberg.values` terms, as Iceberg stores it in hex, and DuckLake's text of it if it has one."""
BoundReader: TypeAlias = Callable[[Any], BoundValue | None]
_EXACT_DIGITS: Final = 15
"""Digits of a decimal that stay exact in a JSON reader's float."""
_MILLISECOND: Final = 1000
_LRU_ENTRIES: Final = 4096
_WIDTHS: Final = {
    "int": struct.Struct("<i"),
    "long": struct.Struct("<q"),
    "float": struct.Struct("<f"),
    "double": struct.Struct("<d"),
}
_INFINITIES: Final = {"Infinity": math.inf, "-Infinity": -math.inf}


def convert_primitive(type_: DeltaType, column: str) -> PrimitiveType:
    """Convert a Delta type to the Iceberg type that reads it exactly; UnsupportedError names the column."""
    if isinstance(type_, DeltaDecimal) and 0 <= type_.scale <= type_.precision <= MAX_PRECISION:
        return PrimitiveType.parse(f"decimal({type_.precision}, {type_.scale})")
    if isinstance(type_, DeltaPrimitive) and type_.name in _ICEBERG_TYPES:
        return PrimitiveType.parse(_ICEBERG_TYPES[type_.name])
    raise UnsupportedError(
        "delta-types", f"Column {column} has the Delta type {encode_type(type_)}, which Iceberg lacks"
    )


def parse_partition_value(type_: PrimitiveType, text: str | None, column: str) -> Any:
    """Parse a partition's text to a value of `iceberg.values` (protocol, "Partition Value Serialization")."""
    if text is None or text == "":
        return None
    try:
        return _TEXT_PARSERS[type_.name](type_, text)
    except (KeyError, ValueError, InvalidOperation, InvalidRequestError) as error:
        raise DamagedLogError(f"the log has the partition value {text!r} of column {column}, no {type_}") from error


def read_timestamp(text: str) -> int:
    """Parse a text of Delta's to microseconds since the epoch; UTC if it names no zone.

    Raises ValueError, InvalidRequestError.
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    clock = match[4] or "00:00:00"
    micros = parse_time(clock[:15], 6)
    year = match[1] if len(match[1]) == 4 else f"{int(match[1]):+05d}"
    ticks = parse_date(f"{year}-{match[2]}-{match[3]}") * DAY_SECONDS * 10**6 + micros
    return ticks - _parse_offset(match[5])


def _parse_offset(zone: str | None) -> int:
    if zone in (None, "Z"):
        return 0
    assert zone is not None
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (minutes if zone[0] == "+" else -minutes) * 60 * 10**6


def _parse_boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def scale_decimal(type_: PrimitiveType, value: Decimal) -> Decimal:
    """Scale a value to its type's decimals; ValueError: it has more."""
    scale = type_.scale or 0
    exact = value.quantize(Decimal(1).scaleb(-scale))
    if exact != value:
        raise ValueError(value)
    return exact


_TEXT_PARSERS: Final[dict[str, Callable[[PrimitiveType, str], Any]]] = {
    "string": lambda _, text: text,
    "int": lambda _, text: int(text),
    "long": lambda _, text: int(text),
    "float": lambda _, text: float(text),
    "double": lambda _, text: float(text),
    "boolean": lambda _, text: _parse_boolean(text),
    "binary": lambda _, text: text.encode(),
    "date": lambda _, text: parse_date(text[:10] if len(text) > 10 and text[10] in " T" else text),
    "timestamp": lambda _, text: read_timestamp(text),
    "timestamptz": lambda _, text: read_timestamp(text),
    "decimal": lambda type_, text: scale_decimal(type_, Decimal(text)),
}


def find_bound_readers(type_: PrimitiveType) -> tuple[BoundReader, BoundReader] | None:
    """Find the readers of lower and upper bounds in JSON; None for values that bound nothing.

    None if the log has no bounds of the type.

    Times were cut to milliseconds. Upper bounds are therefore raised by the possible rest.
    """
    match type_.name:
        case "int" | "long":
            return (_build_integer_reader(type_),) * 2
        case "string":
            return (_read_string,) * 2
        case "float" | "double":
            return (_build_real_reader(type_),) * 2
        case "timestamp" | "timestamptz":
            return _build_time_reader(type_, raised=0), _build_time_reader(type_, raised=_MILLISECOND - 1)
        case "date" | "decimal" | "boolean":
            return (_build_other_reader(type_),) * 2
        case _:
            return None


def is_exact(type_: PrimitiveType) -> bool:
    """Return whether the log's bounds are the column's exact minimum and maximum: times may be cut."""
    return not type_.name.startswith("timestamp")


def _read_string(value: Any) -> BoundValue | None:
    if type(value) is not str:
        return None
    return value, value.encode(errors="surrogatepass").hex(), None if "\0" in value else value


def _build_integer_reader(type_: PrimitiveType) -> BoundReader:
    pack = _WIDTHS[type_.name].pack

    def read(value: Any) -> BoundValue | None:
        if type(value) is not int:
            return None
        try:
            return value, pack(value).hex(), str(value)
        except struct.error:
            return None

    return read


def _build_real_reader(type_: PrimitiveType) -> BoundReader:
    pack = _WIDTHS[type_.name].pack

    def read(value: Any) -> BoundValue | None:
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


def _build_time_reader(type_: PrimitiveType, raised: int) -> BoundReader:
    @lru_cache(_LRU_ENTRIES)
    def read(value: Any) -> BoundValue | None:
        try:
            return _read_bound(type_, read_timestamp(value) + raised)
        except (ValueError, TypeError, AttributeError, InvalidRequestError):
            return None

    return read


def _build_other_reader(type_: PrimitiveType) -> BoundReader:
    """Build readers for the other types, whose values are few or repeat."""
    convert = {
        "date": lambda text: parse_date(text[:10]),
        "decimal": _build_decimal_parser(type_),
        "boolean": _read_boolean_bound,
    }[type_.name]

    @lru_cache(_LRU_ENTRIES, typed=True)
    def read(value: Any) -> BoundValue | None:
        try:
            return _read_bound(type_, convert(value))
        except (ValueError, TypeError, InvalidOperation, InvalidRequestError):
            return None

    return read


def _build_decimal_parser(type_: PrimitiveType) -> Callable[[Any], Decimal]:
    def convert(value: Any) -> Decimal:
        if type(value) is float and (type_.precision or 0) > _EXACT_DIGITS:
            raise ValueError(value)
        return scale_decimal(type_, Decimal(str(value)))

    return convert


def _read_boolean_bound(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(value)
    return value


def _read_bound(type_: PrimitiveType, value: Any) -> BoundValue | None:
    try:
        return value, to_bytes(type_, value).hex(), format_stats_text(type_, value)
    except InvalidRequestError:
        return None
