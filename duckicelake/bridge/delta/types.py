"""PURE. Delta's primitive types as Iceberg's, and Delta's texts of their values (Delta protocol, "Primitive Types")."""

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

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


def read_timestamp(text: str) -> int:
    """Microseconds since the epoch of a text of Delta's; in UTC, where it names no zone. ValueError, InvalidRequest."""
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


def scaled(type_: PrimitiveType, value: Decimal) -> Decimal:
    """The value with all decimals of its type; ValueError if it has more."""
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
    "timestamp": lambda _, text: read_timestamp(text),
    "timestamptz": lambda _, text: read_timestamp(text),
    "decimal": lambda type_, text: scaled(type_, Decimal(text)),
}
