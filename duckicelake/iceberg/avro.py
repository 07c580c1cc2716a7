"""Encode Avro values, write container files, and unpack their blocks (Avro 1.12 specification)."""

import hashlib
import io
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from operator import add, attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from duckicelake.errors import InvalidRequestError
from duckicelake.extras import import_extra
from duckicelake.iceberg.model import Json
from duckicelake.iceberg.values import to_unscaled

Encode: TypeAlias = Callable[[Any], bytes]
_LRU_ENTRIES: Final = 256
_END: Final = b"\x00"
_CACHED_BELOW: Final = 1 << 14
MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
_BLOCK_BYTES: Final = 1 << 14
"""As fastavro has it. Deflating needs no interpreter lock, so other threads run between two blocks."""
_CRC_BYTES: Final = 4
_MORE: Final = 0x80
_LONG_LITERAL: Final = 60
_DEFLATE_LEVEL: Final = 4
"""zlib's level: takes 60 % of the time of its default 6, for as many bytes, since manifests repeat nearby content."""


class _EncodedLongs(dict[int, bytes]):
    """Cache encoded integers by value; small ones, which are most, stay for ever."""

    def __missing__(self, number: int) -> bytes:
        encoded = _encode_long(number)
        if 0 <= number < _CACHED_BELOW:
            self[number] = encoded
        return encoded


def _encode_long(number: int) -> bytes:
    rest = number * 2 if number >= 0 else -2 * number - 1
    if rest < 0x80:
        return bytes((rest,))
    if rest < 0x4000:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    if rest < 0x200000:
        return bytes((rest & 0x7F | 0x80, rest >> 7 & 0x7F | 0x80, rest >> 14))
    if rest >> 64:
        raise OverflowError(f"{number} has more than 64 bits")
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


_ENCODED_LONGS: Final = _EncodedLongs()
_long: Final = _ENCODED_LONGS.__getitem__


def encode_long(number: int) -> bytes:
    return _ENCODED_LONGS[number]


def encode_bytes(value: bytes) -> bytes:
    return _ENCODED_LONGS[len(value)] + value


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


def compile_encoder(schema: Json, tuples: Collection[str] = ()) -> Encode:
    """Compile a schema that this package made. tuples: names of the records whose values are tuples."""
    if isinstance(schema, list):
        return _compile_optional(compile_encoder(schema[1], tuples))
    if isinstance(schema, str):
        return _PRIMITIVES[schema]
    match schema["type"]:
        case "record":
            return _compile_record(schema, tuples)
        case "array" if schema.get("logicalType") == "map":
            return _compile_map(schema["items"]["fields"][1]["type"])
        case "array":
            return _compile_array(compile_encoder(schema["items"], tuples))
        case "fixed":
            return _compile_fixed(schema)
    return compile_encoder(schema["type"], tuples)


def _compile_optional(encode: Encode) -> Encode:
    return lambda value: b"\x00" if value is None else b"\x02" + encode(value)


def _compile_record(schema: Json, tuples: Collection[str]) -> Encode:
    encoders = [compile_encoder(field["type"], tuples) for field in schema["fields"]]
    if schema["name"] in tuples:
        return lambda values: b"".join([encode(value) for encode, value in zip(encoders, values, strict=True)])
    attributes = attrgetter(*(field["name"] for field in schema["fields"]))

    def encode_record(record: Any) -> bytes:
        if isinstance(record, bytes):
            return record
        return b"".join([encode(value) for encode, value in zip(encoders, attributes(record), strict=True)])

    return encode_record


def _compile_array(encode: Encode) -> Encode:
    def array(values: Collection[Any]) -> bytes:
        return _prefix_count(len(values), (encode(value) for value in values))

    return array


class _MapKeys(NamedTuple):
    """The keys of a map, encoded and in hex.

    in_order: the keys in the order of their integers, None if they come in it. number: how many there are.

    encoded: each of them, in order; number: how many there are. Both are in hex, too.
    """

    in_order: tuple[Any, ...] | None
    encoded: tuple[bytes, ...]
    number: bytes
    hex: tuple[str, ...]
    hex_number: str


