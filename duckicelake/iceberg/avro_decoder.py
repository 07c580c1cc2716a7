"""Decode Avro container files of any writer, including corrupt and hostile data."""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import Any, Final, NoReturn, TypeAlias
from uuid import UUID

import orjson

from duckicelake.errors import InvalidRequestError, format_count
from duckicelake.iceberg.avro import MAGIC, SYNC_BYTES, unpack_block
from duckicelake.iceberg.model import Json
from duckicelake.iceberg.values import MAX_DECIMAL_BYTES, from_unscaled

_DECODED_BYTES: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))
"""Integers by a single byte, which most integers are."""
Decode: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""From data and an offset to a value and the offset after it. IndexError if the data ends first."""
MAX_UNPACKED_BYTES: Final = 128 << 20
"""Bytes that the blocks of one file may unpack to; manifests are about 8 MB packed (`commit.manifest.target-size`)."""
MAX_SMALL_UNPACKED_BYTES: Final = 8 << 20
MAX_RATIO: Final = 40
"""Unpacked bytes by packed ones: repeated content would take much more memory, as values, than the file has bytes."""

_MAX_DEPTH: Final = 12
_MAX_SCALE: Final = 38
_MAX_REMEMBERED_BYTES: Final = 1 << 10
_REMEMBERED_RECORDS: Final = 4096
_MAX_ITEMS: Final = 200_000
"""Items of a list or map, which are a table's columns or a file's row groups."""


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Read the integer at an offset. Returns it and the offset after it. IndexError: the data ends first."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return _DECODED_BYTES[byte], at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > 63:
            raise InvalidRequestError(f"the integer that ends at byte {at} has more than 64 bits")


def read_exactly(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    """Read `size` bytes from an offset. Returns them and the offset after them. IndexError: the data ends first."""
    end = at + size
    if size < 0:
        raise InvalidRequestError(f"a length of {size} is declared at byte {at}")
    if end > len(data):
        raise IndexError(end)
    return data[at:end], end


@dataclass(frozen=True, slots=True)
class Container:
    """A container file taken apart. packed: of each block the number of records, and its packed bytes."""

    schema_text: bytes
    metadata: Mapping[str, str]
    packed: tuple[tuple[int, bytes], ...]
    limit: int = MAX_UNPACKED_BYTES

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield each block's number of records and unpacked bytes. InvalidRequestError: it can't be unpacked."""
        codec, budget = self.metadata.get("avro.codec") or "null", self.limit
        for count, packed in self.packed:
            block = unpack_block(packed, codec, budget)
            if len(block) > budget:
                raise InvalidRequestError(f"its blocks unpack to more than {self.limit} bytes")
            budget -= len(block)
            yield count, block

    @property
    def schema(self) -> Json:
        """The schema; InvalidRequestError if its text isn't JSON."""
        try:
            return orjson.loads(self.schema_text)
        except orjson.JSONDecodeError as error:
            raise InvalidRequestError("its header holds no readable avro.schema") from error


def read_container(data: bytes) -> Container:
    """Take a container file apart. InvalidRequestError: it is malformed; the message says how."""
    if not data.startswith(MAGIC):
        raise InvalidRequestError("it isn't an Avro file" if data else "it is empty")
    try:
        header, at = _read_header(data)
        sync, at = read_exactly(data, at, SYNC_BYTES)
        packed = tuple(_read_blocks(data, at, sync))
    except IndexError as error:
        raise InvalidRequestError("it ends before its last block does") from error
    schema = header.pop("avro.schema", b"")
    limit = min(MAX_UNPACKED_BYTES, max(MAX_SMALL_UNPACKED_BYTES, MAX_RATIO * len(data)))
    return Container(schema, {key: _decode_header_text(header, key) for key in header}, packed, limit)


def _read_header(data: bytes) -> tuple[dict[str, bytes], int]:
    header: dict[str, bytes] = {}
    count, at = read_long(data, len(MAGIC))
    while count:
        if count < 0:
            _, at = read_long(data, at)
        for _ in range(abs(count)):
            size, at = read_long(data, at)
            key, at = read_exactly(data, at, size)
            size, at = read_long(data, at)
            header[key.decode(errors="replace")], at = read_exactly(data, at, size)
        count, at = read_long(data, at)
    return header, at


def _decode_header_text(header: Mapping[str, bytes], key: str) -> str:
    try:
        return header.get(key, b"").decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{key!r} in its header isn't text") from error


def _read_blocks(data: bytes, at: int, sync: bytes) -> Iterator[tuple[int, bytes]]:
    while at < len(data):
        count, at = read_long(data, at)
        size, at = read_long(data, at)
        packed, at = read_exactly(data, at, size)
        marker, at = read_exactly(data, at, SYNC_BYTES)
        if marker != sync:
            raise InvalidRequestError(f"the block that ends at byte {at} isn't closed by the file's sync marker")
        yield count, packed


