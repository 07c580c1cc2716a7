"""Single values: decimals, bounds as bytes, and JSON defaults (table spec, Appendix D)."""

import math
import re
import struct
from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final, TypeAlias
from uuid import UUID

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.calendar import (
    DAY_SECONDS,
    format_date,
    format_time,
    format_timestamp,
    parse_date,
    parse_time,
    parse_timestamp,
)
from duckicelake.iceberg.types import IcebergType, ListType, MapType, PrimitiveType, StructType

MAX_DECIMAL_BYTES: Final = 16
"""Two's complement of the largest precision, 38, fits."""
_EXACT: Final = Context(prec=100, traps=[Inexact, InvalidOperation])
SingleValue: TypeAlias = bool | int | float | str | UUID | bytes | Decimal
"""A primitive value in memory."""
Json: TypeAlias = Any
_INTEGERS: Final = {
    **dict.fromkeys(("int", "date"), 4),
    **dict.fromkeys(("long", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), 8),
}
_FLOATS: Final = {"float": "<f", "double": "<d"}
_BYTES: Final = frozenset({"fixed", "binary", "geometry", "geography", "variant"})
_TICK_DIGITS: Final = {"time": 6, "timestamp": 6, "timestamptz": 6, "timestamp_ns": 9, "timestamptz_ns": 9}
_DATE_PROMOTES_TO: Final = frozenset({"timestamp", "timestamp_ns"})
_MAX_FLOAT: Final = 3.4028235677973366e38
"""Half a step above the largest float: what is below rounds to it."""
_MEMORY: Final[dict[str, type]] = {
    "boolean": bool,
    "string": str,
    "uuid": UUID,
    "decimal": Decimal,
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys(_FLOATS, float),
    **dict.fromkeys(_BYTES, bytes),
}


def to_unscaled(value: Decimal, precision: int, scale: int) -> int:
    """Return the decimal times ten to its scale. Raises InvalidRequestError if it fits neither scale nor precision."""
    misfit = f"{value} doesn't fit decimal({precision}, {scale})"
    if not value.is_finite() or (value and not -scale <= value.adjusted() < precision - scale):
        raise InvalidRequestError(misfit)
    try:
        shifted = value.scaleb(scale, _EXACT)
    except Inexact as error:
        raise InvalidRequestError(misfit) from error
    if shifted != int(shifted):
        raise InvalidRequestError(misfit)
    return int(shifted)


def from_unscaled(number: int, scale: int) -> Decimal:
    """Return the decimal whose unscaled value is number."""
    return Decimal(number).scaleb(-scale, _EXACT)


def to_minimal_bytes(number: int) -> bytes:
    """Two's complement, big endian, in as few bytes as hold it."""
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def compute_fixed_size(precision: int) -> int:
    """Return the bytes that every unscaled value of this precision fits (spec Appendix A: minimum number of bytes)."""
    return len(to_minimal_bytes(10**precision - 1))


def to_bytes(kind: PrimitiveType, value: SingleValue) -> bytes:
    """Return the value as a bound is stored. Raises InvalidRequestError if it isn't a value of the type."""
    _check_memory(kind, value)
    match value:
        case bool():
            return b"\x01" if value else b"\x00"
        case int():
            return value.to_bytes(_INTEGERS[kind.name], "little", signed=True)
        case float():
            return struct.pack(_FLOATS[kind.name], value)
        case str():
            return value.encode()
        case UUID():
            return value.bytes
        case Decimal():
            return to_minimal_bytes(_to_unscaled(kind, value))
        case _:
            return value


def from_bytes(kind: PrimitiveType, data: bytes) -> SingleValue:
    """Return the value of a stored bound, whose length tells the type it was written with before a promotion.

    Four bytes for a long, float for a double and date for a timestamp. Raises InvalidRequestError for a wrong length.
    """
    read = _FROM_BYTES.get(kind.name)
    try:
        if read is not None:
            return read(kind, bytes(data))
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise InvalidRequestError(
            f"{data[:40].hex()} ({len(data)} bytes) isn't a stored value of type {kind}"
        ) from error
    raise InvalidRequestError(f"type {kind} has no stored single values")


