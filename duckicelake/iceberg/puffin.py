"""Puffin files as bytes (Puffin spec): deletion vectors of any number of data files in one, and footers read."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import orjson
from pydantic import Field

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.deletes import MAX_POSITIONS, read_vector, write_vector
from duckicelake.iceberg.model import Int, Long, SpecModel, parse

FILE_FORMAT: Final = "PUFFIN"
"""What manifest entries call it."""
MAGIC: Final = b"PFA1"
DELETION_VECTOR: Final = "deletion-vector-v1"
REFERENCED_DATA_FILE, CARDINALITY = "referenced-data-file", "cardinality"
_ROW_POSITION: Final = 2147483645
_INHERITED: Final = -1
"""What deletion vectors state as their snapshot and sequence number: those of the snapshot that adds the file."""
_TRAILER: Final = 4 + 4 + len(MAGIC)
_FLAGS, _PLAIN = slice(-8, -4), bytes(4)


class PuffinBlob(SpecModel):
    """Where a blob lies in its file, and what it is."""

    type: str
    fields: tuple[Int, ...]
    snapshot_id: Long
    sequence_number: Long
    offset: Long
    length: Long
    compression_codec: str | None = None
    properties: dict[str, str] = Field(default_factory=dict)


class PuffinFooter(SpecModel):
    blobs: tuple[PuffinBlob, ...]
    properties: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PuffinFile:
    """An encoded file and its blobs, in the order in which they were given."""

    data: bytes
    blobs: tuple[PuffinBlob, ...]


def write_deletion_vectors(vectors: Iterable[tuple[str, AbstractSet[int]]]) -> PuffinFile:
    """A file with a deletion vector for each (data file path, deleted positions); same input, same bytes."""
    parts, blobs = [MAGIC], []
    offset = len(MAGIC)
    for path, positions in vectors:
        part = write_vector(positions)
        blobs.append(_blob(path, len(positions), offset, len(part)))
        parts.append(part)
        offset += len(part)
    footer = orjson.dumps(PuffinFooter(blobs=tuple(blobs)).to_json())
    parts += [MAGIC, footer, len(footer).to_bytes(4, "little"), _PLAIN, MAGIC]
    return PuffinFile(b"".join(parts), tuple(blobs))


def _blob(path: str, cardinality: int, offset: int, length: int) -> PuffinBlob:
    return PuffinBlob(
        type=DELETION_VECTOR,
        fields=(_ROW_POSITION,),
        snapshot_id=_INHERITED,
        sequence_number=_INHERITED,
        offset=offset,
        length=length,
        properties={REFERENCED_DATA_FILE: path, CARDINALITY: str(cardinality)},
    )


def read_footer(data: bytes) -> PuffinFooter:
    """What a file holds; every blob lies within it. Raises InvalidRequest saying what isn't as it should be."""
    if len(data) < 2 * len(MAGIC) + _TRAILER or {data[:4], data[-4:]} != {MAGIC}:
        raise InvalidRequest("it isn't a Puffin file")
    if data[_FLAGS] != _PLAIN:
        raise InvalidRequest("its footer is compressed; this server reads plain ones, as deletion vectors have")
    length = int.from_bytes(data[-_TRAILER : -_TRAILER + 4], "little")
    start = len(data) - _TRAILER - length
    if start < 2 * len(MAGIC) or data[start - len(MAGIC) : start] != MAGIC:
        raise InvalidRequest(f"its footer has no magic {length} bytes before its end")
    footer = parse(PuffinFooter, _json(data[start:-_TRAILER]), "Puffin footer")
    for blob in footer.blobs:
        if blob.offset < len(MAGIC) or blob.length < 0 or blob.offset + blob.length > start - len(MAGIC):
            raise InvalidRequest(f"its {blob.type} of {blob.length} bytes at {blob.offset} isn't within its blobs")
    return footer


def _json(footer: bytes) -> object:
    try:
        return orjson.loads(footer)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest("its footer isn't JSON") from error


def read_deletion_vector(data: bytes, path: str, offset: int, length: int) -> frozenset[int]:
    """The positions that the vector at `offset` deletes from the data file `path`; InvalidRequest if it isn't one."""
    blob = next((each for each in read_footer(data).blobs if (each.offset, each.length) == (offset, length)), None)
    if blob is None or blob.type != DELETION_VECTOR or blob.compression_codec is not None:
        raise InvalidRequest(f"its footer names no plain {DELETION_VECTOR} of {length} bytes at {offset}")
    if blob.properties.get(REFERENCED_DATA_FILE) != path:
        named = blob.properties.get(REFERENCED_DATA_FILE)
        raise InvalidRequest(f"the vector at {offset} is of {named}, but its manifest entry says {path}")
    positions = read_vector(data[offset : offset + length], MAX_POSITIONS)
    if blob.properties.get(CARDINALITY) != str(len(positions)):
        stated = blob.properties.get(CARDINALITY)
        raise InvalidRequest(f"the vector at {offset} has {len(positions)} positions, but its footer says {stated}")
    return positions