@dataclass(frozen=True, slots=True)
class AvroReader:
    """A compiled schema. shape: what it reads, to compare with what is expected. fields: of a record, by field id."""

    shape: str
    decode: Decode
    is_empty: bool = False
    fields: Mapping[int | str, "AvroReader"] = field(default_factory=dict)


def compile_reader(schema: Json, named: dict[str, AvroReader] | None = None, depth: int = 0) -> AvroReader:
    """Compile a schema. Records become dicts by field id (by name where there is none), integer maps dicts.

    Decimals and uuids become such; dates, times and timestamps stay integers. Raises InvalidRequestError.
    """
    named = {} if named is None else named
    if depth > _MAX_DEPTH:
        raise InvalidRequestError("its Avro schema is nested too deeply for a manifest")
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or named.get(schema) or _refuse_schema(schema)
    if isinstance(schema, list):
        return _compile_union([compile_reader(branch, named, depth + 1) for branch in schema])
    if not isinstance(schema, dict):
        _refuse_schema(schema)
    logical = schema.get("logicalType")
    match schema.get("type"):
        case "record":
            return _compile_record(schema, named, depth)
        case "array":
            return _compile_array(schema, named, depth)
        case "fixed":
            fixed = named[str(schema.get("name"))] = _compile_fixed(schema)
            return fixed
        case "bytes" if logical == "decimal":
            return AvroReader("decimal", _compile_decimal(schema, _read_bytes))
        case "string" if logical == "uuid":
            return AvroReader("uuid", _convert_after(_read_string, UUID))
    return compile_reader(schema.get("type"), named, depth + 1)


def _decode_block(records: AvroReader, count: int, data: bytes) -> Iterator[Any]:
    """Decode a block of `count` records, which must fill all of its bytes. InvalidRequestError: they don't."""
    if records.is_empty or not 0 <= count <= len(data):
        raise InvalidRequestError(f"a block of {len(data)} bytes declares {format_count(count, 'record')}")
    at = 0
    try:
        for _ in range(count):
            record, at = records.decode(data, at)
            yield record
    except IndexError as error:
        raise InvalidRequestError(f"a record ends after its block, which has {len(data)} bytes") from error
    except (ValueError, ArithmeticError) as error:
        raise InvalidRequestError(f"after byte {at} of a block: {error}") from error
    if at != len(data):
        raise InvalidRequestError(f"a block has {len(data) - at} bytes after its last record")


def decode_all(container: Container, records: AvroReader, at_most: int) -> Iterator[Any]:
    """Decode the records of all blocks. Raises InvalidRequestError, at once for more than `at_most`."""
    declared = sum([count for count, _ in container.packed])
    if declared > at_most:
        raise InvalidRequestError(f"it has {declared} records; this server reads up to {at_most} in a file")
    return chain.from_iterable(_decode_block(records, count, block) for count, block in container.blocks())


def remember_records(records: AvroReader, build: Callable[[Any], Any]) -> AvroReader:
    """Make a reader that returns `build(record)` and caches it for small records.

    The cache finds a record's bytes by their first field, a string.
    """
    known: dict[bytes, tuple[bytes, Any]] = {}

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        size, first_at = read_long(data, at)
        first = data[at : first_at + size] if size < _MAX_REMEMBERED_BYTES else b""
        found = known.get(first)
        if found is not None and data.startswith(found[0], at):
            return found[1], at + len(found[0])
        row, end = records.decode(data, at)
        made = build(row)
        if end - at <= _MAX_REMEMBERED_BYTES:
            if len(known) >= _REMEMBERED_RECORDS:
                known.clear()
            known[first] = data[at:end], made
        return made, end

    return AvroReader("remembered", decode, records.is_empty)


def _refuse_schema(schema: Json) -> NoReturn:
    raise InvalidRequestError(f"its Avro schema has a type that no manifest holds: {str(schema)[:80]}")


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(data, at)
    return read_exactly(data, at, size)


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    size, at = read_long(data, at)
    raw, at = read_exactly(data, at, size)
    return raw.decode(), at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


def _make_packed_reader(size: int, code: str) -> Decode:
    unpack = struct.Struct(code).unpack

    def decode(data: bytes, at: int) -> tuple[float, int]:
        raw, at = read_exactly(data, at, size)
        return unpack(raw)[0], at

    return decode


_PRIMITIVES: Final = {
    "null": AvroReader("null", lambda _, at: (None, at), is_empty=True),
    "boolean": AvroReader("boolean", _read_boolean),
    "int": AvroReader("integer", read_long),
    "long": AvroReader("integer", read_long),
    "float": AvroReader("float", _make_packed_reader(4, "<f")),
    "double": AvroReader("float", _make_packed_reader(8, "<d")),
    "bytes": AvroReader("bytes", _read_bytes),
    "string": AvroReader("string", _read_string),
}