def to_json(kind: IcebergType, value: Any) -> Json:
    """Return the value as JSON; None is null.

    Raises InvalidRequestError if it isn't a value of the type or JSON can't say it.
    """
    if value is None:
        return None
    match kind:
        case StructType():
            return {str(field.id): to_json(field.type, value.get(field.id)) for field in kind.fields}
        case ListType():
            return [to_json(kind.element, element) for element in value]
        case MapType():
            return {
                "keys": [to_json(kind.key, key) for key, _ in value],
                "values": [to_json(kind.value, element) for _, element in value],
            }
    _check_memory(kind, value)
    return _primitive_to_json(kind, value)


def from_json(kind: IcebergType, value: Json) -> Any:
    """Return the value that a JSON default stands for; null is None.

    Raises InvalidRequestError naming the type that was due.
    """
    if value is None:
        return None
    match kind:
        case StructType():
            fields = _require_json(dict, kind, value)
            return {field.id: from_json(field.type, fields.get(str(field.id))) for field in kind.fields}
        case ListType():
            return tuple(from_json(kind.element, element) for element in _require_json(list, kind, value))
        case MapType():
            return _map_from_json(kind, _require_json(dict, kind, value))
    read = _FROM_JSON.get(kind.name)
    if read is None:
        raise InvalidRequestError(f"type {kind} has no JSON single values other than null")
    result = read(kind, value)
    _check_memory(kind, result)
    return result


def _check_memory(kind: PrimitiveType, value: object) -> None:
    if type(value) is not _MEMORY.get(kind.name):
        raise InvalidRequestError(f"{value!r} isn't a value of type {kind}")
    width = _INTEGERS.get(kind.name)
    if width and isinstance(value, int) and not -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
        raise InvalidRequestError(f"{value} doesn't fit type {kind}")
    if kind.name == "float" and isinstance(value, float) and _MAX_FLOAT <= abs(value) < math.inf:
        raise InvalidRequestError(f"{value} doesn't fit type {kind}")


def _to_unscaled(kind: PrimitiveType, value: Decimal) -> int:
    return to_unscaled(value, kind.precision or 0, kind.scale or 0)


def _quantize(kind: PrimitiveType, value: Decimal) -> Decimal:
    """Return the same number with exactly the type's decimals."""
    return from_unscaled(_to_unscaled(kind, value), kind.scale or 0)


def _integer_from_bytes(kind: PrimitiveType, data: bytes) -> int:
    value: int = struct.unpack("<i" if len(data) == 4 else "<q", data)[0]
    if len(data) == _INTEGERS[kind.name] or kind.name == "long":
        return value
    if kind.name in _DATE_PROMOTES_TO:
        ticks: int = 10 ** _TICK_DIGITS[kind.name]
        return value * DAY_SECONDS * ticks
    raise ValueError(len(data))


def _float_from_bytes(kind: PrimitiveType, data: bytes) -> float:
    value: float = struct.unpack(_FLOATS[kind.name] if len(data) != 4 else "<f", data)[0]
    return value


def _boolean_from_bytes(_: PrimitiveType, data: bytes) -> bool:
    return struct.unpack("<B", data) != (0,)


def _decimal_from_bytes(kind: PrimitiveType, data: bytes) -> Decimal:
    if not 1 <= len(data) <= MAX_DECIMAL_BYTES:
        raise ValueError(len(data))
    return from_unscaled(int.from_bytes(data, "big", signed=True), kind.scale or 0)


_FROM_BYTES: Final[dict[str, Callable[[PrimitiveType, bytes], SingleValue]]] = {
    "boolean": _boolean_from_bytes,
    "string": lambda _, data: data.decode(),
    "uuid": lambda _, data: UUID(bytes=data),
    "decimal": _decimal_from_bytes,
    **dict.fromkeys(_INTEGERS, _integer_from_bytes),
    **dict.fromkeys(_FLOATS, _float_from_bytes),
    **dict.fromkeys(_BYTES, lambda _, data: data),
}


