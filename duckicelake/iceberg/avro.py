"""Avro object container files as bytes, both ways (Avro 1.12 specification, "Object Container Files").

Written here rather than with fastavro because a container must be the same bytes twice, because fastavro takes 250 ms
to encode a manifest of 1,000 files with metrics of 20 columns, and because its C reader ends the process on a file
whose schema is recursive. fastavro still unpacks snappy, if its library is there.
"""

import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import orjson
from fastavro.read import BLOCK_READERS

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.avro_encoding import encode_bytes, encode_long
from duckicelake.iceberg.avro_numbers import read_long, take
from duckicelake.iceberg.model import Json

try:
    import zstandard
except ImportError:  # an optional library
    zstandard = None  # type: ignore[assignment]

MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_BLOCK_BYTES: Final = 1 << 14
"""As fastavro's: deflating needs no interpreter, so that other threads come to work between any two blocks."""
_EFFORT: Final = 4
"""Of zlib's 9: 60 % of the time that its default of 6 takes, for as many bytes; manifests repeat what is close by."""
MAX_UNPACKED: Final = 128 << 20
"""Bytes that the blocks of one file may unpack to; manifests are about 8 MB packed (`commit.manifest.target-size`)."""
MAX_UNPACKED_OF_SMALL: Final = 8 << 20
MAX_RATIO: Final = 40
"""A file that says the same again and again would take much more memory, as values, than it has bytes."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container file taken apart. packed: of each block how many records it has, and its bytes as they are packed."""

    schema_text: bytes
    metadata: Mapping[str, str]
    packed: tuple[tuple[int, bytes], ...]
    limit: int = MAX_UNPACKED

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """How many records, and their bytes one after the other; InvalidRequest if it can't be unpacked."""
        codec, budget = self.metadata.get("avro.codec") or "null", self.limit
        for count, packed in self.packed:
            block = _unpack(packed, codec, budget)
            if len(block) > budget:
                raise InvalidRequest(f"its blocks unpack to more than {self.limit} bytes")
            budget -= len(block)
            yield count, block

    @property
    def schema(self) -> Json:
        """The schema; InvalidRequest if its text isn't JSON."""
        try:
            return orjson.loads(self.schema_text)
        except orjson.JSONDecodeError as error:
            raise InvalidRequest("its header holds no readable avro.schema") from error


def write_container(schema: Json, metadata: Mapping[str, str], records: Iterable[bytes]) -> bytes:
    """A deflated container of encoded records. Its sync marker is a hash of the content: same input, same bytes."""
    header = {"avro.schema": orjson.dumps(schema).decode(), "avro.codec": "deflate", **metadata}
    pairs = [encode_bytes(key.encode()) + encode_bytes(value.encode()) for key, value in header.items()]
    opening = b"".join((MAGIC, encode_long(len(pairs)), *pairs, b"\x00"))
    blocks = [
        encode_long(count) + encode_bytes(zlib.compress(data, _EFFORT, wbits=-zlib.MAX_WBITS))
        for count, data in _chunks(records)
    ]
    digest = hashlib.sha256(opening)
    for block in blocks:
        digest.update(block)
    sync = digest.digest()[:_SYNC_BYTES]
    return sync.join((opening, *blocks, b""))


def read_container(data: bytes) -> Container:
    """Take a container file apart. Raises InvalidRequest saying what isn't as it should be."""
    if not data.startswith(MAGIC):
        raise InvalidRequest("it isn't an Avro file" if data else "it is empty")
    try:
        header, at = _read_header(data)
        sync, at = take(data, at, _SYNC_BYTES)
        packed = tuple(_read_blocks(data, at, sync))
    except IndexError as error:
        raise InvalidRequest("it ends before its last block does") from error
    schema = header.pop("avro.schema", b"")
    limit = min(MAX_UNPACKED, max(MAX_UNPACKED_OF_SMALL, MAX_RATIO * len(data)))
    return Container(schema, {key: _text(header, key) for key in header}, packed, limit)


def _chunks(records: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
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


def _read_header(data: bytes) -> tuple[dict[str, bytes], int]:
    header: dict[str, bytes] = {}
    count, at = read_long(data, len(MAGIC))
    while count:
        if count < 0:
            _, at = read_long(data, at)
        for _ in range(abs(count)):
            size, at = read_long(data, at)
            key, at = take(data, at, size)
            size, at = read_long(data, at)
            header[key.decode(errors="replace")], at = take(data, at, size)
        count, at = read_long(data, at)
    return header, at


def _text(header: Mapping[str, bytes], key: str) -> str:
    try:
        return header.get(key, b"").decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{key!r} in its header isn't text") from error


def _read_blocks(data: bytes, at: int, sync: bytes) -> Iterator[tuple[int, bytes]]:
    while at < len(data):
        count, at = read_long(data, at)
        size, at = read_long(data, at)
        packed, at = take(data, at, size)
        marker, at = take(data, at, _SYNC_BYTES)
        if marker != sync:
            raise InvalidRequest(f"the block that ends at byte {at} isn't closed by the file's sync marker")
        yield count, packed


def _unpack(packed: bytes, codec: str, budget: int) -> bytes:
    """The block, or more than the budget of its first bytes if it is larger than that."""
    match codec:
        case "null":
            return packed
        case "deflate":
            return _inflate(packed, budget)
        case "zstandard":
            return _unpack_zstd(packed, budget)
        case "snappy" if _snappy_length(packed) > budget:
            raise InvalidRequest(f"a block says that it unpacks to {_snappy_length(packed)} bytes, of {budget} at most")
    return _unpack_other(packed, codec)


def _inflate(packed: bytes, budget: int) -> bytes:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        block = stream.decompress(packed, budget + 1)
    except zlib.error as error:
        raise InvalidRequest(f"a block can't be inflated: {error}") from error
    if not stream.eof and len(block) <= budget:
        raise InvalidRequest("a block can't be inflated: it ends too early")
    return block


def _unpack_zstd(packed: bytes, budget: int) -> bytes:
    """All frames of a block, of which there may be several."""
    if zstandard is None:
        raise InvalidRequest("a block can't be unpacked with codec zstandard: install the package zstandard")
    try:
        stream = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed), read_across_frames=True)
        return stream.read(budget + 1)
    except zstandard.ZstdError as error:
        raise InvalidRequest(f"a block can't be unpacked with codec zstandard: {error}") from error


def _snappy_length(packed: bytes) -> int:
    """What the block says that it unpacks to, in seven bits of each of its first bytes; no more is ever unpacked."""
    length = 0
    for place, byte in enumerate(packed[:5]):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return length


def _unpack_other(packed: bytes, codec: str) -> bytes:
    unpack = BLOCK_READERS.get(codec)
    if unpack is None or codec != "snappy":
        raise InvalidRequest(f"its codec is {codec[:40]!r}; this server reads null, deflate, snappy and zstandard")
    try:
        unpacked: bytes = unpack(io.BytesIO(encode_bytes(packed))).read()
    except Exception as error:
        # Each codec's library has errors of its own, a missing library among them; the message says which it is.
        raise InvalidRequest(f"a block can't be unpacked with codec {codec}: {error}") from error
    return unpacked