def _compile_map(value_type: str) -> Encode:
    def longs(values: Mapping[Any, int]) -> bytes:
        keys, found = _sort_by_key(values)
        return b"".join([keys.number, *map(add, keys.encoded, map(_long, found)), _END]) if found else _END

    def blobs(values: Mapping[Any, bytes] | Mapping[Any, str]) -> bytes:
        keys, found = _sort_by_key(values)
        if isinstance(next(iter(found), None), str):  # all of them become bytes at once
            pieces = zip(keys.hex, map(_hex_length, map(len, found)), found, strict=True)
            return bytes.fromhex("".join([keys.hex_number, *chain.from_iterable(pieces), _END.hex()]))
        stored = zip(keys.encoded, map(_long, map(len, found)), found, strict=True)
        return b"".join([keys.number, *chain.from_iterable(stored), _END]) if found else _END

    return blobs if value_type == "bytes" else longs


def _sort_by_key(values: Mapping[Any, Any]) -> tuple[_MapKeys, Collection[Any]]:
    """Return a map's keys and its values, both in the order of the integers that the keys are."""
    keys = _build_keys(tuple(values))
    return keys, values.values() if keys.in_order is None else [values[key] for key in keys.in_order]


@lru_cache(_LRU_ENTRIES)
def _build_keys(given: tuple[Any, ...]) -> _MapKeys:
    """Build the keys of a schema's maps, cached as many files have the same."""
    in_order = tuple(sorted(given, key=int))
    encoded, number = tuple(_ENCODED_LONGS[int(key)] for key in in_order), _ENCODED_LONGS[len(given)]
    kept = None if in_order == given else in_order
    return _MapKeys(kept, encoded, number, tuple(map(bytes.hex, encoded)), number.hex())


class _HexLengths(dict[int, str]):
    """Cache encoded byte counts, in hex, by the number of hex digits."""

    def __missing__(self, digits: int) -> str:
        if digits % 2:
            raise ValueError(f"{digits} digits are no bytes")
        encoded = _ENCODED_LONGS[digits // 2].hex()
        if digits < _LRU_ENTRIES:
            self[digits] = encoded
        return encoded


_hex_length: Final = _HexLengths().__getitem__


def _prefix_count(count: int, items: Iterable[bytes]) -> bytes:
    return _ENCODED_LONGS[count] + b"".join(items) + _END if count else _END


def _compile_fixed(schema: Json) -> Encode:
    size: int = schema["size"]
    match schema.get("logicalType"):
        case "uuid":
            return lambda value: bytes(value.bytes)
        case "decimal":
            precision, scale = schema["precision"], schema["scale"]

            def encode_decimal(value: Decimal) -> bytes:
                return to_unscaled(value, precision, scale).to_bytes(size, "big", signed=True)

            return encode_decimal

    def encode_fixed(value: bytes) -> bytes:
        if len(value) != size:
            raise ValueError(f"{len(value)} bytes for fixed[{size}]")
        return value

    return encode_fixed


def write_container(schema: Json, metadata: Mapping[str, str], records: Iterable[bytes]) -> bytes:
    """Return a deflated container of encoded records.

    Its sync marker is a hash of the content: same input, same bytes.
    """
    header = {"avro.schema": orjson.dumps(schema).decode(), "avro.codec": "deflate", **metadata}
    pairs = [encode_bytes(key.encode()) + encode_bytes(value.encode()) for key, value in header.items()]
    opening = b"".join((MAGIC, encode_long(len(pairs)), *pairs, b"\x00"))
    blocks = [
        encode_long(count) + encode_bytes(zlib.compress(data, _DEFLATE_LEVEL, wbits=-zlib.MAX_WBITS))
        for count, data in _split_records(records)
    ]
    digest = hashlib.sha256(opening)
    for block in blocks:
        digest.update(block)
    sync = digest.digest()[:SYNC_BYTES]
    return sync.join((opening, *blocks, b""))


def _split_records(records: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    chunk: list[bytes] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += len(record)
        if size >= _BLOCK_BYTES:
            yield len(chunk), b"".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield len(chunk), b"".join(chunk)


def unpack_block(packed: bytes, codec: str, budget: int) -> bytes:
    """Unpack a block, or a little more than `budget` of its first bytes if it is larger."""
    match codec:
        case "null":
            return packed
        case "deflate":
            return _inflate(packed, budget)
        case "zstandard":
            return _unpack_zstd(packed, budget)
        case "snappy":
            return _unpack_snappy(packed, budget)
    raise InvalidRequestError(f"its codec is {codec[:40]!r}; this server reads null, deflate, snappy and zstandard")


def _inflate(packed: bytes, budget: int) -> bytes:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        block = stream.decompress(packed, budget + 1)
    except zlib.error as error:
        raise InvalidRequestError(f"a block can't be inflated: {error}") from error
    if not stream.eof and len(block) <= budget:
        raise InvalidRequestError("a block can't be inflated: it ends too early")
    return block


def _unpack_zstd(packed: bytes, budget: int) -> bytes:
    """Unpack all frames of a block, of which there may be several."""
    zstandard: Any = import_extra("zstandard")
    try:
        stream = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed), read_across_frames=True)
        unpacked: bytes = stream.read(budget + 1)
    except zstandard.ZstdError as error:
        raise InvalidRequestError(f"a block can't be unpacked with codec zstandard: {error}") from error
    return unpacked


