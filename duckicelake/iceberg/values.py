"""Single values: decimals, bounds as bytes, and JSON defaults (table spec, Appendix D)."""

import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final, TypeAlias
from uuid import UUID

from duckicelake.errors import InvalidRequestError, format_count
from duckicelake.iceberg.calendar import (
    DAY_SECONDS,
    format_date,
    format_time,
    format_timestamp,
    parse_date,
    parse_time,
    parse_timestamp,
)
from duckicelake.iceberg.primitives import TRAITS, TypeFamily
from duckicelake.iceberg.types import IcebergType, ListType, MapType, PrimitiveType, StructType

_SHORT: Final = 4
"""Bytes of a number in a bound, of a type that may have been promoted since."""
MAX_DECIMAL_BYTES: Final = 16
"""Bytes of the two's complement of the largest precision, 38."""
_EXACT: Final = Context(prec=100, traps=[Inexact, InvalidOperation])
SingleValue: TypeAlias = bool | int | float | str | UUID | bytes | Decimal
"""A primitive value in memory."""
Json: TypeAlias = Any
_INTEGERS: Final = {
    name: traits.size for name, traits in TRAITS.items() if traits.family == "integer" or traits.is_counted
}
_INTEGER_LIMITS: Final = {name: 1 << 8 * size - 1 for name, size in _INTEGERS.items()}
_FLOATS: Final = {name: {4: "<f", 8: "<d"}[traits.size] for name, traits in TRAITS.items() if traits.family == "float"}
_SINGLE_PRECISION: Final = frozenset(name for name, layout in _FLOATS.items() if layout == "<f")
_UTC: Final = "+00:00"
_MAX_FLOAT: Final = 3.4028235677973366e38
"""Half a step above the largest float: smaller values round to it."""
_WIDENED: Final = {
    wide: DAY_SECONDS * 10 ** TRAITS[wide].digits if narrow.family == "date" else 1
    for narrow in TRAITS.values()
    for wide in narrow.promotions
}
"""Units of a type in one unit of the type that it was promoted from."""


@dataclass(frozen=True, slots=True)
class _Codec:
    """Forms of a family's values: the class in memory, the bound, and JSON. None where there is only null."""

    memory: type
    from_bytes: Callable[[PrimitiveType, bytes], SingleValue]
    to_json: Callable[[PrimitiveType, Any], Json] | None = None
    from_json: Callable[[PrimitiveType, Json], SingleValue] | None = None


def to_unscaled(value: Decimal, precision: int, scale: int) -> int:
    """Return the unscaled value of a decimal. InvalidRequestError: it fits neither scale nor precision."""
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
    """Return the decimal of an unscaled value."""
    return Decimal(number).scaleb(-scale, _EXACT)


def to_minimal_bytes(number: int) -> bytes:
    """Encode a number as two's complement, big endian, in as few bytes as possible."""
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def compute_fixed_size(precision: int) -> int:
    """Return the number of bytes that holds every unscaled value of a precision (spec, Appendix A)."""
    return len(to_minimal_bytes(10**precision - 1))


def to_bytes(kind: PrimitiveType, value: SingleValue) -> bytes:
    """Encode a value as a bound. InvalidRequestError: it isn't a value of the type."""
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
    """Decode a stored bound, which may be older than a promotion of its type.

    Four bytes are an int for a long, a float for a double, and a date for a timestamp.

    Raises:
        InvalidRequestError: the bound has a wrong length, or the type has no bounds.

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
    """Convert a value to JSON; None is null.

    InvalidRequestError: it isn't a value of the type, or has no JSON form.
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
    codec = _check_memory(kind, value)
    if codec.to_json is None:
        raise _refuse_json(kind)
    return codec.to_json(kind, value)


def from_json(kind: IcebergType, value: Json) -> Any:
    """Read the value of a JSON default; null is None.

    InvalidRequestError names the expected type.
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
    codec = _CODECS.get(kind.name)
    if codec is None or codec.from_json is None:
        raise _refuse_json(kind)
    result = codec.from_json(kind, value)
    _check_memory(kind, result)
    return result


def _refuse_json(kind: PrimitiveType) -> InvalidRequestError:
    return InvalidRequestError(f"type {kind} has no JSON single values other than null")


def _check_memory(kind: PrimitiveType, value: object) -> _Codec:
    codec = _CODECS.get(kind.name)
    if codec is None or type(value) is not codec.memory:
        raise InvalidRequestError(f"{value!r} isn't a value of type {kind}")
    limit = _INTEGER_LIMITS.get(kind.name)
    if limit and isinstance(value, int) and not -limit <= value < limit:
        raise InvalidRequestError(f"{value} doesn't fit type {kind}")
    if kind.name in _SINGLE_PRECISION and isinstance(value, float) and _MAX_FLOAT <= abs(value) < math.inf:
        raise InvalidRequestError(f"{value} doesn't fit type {kind}")
    return codec


def _to_unscaled(kind: PrimitiveType, value: Decimal) -> int:
    return to_unscaled(value, kind.precision or 0, kind.scale or 0)


def _quantize(kind: PrimitiveType, value: Decimal) -> Decimal:
    """Return the same number with exactly the type's decimals."""
    return from_unscaled(_to_unscaled(kind, value), kind.scale or 0)


