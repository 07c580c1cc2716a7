"""Puffin files, and the deletion vectors in them (Puffin spec)."""

import zlib
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import orjson
from pydantic import Field
from pyroaring import BitMap64

from duckicelake.errors import InvalidRequestError, format_count
from duckicelake.iceberg.model import Int, Long, SpecModel, parse

DELETION_VECTOR_VERSION: Final = 3
"""The format version from which on a data file's deletes are one vector, in the place of all it had before."""
VECTOR_MAGIC: Final = bytes.fromhex("d1d33964")
_LENGTH, _CRC = 4, 4
_FRAME: Final = _LENGTH + len(VECTOR_MAGIC) + _CRC
MAX_POSITION: Final = ((2**31 - 2) << 32) | 2**31
"""The highest position that Iceberg's Java library accepts."""
MAX_POSITIONS: Final = 1 << 24
"""Positions accepted from a client for one data file; unpacked they take about a gigabyte."""
FILE_FORMAT: Final = "PUFFIN"
"""The file format's name in manifest entries."""
PUFFIN_MAGIC: Final = b"PFA1"
DELETION_VECTOR: Final = "deletion-vector-v1"
REFERENCED_DATA_FILE, CARDINALITY = "referenced-data-file", "cardinality"
_ROW_POSITION: Final = 2147483645
_INHERITED: Final = -1
"""Snapshot id and sequence number in deletion vectors: inherited from the snapshot that adds the file."""
_TRAILER: Final = 4 + 4 + len(PUFFIN_MAGIC)
_FLAGS, _PLAIN = slice(-8, -4), bytes(4)


def write_bitmap(positions: Iterable[int]) -> bytes:
    """Encode positions as a 64-bit roaring bitmap, portable format. The same positions always give the same bytes."""
    bitmap = BitMap64(positions)
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def read_bitmap(data: bytes, at_most: int | None = None) -> frozenset[int]:
    """Decode a portable bitmap. InvalidRequestError: it isn't one, or holds more than `at_most` positions."""
    try:
        bitmap = BitMap64.deserialize(data)
    except (ValueError, IndexError) as error:
        raise InvalidRequestError(f"its bitmap can't be read: {error}") from error
    if at_most is not None and len(bitmap) > at_most:
        raise InvalidRequestError(
            f"it holds {len(bitmap)} positions; this server takes up to {at_most} of one data file"
        )
    if bitmap and bitmap.max() > MAX_POSITION:
        raise InvalidRequestError(
            f"it holds the position {bitmap.max()}; the highest that there can be is {MAX_POSITION}"
        )
    return frozenset(bitmap)


def write_vector(positions: Iterable[int]) -> bytes:
    """Encode the blob: length of magic and bitmap, magic, bitmap, CRC of magic and bitmap."""
    body = VECTOR_MAGIC + write_bitmap(positions)
    return len(body).to_bytes(_LENGTH, "big") + body + zlib.crc32(body).to_bytes(_CRC, "big")


def read_vector(blob: bytes, at_most: int | None = None) -> frozenset[int]:
    """Decode the positions of a blob.

    InvalidRequestError: it is malformed (the message says how), or holds more than `at_most`.

    Pass a limit for blobs of strangers: a run of 65,536 positions takes four bytes.
    """
    if len(blob) < _FRAME:
        raise InvalidRequestError(f"it has {len(blob)} bytes, no deletion vector has fewer than {_FRAME}")
    length, body, crc = blob[:_LENGTH], blob[_LENGTH:-_CRC], blob[-_CRC:]
    if int.from_bytes(length, "big") != len(body):
        raise InvalidRequestError(f"its length says {int.from_bytes(length, 'big')} bytes, but it has {len(body)}")
    if not body.startswith(VECTOR_MAGIC):
        raise InvalidRequestError(
            f"it begins with {body[: len(VECTOR_MAGIC)].hex()}, a deletion vector with {VECTOR_MAGIC.hex()}"
        )
    if zlib.crc32(body) != int.from_bytes(crc, "big"):
        raise InvalidRequestError("its checksum isn't that of its content")
    return read_bitmap(body[len(VECTOR_MAGIC) :], at_most)


class PuffinBlob(SpecModel):
    """A blob's place in its file, and its properties."""

    type: str
    fields: tuple[Int, ...]
    snapshot_id: Long
    sequence_number: Long
    offset: Long = 0
    length: Long = 0
    compression_codec: str | None = None
    properties: dict[str, str] = Field(default_factory=dict)