def _read_snappy_length(packed: bytes) -> int:
    """Return the unpacked length that the block states, in seven bits of each of its first bytes.

    Never unpack more than that.
    """
    length = 0
    for place, byte in enumerate(packed[:5]):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return length


def _unpack_snappy(packed: bytes, budget: int) -> bytes:
    """Unpack a block of Snappy, which ends with a checksum. No more is unpacked than the block states at first."""
    length = _read_snappy_length(packed)
    if length > budget:
        raise InvalidRequestError(f"a block says that it unpacks to {length} bytes, of {budget} at most")
    stream, unpacked = io.BytesIO(packed[:-_CRC_BYTES]), bytearray()
    try:
        while stream.read(1)[0] & _MORE:  # the length
            pass
        while (tag := stream.read(1)) and len(unpacked) <= length:
            _unpack_snappy_element(tag[0], stream, unpacked)
    except IndexError:
        raise InvalidRequestError("a block can't be unpacked with codec snappy: it ends too early") from None
    if len(unpacked) != length or zlib.crc32(unpacked) != int.from_bytes(packed[-_CRC_BYTES:]):
        raise InvalidRequestError("a block can't be unpacked with codec snappy: its length or its checksum is wrong")
    return bytes(unpacked)


def _unpack_snappy_element(tag: int, stream: io.BytesIO, unpacked: bytearray) -> None:
    """Append a literal, or a copy of what is there. IndexError where the stream or what is there is too short."""
    kind, size = tag & 3, tag >> 2
    if kind == 0:
        if size >= _LONG_LITERAL:
            size = int.from_bytes(_read_exactly(stream, size - _LONG_LITERAL + 1), "little")
        unpacked += _read_exactly(stream, size + 1)
        return
    if kind == 1:
        size, distance = 4 + (size & 7), (tag >> 5 << 8) | _read_exactly(stream, 1)[0]
    else:
        size, distance = size + 1, int.from_bytes(_read_exactly(stream, 2 if kind == 2 else 4), "little")
    if not 0 < distance <= len(unpacked):
        raise IndexError
    beginning = unpacked[-distance:][:size]
    unpacked += (beginning * (size // len(beginning) + 1))[:size]


def _read_exactly(stream: io.BytesIO, size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise IndexError
    return found