def _integer_from_bytes(kind: PrimitiveType, data: bytes) -> int:
    size = len(data)
    if size == _INTEGERS[kind.name]:
        return int.from_bytes(data, "little", signed=True)
    if size == _SHORT and kind.name in _WIDENED:
        return int.from_bytes(data, "little", signed=True) * _WIDENED[kind.name]
    raise ValueError(size)


def _float_from_bytes(kind: PrimitiveType, data: bytes) -> float:
    value: float = struct.unpack(_FLOATS[kind.name] if len(data) != _SHORT else "<f", data)[0]
    return value


def _boolean_from_bytes(_: PrimitiveType, data: bytes) -> bool:
    return struct.unpack("<B", data) != (0,)


def _decimal_from_bytes(kind: PrimitiveType, data: bytes) -> Decimal:
    if not 1 <= len(data) <= MAX_DECIMAL_BYTES:
        raise ValueError(len(data))
    return from_unscaled(int.from_bytes(data, "big", signed=True), kind.scale or 0)


def _keep(_: PrimitiveType, value: Json) -> Json:
    return value


def _float_to_json(_: PrimitiveType, value: float) -> Json:
    if not math.isfinite(value):
        raise InvalidRequestError(f"{value} has no JSON form")
    return value


def _timestamp_to_json(kind: PrimitiveType, value: int) -> Json:
    traits = kind.traits
    return format_timestamp(value, traits.digits) + (_UTC if traits.has_zone else "")


def _map_from_json(kind: MapType, value: dict[str, Json]) -> tuple[tuple[Any, Any], ...]:
    keys, elements = (_require_json(list, kind, value.get(part)) for part in ("keys", "values"))
    if len(keys) != len(elements):
        raise InvalidRequestError(
            f"a map of {format_count(len(keys), 'key')} has {format_count(len(elements), 'value')}"
        )
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
        if not -(1 << 63) <= value < 1 << 64:  # orjson can't hold more
            raise InvalidRequestError(f"{value} as a {kind} is written with an exponent, as 1e30")
        return float(value)
    number: float = _require_json(float, kind, value)
    return number


def _timestamp_from_json(kind: PrimitiveType, value: Json) -> int:
    text, traits = _parse_text(kind, value), kind.traits
    if traits.has_zone:
        if not text.endswith((_UTC, "Z")):
            raise InvalidRequestError(f"{text!r} isn't a {kind}: write it in UTC, ending in {_UTC}")
        text = text.removesuffix("Z").removesuffix(_UTC)
    return parse_timestamp(text, traits.digits)


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


_OPAQUE: Final = _Codec(bytes, lambda _, data: data)
_BY_FAMILY: Final[Mapping[TypeFamily, _Codec]] = {
    "boolean": _Codec(bool, _boolean_from_bytes, _keep, lambda kind, value: _require_json(bool, kind, value)),
    "integer": _Codec(int, _integer_from_bytes, _keep, lambda kind, value: _require_json(int, kind, value)),
    "float": _Codec(float, _float_from_bytes, _float_to_json, _float_from_json),
    "decimal": _Codec(
        Decimal, _decimal_from_bytes, lambda kind, value: f"{_quantize(kind, value):f}", _decimal_from_json
    ),
    "date": _Codec(
        int,
        _integer_from_bytes,
        lambda _, value: format_date(value),
        lambda kind, value: parse_date(_parse_text(kind, value)),
    ),
    "time": _Codec(
        int,
        _integer_from_bytes,
        lambda kind, value: format_time(value, kind.traits.digits),
        lambda kind, value: parse_time(_parse_text(kind, value), kind.traits.digits),
    ),
    "timestamp": _Codec(int, _integer_from_bytes, _timestamp_to_json, _timestamp_from_json),
    "string": _Codec(str, lambda _, data: data.decode(), _keep, _parse_text),
    "uuid": _Codec(UUID, lambda _, data: UUID(bytes=data), lambda _, value: str(value), _uuid_from_json),
    "bytes": _Codec(bytes, lambda _, data: data, lambda _, value: value.hex(), _hex_from_json),
    "geo": _OPAQUE,
    "variant": _OPAQUE,
}
_CODECS: Final = {name: _BY_FAMILY[traits.family] for name, traits in TRAITS.items() if traits.family in _BY_FAMILY}
"""Codecs by type name. The type unknown has no values."""
_FROM_BYTES: Final = {name: codec.from_bytes for name, codec in _CODECS.items()}