class PuffinFooter(SpecModel):
    blobs: tuple[PuffinBlob, ...]
    properties: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PuffinFile:
    """An encoded file and its blobs, in the order in which they were given. footer_size: bytes, its magic included."""

    data: bytes
    blobs: tuple[PuffinBlob, ...]
    footer_size: int


def write_blobs(blobs: Iterable[tuple[PuffinBlob, bytes]]) -> PuffinFile:
    """Encode a file of blobs. Offset and length of each are those that it gets; same input, same bytes."""
    parts, placed = [PUFFIN_MAGIC], []
    offset = len(PUFFIN_MAGIC)
    for blob, part in blobs:
        placed.append(blob.replace_fields(offset=offset, length=len(part)))
        parts.append(part)
        offset += len(part)
    footer = orjson.dumps(PuffinFooter(blobs=tuple(placed)).to_json())
    end = [PUFFIN_MAGIC, footer, len(footer).to_bytes(4, "little"), _PLAIN, PUFFIN_MAGIC]
    return PuffinFile(b"".join(parts + end), tuple(placed), sum(map(len, end)))


def write_deletion_vectors(vectors: Iterable[tuple[str, AbstractSet[int]]]) -> PuffinFile:
    """Encode a deletion vector for each (data file path, deleted positions); same input, same bytes."""
    return write_blobs((_describe_vector(path, len(positions)), write_vector(positions)) for path, positions in vectors)


def _describe_vector(path: str, cardinality: int) -> PuffinBlob:
    return PuffinBlob(
        type=DELETION_VECTOR,
        fields=(_ROW_POSITION,),
        snapshot_id=_INHERITED,
        sequence_number=_INHERITED,
        properties={REFERENCED_DATA_FILE: path, CARDINALITY: str(cardinality)},
    )


def read_footer(data: bytes) -> PuffinFooter:
    """Read a file's footer. All blobs lie within the file.

    InvalidRequestError: it is malformed; the message says how.
    """
    if len(data) < 2 * len(PUFFIN_MAGIC) + _TRAILER or {data[:4], data[-4:]} != {PUFFIN_MAGIC}:
        raise InvalidRequestError("it isn't a Puffin file")
    if data[_FLAGS] != _PLAIN:
        raise InvalidRequestError("its footer is compressed; this server reads plain ones, as deletion vectors have")
    length = int.from_bytes(data[-_TRAILER : -_TRAILER + 4], "little")
    start = len(data) - _TRAILER - length
    if start < 2 * len(PUFFIN_MAGIC) or data[start - len(PUFFIN_MAGIC) : start] != PUFFIN_MAGIC:
        raise InvalidRequestError(f"its footer has no magic {length} bytes before its end")
    footer = parse(PuffinFooter, _serialize_footer(data[start:-_TRAILER]), "Puffin footer")
    for blob in footer.blobs:
        if blob.offset < len(PUFFIN_MAGIC) or blob.length < 0 or blob.offset + blob.length > start - len(PUFFIN_MAGIC):
            raise InvalidRequestError(f"its {blob.type} of {blob.length} bytes at {blob.offset} isn't within its blobs")
    return footer


def _serialize_footer(footer: bytes) -> object:
    try:
        return orjson.loads(footer)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError("its footer isn't JSON") from error


def read_deletion_vector(data: bytes, path: str, offset: int, length: int) -> frozenset[int]:
    """Decode the positions that the vector at `offset` deletes from the data file `path`.

    Raises InvalidRequestError if it isn't one.
    """
    blob = next((blob for blob in read_footer(data).blobs if (blob.offset, blob.length) == (offset, length)), None)
    if blob is None or blob.type != DELETION_VECTOR or blob.compression_codec is not None:
        raise InvalidRequestError(f"its footer names no plain {DELETION_VECTOR} of {length} bytes at {offset}")
    if blob.properties.get(REFERENCED_DATA_FILE) != path:
        named = blob.properties.get(REFERENCED_DATA_FILE)
        raise InvalidRequestError(f"the vector at {offset} is of {named}, but its manifest entry says {path}")
    positions = read_vector(data[offset : offset + length], MAX_POSITIONS)
    if blob.properties.get(CARDINALITY) != str(len(positions)):
        stated = blob.properties.get(CARDINALITY)
        raise InvalidRequestError(
            f"the vector at {offset} has {format_count(len(positions), 'position')}, but its footer says {stated}"
        )
    return positions