def _compile_union(branches: list[AvroReader]) -> AvroReader:
    shapes = [branch for branch in branches if branch.shape != "null"]
    if not branches or len(branches) > 2 or len(shapes) > 1:
        raise InvalidRequestError(f"its Avro schema has a union of {len(branches)} types, not of null and one other")
    decoders = [branch.decode for branch in branches]

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        index, at = read_long(data, at)
        if not 0 <= index < len(decoders):
            raise InvalidRequestError(f"byte {at} chooses type {index} of a union of {len(decoders)}")
        return decoders[index](data, at)

    return AvroReader(shapes[0].shape if shapes else "null", decode, fields=shapes[0].fields if shapes else {})


def _compile_record(schema: dict[str, Json], named: dict[str, AvroReader], depth: int) -> AvroReader:
    fields: dict[int | str, AvroReader] = {}
    declared = schema.get("fields")
    for item in declared if isinstance(declared, list) else [None]:
        if not isinstance(item, dict):
            _refuse_schema(schema)
        key = item.get("field-id", item.get("name"))
        if not isinstance(key, int | str) or key in fields:
            raise InvalidRequestError(f"its Avro schema has a record with two fields {key!r}")
        fields[key] = compile_reader(item.get("type"), named, depth + 1)
    decoders = [(key, field_reader.decode) for key, field_reader in fields.items()]

    def decode(data: bytes, at: int) -> tuple[dict[int | str, Any], int]:
        row: dict[int | str, Any] = {}
        for key, decode_field in decoders:
            row[key], at = decode_field(data, at)
        return row, at

    return AvroReader("record", decode, all(field_reader.is_empty for field_reader in fields.values()), fields)


def _compile_array(schema: dict[str, Json], named: dict[str, AvroReader], depth: int) -> AvroReader:
    items = compile_reader(schema.get("items"), named, depth + 1)
    if items.is_empty:
        raise InvalidRequestError("its Avro schema has an array whose items have no bytes")
    if schema.get("logicalType") == "map":
        return _compile_map(items)

    def decode(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        values: list[Any] = []
        count, at = _read_item_count(data, at)
        while count:
            for _ in range(count):
                value, at = items.decode(data, at)
                values.append(value)
            count, at = _read_item_count(data, at, len(values))
        return tuple(values), at

    return AvroReader(f"list of {items.shape}", decode, fields=items.fields)


def _read_item_count(data: bytes, at: int, before: int = 0) -> tuple[int, int]:
    """Return the number of items that follow, and the offset after it.

    Each item has at least one byte, so a wrong number only reaches the end of the data.
    """
    count, at = read_long(data, at)
    if count < 0:
        _, at = read_long(data, at)
    if before + abs(count) > _MAX_ITEMS:
        raise InvalidRequestError(f"a list or map of {before + abs(count)} items is declared at byte {at}")
    return abs(count), at


def _compile_map(items: AvroReader) -> AvroReader:
    shapes = [field_reader.shape for field_reader in items.fields.values()]
    if len(shapes) != 2 or shapes[0] != "integer":
        raise InvalidRequestError("its Avro schema has a map that isn't a list of integer keys and their values")
    _, read_value = (field_reader.decode for field_reader in items.fields.values())

    def decode(data: bytes, at: int) -> tuple[dict[int, Any], int]:
        values: dict[int, Any] = {}
        count, at = _read_item_count(data, at)
        total = count
        while count:
            for _ in range(count):
                key, at = read_long(data, at)
                values[key], at = read_value(data, at)
            count, at = _read_item_count(data, at, total)
            total += count
        return values, at

    return AvroReader(f"map to {shapes[1]}", decode)


def _compile_fixed(schema: dict[str, Json]) -> AvroReader:
    size = schema.get("size")
    if not isinstance(size, int) or size < 1:
        _refuse_schema(schema)

    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        return read_exactly(data, at, size)

    match schema.get("logicalType"):
        case "uuid":
            return AvroReader("uuid", _convert_after(decode, lambda raw: UUID(bytes=raw)))
        case "decimal":
            return AvroReader("decimal", _compile_decimal(schema, decode))
    return AvroReader("bytes", decode)


def _compile_decimal(schema: dict[str, Json], read: Decode) -> Decode:
    scale = schema.get("scale", 0)
    if not isinstance(scale, int) or not 0 <= scale <= _MAX_SCALE:
        _refuse_schema(schema)

    def convert(raw: bytes) -> Decimal:
        if not 1 <= len(raw) <= MAX_DECIMAL_BYTES:
            raise ValueError(f"a decimal has {len(raw)} bytes")
        return from_unscaled(int.from_bytes(raw, "big", signed=True), scale)

    return _convert_after(read, convert)


def _convert_after(read: Decode, convert: Callable[[Any], Any]) -> Decode:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        raw, at = read(data, at)
        return convert(raw), at

    return decode
