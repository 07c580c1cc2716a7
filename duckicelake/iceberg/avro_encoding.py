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
from typing import Any, Final, TypeAlias

from duckicelake.iceberg.avro_numbers import LONGS
from duckicelake.iceberg.decimals import unscaled
from duckicelake.iceberg.model import Json

Encode: TypeAlias = Callable[[Any], bytes]
_REMEMBERED: Final = 256
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


def _map(value_type: str) -> Encode:
    def longs(values: Mapping[Any, int]) -> bytes:
        keys, found = _in_order(values)
        return _counted(len(keys), map(add, keys, map(_long, found)))

    def blobs(values: Mapping[Any, bytes] | Mapping[Any, str]) -> bytes:
        keys, found = _in_order(values)
        stored = list(map(bytes.fromhex, found)) if isinstance(next(iter(found), None), str) else found
        return _counted(len(keys), chain.from_iterable(zip(keys, map(_long, map(len, stored)), stored, strict=True)))

    return blobs if value_type == "bytes" else longs


def _in_order(values: Mapping[Any, Any]) -> tuple[tuple[bytes, ...], Collection[Any]]:
    """(the keys of a map, encoded; its values): both in the order of the integers that the keys are."""
    order, encoded = _order(tuple(values))
    return encoded, values.values() if order is None else [values[key] for key in order]


@lru_cache(_REMEMBERED)
def _order(keys: tuple[Any, ...]) -> tuple[tuple[Any, ...] | None, tuple[bytes, ...]]:
    """(keys in order, None for those that come so; their encodings): many files have the same."""
    order = tuple(sorted(keys, key=int))
    return None if order == keys else order, tuple(LONGS[int(key)] for key in order)


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
