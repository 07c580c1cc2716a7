"""Avro's binary encoding to values, for schemas that other writers made and that may be corrupt or hostile.

A schema is compiled to a Reader. What manifests never hold is refused: recursion, deep nesting, unions of more than one
type, and arrays of items without bytes, whose declared number would not be bounded by the file's length.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, NoReturn, TypeAlias
from uuid import UUID

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.avro_numbers import read_long, take
from duckicelake.iceberg.decimals import MAX_BYTES, scaled
from duckicelake.iceberg.model import Json

Decode: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""From data and an offset to a value and the offset after it. IndexError if the data ends first."""
_MAX_DEPTH: Final = 12
_MAX_SCALE: Final = 38
_MAX_ITEMS: Final = 200_000
"""Items of a list or map, which are a table's columns or a file's row groups."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A compiled schema. shape: what it reads, to compare with what is due. fields: of a record, by field id."""

    shape: str
    decode: Decode
    is_empty: bool = False
    fields: Mapping[int | str, "Reader"] = field(default_factory=dict)


def reader(schema: Json, named: dict[str, Reader] | None = None, depth: int = 0) -> Reader:
    """Compile a schema. Records become dicts by field id (by name where there is none), integer maps dicts.

    Decimals and uuids become such; dates, times and timestamps stay integers. Raises InvalidRequest.
    """
    named = {} if named is None else named
    if depth > _MAX_DEPTH:
        raise InvalidRequest("its Avro schema is nested too deeply for a manifest")
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or named.get(schema) or _refuse(schema)
    if isinstance(schema, list):
        return _union([reader(branch, named, depth + 1) for branch in schema])
    if not isinstance(schema, dict):
        _refuse(schema)
    logical = schema.get("logicalType")
    match schema.get("type"):
        case "record":
            return _record(schema, named, depth)
        case "array":
            return _array(schema, named, depth)
        case "fixed":
            fixed = named[str(schema.get("name"))] = _fixed(schema)
            return fixed
        case "bytes" if logical == "decimal":
            return Reader("decimal", _decimal(schema, _read_bytes))
        case "string" if logical == "uuid":
            return Reader("uuid", _converted(_read_string, UUID))
    return reader(schema.get("type"), named, depth + 1)


def decode_records(records: Reader, count: int, data: bytes) -> Iterator[Any]:
    """Decode a block of so many records, which must be all of its bytes. Raises InvalidRequest."""
    if records.is_empty or not 0 <= count <= len(data):
        raise InvalidRequest(f"a block of {len(data)} bytes declares {count} records")
    at = 0
    try:
        for _ in range(count):
            record, at = records.decode(data, at)
            yield record
    except IndexError as error:
        raise InvalidRequest(f"a record ends after its block, which has {len(data)} bytes") from error
    except (ValueError, ArithmeticError) as error:
        raise InvalidRequest(f"after byte {at} of a block: {error}") from error
    if at != len(data):
        raise InvalidRequest(f"a block has {len(data) - at} bytes after its last record")


def _refuse(schema: Json) -> NoReturn:
    raise InvalidRequest(f"its Avro schema has a type that no manifest holds: {str(schema)[:80]}")


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(data, at)
    return take(data, at, size)


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    size, at = read_long(data, at)
    raw, at = take(data, at, size)
    return raw.decode(), at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


def _packed(size: int, code: str) -> Decode:
    unpack = struct.Struct(code).unpack

    def decode(data: bytes, at: int) -> tuple[float, int]:
        raw, at = take(data, at, size)
        return unpack(raw)[0], at

    return decode


_PRIMITIVES: Final = {
    "null": Reader("null", lambda _, at: (None, at), is_empty=True),
    "boolean": Reader("boolean", _read_boolean),
    "int": Reader("integer", read_long),
    "long": Reader("integer", read_long),
    "float": Reader("float", _packed(4, "<f")),
    "double": Reader("float", _packed(8, "<d")),
    "bytes": Reader("bytes", _read_bytes),
    "string": Reader("string", _read_string),
}