def _primitive_to_json(kind: PrimitiveType, value: Any) -> Json:
    match kind.name:
        case "date":
            return format_date(value)
        case "time":
            return format_time(value, 6)
        case "timestamp" | "timestamp_ns":
            return format_timestamp(value, _TICK_DIGITS[kind.name])
        case "timestamptz" | "timestamptz_ns":
            return format_timestamp(value, _TICK_DIGITS[kind.name]) + "+00:00"
        case "decimal":
            return f"{_quantize(kind, value):f}"
        case "uuid":
            return str(value)
        case "fixed" | "binary":
            return value.hex()
        case "float" | "double" if not math.isfinite(value):
            raise InvalidRequestError(f"{value} has no JSON form")
        case "variant" | "geometry" | "geography":
            raise InvalidRequestError(f"type {kind} has no JSON single values other than null")
    return value


def _map_from_json(kind: MapType, value: dict[str, Json]) -> tuple[tuple[Any, Any], ...]:
    keys, elements = (_require_json(list, kind, value.get(part)) for part in ("keys", "values"))
    if len(keys) != len(elements):
        raise InvalidRequestError(f"a map of {len(keys)} keys has {len(elements)} values")
    return tuple(
        (from_json(kind.key, key), from_json(kind.value, element)) for key, element in zip(keys, elements, strict=True)
    )


def _require_json(wanted: type, kind: IcebergType, value: Json) -> Any:
    if type(value) is not wanted:
        what = str(kind) if isinstance(kind, PrimitiveType) else f"a {type(kind).__name__.removesuffix('Type').lower()}"
        raise InvalidRequestError(f"{value!r} isn't the JSON form of {what}")
    return value


def _parse_text(kind: PrimitiveType, value: Json) -> str:
    text: str = _require_json(str, kind, value)
    return text


def _float_from_json(kind: PrimitiveType, value: Json) -> float:
    if type(value) is int:
        if not -(1 << 63) <= value < 1 << 64:  # which our JSON can't hold
            raise InvalidRequestError(f"{value} as a {kind} is written with an exponent, as 1e30")
        return float(value)
    number: float = _require_json(float, kind, value)
    return number


def _timestamp_from_json(kind: PrimitiveType, value: Json) -> int:
    text, digits = _parse_text(kind, value), _TICK_DIGITS[kind.name]
    if kind.name.startswith("timestamptz"):
        if not text.endswith(("+00:00", "Z")):
            raise InvalidRequestError(f"{text!r} isn't a {kind}: write it in UTC, ending in +00:00")
        text = text.removesuffix("Z").removesuffix("+00:00")
    return parse_timestamp(text, digits)


def _decimal_from_json(kind: PrimitiveType, value: Json) -> Decimal:
    try:
        number = Decimal(_parse_text(kind, value))
    except InvalidOperation as error:
        raise InvalidRequestError(f"{value!r} isn't a value of type {kind}") from error
    return _quantize(kind, number)


def _uuid_from_json(kind: PrimitiveType, value: Json) -> UUID:
    text = _parse_text(kind, value)
    if not re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text):
        raise InvalidRequestError(f"{text!r} isn't a uuid")
    return UUID(text)


def _hex_from_json(kind: PrimitiveType, value: Json) -> bytes:
    text = _parse_text(kind, value)
    if not re.fullmatch(r"([0-9a-fA-F]{2})*", text):
        raise InvalidRequestError(f"{text!r} isn't a value of type {kind} in hexadecimal digits")
    if kind.name == "fixed" and len(text) != 2 * (kind.length or 0):
        raise InvalidRequestError(f"{text!r} has {len(text) // 2} bytes and isn't a value of type {kind}")
    return bytes.fromhex(text)


_FROM_JSON: Final[dict[str, Callable[[PrimitiveType, Json], SingleValue]]] = {
    "boolean": lambda kind, value: _require_json(bool, kind, value),
    "int": lambda kind, value: _require_json(int, kind, value),
    "long": lambda kind, value: _require_json(int, kind, value),
    "float": _float_from_json,
    "double": _float_from_json,
    "date": lambda kind, value: parse_date(_parse_text(kind, value)),
    "time": lambda kind, value: parse_time(_parse_text(kind, value), 6),
    **dict.fromkeys(("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), _timestamp_from_json),
    "string": _parse_text,
    "uuid": _uuid_from_json,
    "decimal": _decimal_from_json,
    "fixed": _hex_from_json,
    "binary": _hex_from_json,
}
