"""Values to Avro's binary encoding: a schema is compiled once to a function from value to bytes.

Records come as objects with the fields as attributes, as tuples by position, or as bytes if they are encoded already;
maps with integer keys as mappings, written in the order of their keys. Maps may also come as JSON has them: by the
digits of the keys, and bytes in hex. A value that doesn't fit its schema raises TypeError, AttributeError, ValueError,
OverflowError or struct.error.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from operator import add, attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from duckicelake.iceberg.avro_numbers import LONGS
from duckicelake.iceberg.decimals import unscaled
from duckicelake.iceberg.model import Json

Encode: TypeAlias = Callable[[Any], bytes]
_REMEMBERED: Final = 256
_END: Final = b"\x00"
_long: Final = LONGS.__getitem__


def encode_long(number: int) -> bytes:
    return LONGS[number]


def encode_bytes(value: bytes) -> bytes:
    return LONGS[len(value)] + value


def encode_string(value: str) -> bytes:
    return encode_bytes(value.encode())


_PRIMITIVES: Final[dict[str, Encode]] = {
    "null": lambda _: b"",
    "boolean": lambda value: b"\x01" if value else b"\x00",
    "int": encode_long,
    "long": encode_long,
    "float": struct.Struct("<f").pack,
    "double": struct.Struct("<d").pack,
    "bytes": encode_bytes,
    "string": encode_string,
}


def encoder(schema: Json, tuples: Collection[str] = ()) -> Encode:
    """Compile a schema that this package made. tuples: names of the records whose values are tuples."""
    if isinstance(schema, list):
        return _optional(encoder(schema[1], tuples))
    if isinstance(schema, str):
        return _PRIMITIVES[schema]
    match schema["type"]:
        case "record":
            return _record(schema, tuples)
        case "array" if schema.get("logicalType") == "map":
            return _map(schema["items"]["fields"][1]["type"])
        case "array":
            return _array(encoder(schema["items"], tuples))
        case "fixed":
            return _fixed(schema)
    return encoder(schema["type"], tuples)


def _optional(encode: Encode) -> Encode:
    return lambda value: b"\x00" if value is None else b"\x02" + encode(value)


def _record(schema: Json, tuples: Collection[str]) -> Encode:
    encoders = [encoder(field["type"], tuples) for field in schema["fields"]]
    if schema["name"] in tuples:
        return lambda values: b"".join([encode(value) for encode, value in zip(encoders, values, strict=True)])
    attributes = attrgetter(*(field["name"] for field in schema["fields"]))

    def encode_record(record: Any) -> bytes:
        if isinstance(record, bytes):
            return record
        return b"".join([encode(value) for encode, value in zip(encoders, attributes(record), strict=True)])

    return encode_record


def _array(encode: Encode) -> Encode:
    def array(values: Collection[Any]) -> bytes:
        return _counted(len(values), (encode(value) for value in values))

    return array


class _Keys(NamedTuple):
    """The keys of a map. in_order: by the integers that they are, None for those that come so.

    encoded: each of them, in order; number: how many there are. Both are in hex, too.
    """

    in_order: tuple[Any, ...] | None
    encoded: tuple[bytes, ...]
    number: bytes
    hex: tuple[str, ...]
    hex_number: str


def _map(value_type: str) -> Encode:
    def longs(values: Mapping[Any, int]) -> bytes:
        keys, found = _in_order(values)
        return b"".join([keys.number, *map(add, keys.encoded, map(_long, found)), _END]) if found else _END

    def blobs(values: Mapping[Any, bytes] | Mapping[Any, str]) -> bytes:
        keys, found = _in_order(values)
        if isinstance(next(iter(found), None), str):  # all of them become bytes at once
            pieces = zip(keys.hex, map(_hex_length, map(len, found)), found, strict=True)
            return bytes.fromhex("".join([keys.hex_number, *chain.from_iterable(pieces), _END.hex()]))
        stored = zip(keys.encoded, map(_long, map(len, found)), found, strict=True)
        return b"".join([keys.number, *chain.from_iterable(stored), _END]) if found else _END

    return blobs if value_type == "bytes" else longs


def _in_order(values: Mapping[Any, Any]) -> tuple[_Keys, Collection[Any]]:
    """(the keys of a map; its values): both in the order of the integers that the keys are."""
    keys = _keys(tuple(values))
    return keys, values.values() if keys.in_order is None else [values[key] for key in keys.in_order]


@lru_cache(_REMEMBERED)
def _keys(given: tuple[Any, ...]) -> _Keys:
    """Many files have the same."""
    in_order = tuple(sorted(given, key=int))
    encoded, number = tuple(LONGS[int(key)] for key in in_order), LONGS[len(given)]
    kept = None if in_order == given else in_order
    return _Keys(kept, encoded, number, tuple(map(bytes.hex, encoded)), number.hex())


class _HexLengths(dict[int, str]):
    """Of so many digits the number of bytes, encoded, in hex."""

    def __missing__(self, digits: int) -> str:
        if digits % 2:
            raise ValueError(f"{digits} digits are no bytes")
        encoded = LONGS[digits // 2].hex()
        if digits < _REMEMBERED:
            self[digits] = encoded
        return encoded


_hex_length: Final = _HexLengths().__getitem__


def _counted(count: int, items: Iterable[bytes]) -> bytes:
    return LONGS[count] + b"".join(items) + _END if count else _END


def _fixed(schema: Json) -> Encode:
    size: int = schema["size"]
    match schema.get("logicalType"):
        case "uuid":
            return lambda value: bytes(value.bytes)
        case "decimal":
            precision, scale = schema["precision"], schema["scale"]

            def decimal(value: Decimal) -> bytes:
                return unscaled(value, precision, scale).to_bytes(size, "big", signed=True)

            return decimal

    def fixed(value: bytes) -> bytes:
        if len(value) != size:
            raise ValueError(f"{len(value)} bytes for fixed[{size}]")
        return value

    return fixed