def _union(branches: list[Reader]) -> Reader:
    shapes = [branch for branch in branches if branch.shape != "null"]
    if not branches or len(branches) > 2 or len(shapes) > 1:
        raise InvalidRequest(f"its Avro schema has a union of {len(branches)} types, not of null and one other")
    decoders = [branch.decode for branch in branches]

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        index, at = read_long(data, at)
        if not 0 <= index < len(decoders):
            raise InvalidRequest(f"byte {at} chooses type {index} of a union of {len(decoders)}")
        return decoders[index](data, at)

    return Reader(shapes[0].shape if shapes else "null", decode, fields=shapes[0].fields if shapes else {})


def _record(schema: dict[str, Json], named: dict[str, Reader], depth: int) -> Reader:
    fields: dict[int | str, Reader] = {}
    declared = schema.get("fields")
    for each in declared if isinstance(declared, list) else [None]:
        if not isinstance(each, dict):
            _refuse(schema)
        key = each.get("field-id", each.get("name"))
        if not isinstance(key, int | str) or key in fields:
            raise InvalidRequest(f"its Avro schema has a record with two fields {key!r}")
        fields[key] = reader(each.get("type"), named, depth + 1)
    decoders = [(key, each.decode) for key, each in fields.items()]

    def decode(data: bytes, at: int) -> tuple[dict[int | str, Any], int]:
        row: dict[int | str, Any] = {}
        for key, decode_field in decoders:
            row[key], at = decode_field(data, at)
        return row, at

    return Reader("record", decode, all(each.is_empty for each in fields.values()), fields)


def _array(schema: dict[str, Json], named: dict[str, Reader], depth: int) -> Reader:
    items = reader(schema.get("items"), named, depth + 1)
    if items.is_empty:
        raise InvalidRequest("its Avro schema has an array whose items have no bytes")
    if schema.get("logicalType") == "map":
        return _map(items)

    def decode(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        values: list[Any] = []
        count, at = _next_items(data, at)
        while count:
            for _ in range(count):
                value, at = items.decode(data, at)
                values.append(value)
            count, at = _next_items(data, at, len(values))
        return tuple(values), at

    return Reader(f"list of {items.shape}", decode, fields=items.fields)


def _next_items(data: bytes, at: int, before: int = 0) -> tuple[int, int]:
    """How many items follow at the offset returned; each has a byte at least, so that a wrong number ends the data."""
    count, at = read_long(data, at)
    if count < 0:
        _, at = read_long(data, at)
    if before + abs(count) > _MAX_ITEMS:
        raise InvalidRequest(f"a list or map of {before + abs(count)} items is declared at byte {at}")
    return abs(count), at


def _map(items: Reader) -> Reader:
    shapes = [each.shape for each in items.fields.values()]
    if len(shapes) != 2 or shapes[0] != "integer":
        raise InvalidRequest("its Avro schema has a map that isn't a list of integer keys and their values")
    _, read_value = (each.decode for each in items.fields.values())

    def decode(data: bytes, at: int) -> tuple[dict[int, Any], int]:
        values: dict[int, Any] = {}
        count, at = _next_items(data, at)
        total = count
        while count:
            for _ in range(count):
                key, at = read_long(data, at)
                values[key], at = read_value(data, at)
            count, at = _next_items(data, at, total)
            total += count
        return values, at

    return Reader(f"map to {shapes[1]}", decode)


def _fixed(schema: dict[str, Json]) -> Reader:
    size = schema.get("size")
    if not isinstance(size, int) or size < 1:
        _refuse(schema)

    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        return take(data, at, size)

    match schema.get("logicalType"):
        case "uuid":
            return Reader("uuid", _converted(decode, lambda raw: UUID(bytes=raw)))
        case "decimal":
            return Reader("decimal", _decimal(schema, decode))
    return Reader("bytes", decode)


def _decimal(schema: dict[str, Json], read: Decode) -> Decode:
    scale = schema.get("scale", 0)
    if not isinstance(scale, int) or not 0 <= scale <= _MAX_SCALE:
        _refuse(schema)

    def convert(raw: bytes) -> Decimal:
        if not 1 <= len(raw) <= MAX_BYTES:
            raise ValueError(f"a decimal has {len(raw)} bytes")
        return scaled(int.from_bytes(raw, "big", signed=True), scale)

    return _converted(read, convert)


def _converted(read: Decode, convert: Callable[[Any], Any]) -> Decode:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        raw, at = read(data, at)
        return convert(raw), at

    return decode
