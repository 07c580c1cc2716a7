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
from operator import attrgetter
from typing import Any, Final, TypeAlias

from duckicelake.iceberg.avro_numbers import LONGS
from duckicelake.iceberg.decimals import unscaled
from duckicelake.iceberg.model import Json

Encode: TypeAlias = Callable[[Any], bytes]
_REMEMBERED: Final = 256


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


def _map(value_type: str) -> Encode:
    def longs(values: Mapping[Any, int]) -> bytes:
        order = _in_order(tuple(values))
        return _counted(len(order), [first + LONGS[values[key]] for key, first in order])

    def blobs(values: Mapping[Any, bytes] | Mapping[Any, str]) -> bytes:
        order = _in_order(tuple(values))
        found: list[Any] = [values[key] for key, _ in order]
        stored: Iterable[bytes] = map(bytes.fromhex, found) if found and isinstance(found[0], str) else found
        pairs = zip(order, stored, strict=True)
        return _counted(len(order), [first + LONGS[len(value)] + value for (_, first), value in pairs])

    return blobs if value_type == "bytes" else longs


@lru_cache(_REMEMBERED)
def _in_order(keys: tuple[Any, ...]) -> tuple[tuple[Any, bytes], ...]:
    """The keys of a map in the order of the integers that they are, with their encodings: many files have the same."""
    return tuple((key, LONGS[int(key)]) for key in sorted(keys, key=int))


def _counted(count: int, items: Iterable[bytes]) -> bytes:
    return LONGS[count] + b"".join(items) + b"\x00" if count else b"\x00"


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
