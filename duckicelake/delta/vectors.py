"""PURE. Deletion vectors as bytes: where they are stored, and the two formats of their bitmaps.

The protocol ("Deletion Vector Format") writes portable bitmaps. Native ones of Delta's first releases are read too,
also with big-endian numbers, as the protocol's own example of an inline vector has them.
"""

import zlib
from typing import Final, Literal
from uuid import UUID

from pyroaring import BitMap64

from duckicelake.delta import z85
from duckicelake.delta.actions import DeletionVector
from duckicelake.delta.paths import decoded, location
from duckicelake.errors import DamagedLog

PORTABLE: Final = 1681511377
"""The magic number of a portable 64-bit roaring bitmap."""
NATIVE: Final = 1681511376
"""That of a list of 32-bit bitmaps, one for each value of the upper 32 bits."""

_VERSION: Final = 1
_UUID_CHARACTERS: Final = 20
_NUMBER: Final = 4


def file_of(root: str, vector: DeletionVector) -> str | None:
    """Where the file is that holds a vector, None for an inline one; ValueError if its name can't be read."""
    text = vector.path_or_inline
    if vector.storage == "i":
        return None
    if vector.storage == "p":
        return decoded(text)
    prefix, name = text[:-_UUID_CHARACTERS], UUID(bytes=z85.decode(text[-_UUID_CHARACTERS:]))
    return location(root, f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin")


def positions_in(vector: DeletionVector, stored: bytes | None) -> bytes:
    """The portable 64-bit roaring bitmap of a vector, `stored` its file; the same positions, the same bytes.

    Raises ValueError saying what isn't as it should be.
    """
    data = _inline(vector) if stored is None else _from_file(vector, stored)
    bitmap = BitMap64.deserialize(_portable(data))
    if len(bitmap) != vector.cardinality:
        raise ValueError(f"it holds {len(bitmap)} positions, but the log says {vector.cardinality}")
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def damaged(root: str, vector: DeletionVector, data_path: str, why: object) -> DamagedLog:
    """What to raise for a vector that can't be read."""
    place = "is inline" if vector.storage == "i" else f"is at {vector.offset or 1} in {_shown_file(root, vector)}"
    return DamagedLog(f"the deletion vector of {data_path} in {root}, which {place}, can't be read: {why}")


def _shown_file(root: str, vector: DeletionVector) -> str:
    try:
        return str(file_of(root, vector))
    except ValueError:
        return repr(vector.path_or_inline)


def _inline(vector: DeletionVector) -> bytes:
    data = z85.decode(vector.path_or_inline)
    if not 0 <= len(data) - vector.size_in_bytes < _NUMBER:
        raise ValueError(f"it has {len(data)} bytes with padding, but the log says {vector.size_in_bytes}")
    return data[: vector.size_in_bytes]


def _from_file(vector: DeletionVector, stored: bytes) -> bytes:
    if stored[:1] != bytes([_VERSION]):
        raise ValueError(f"its file has the format version {stored[:1].hex() or 'of an empty one'}, only 01 is known")
    start = (1 if vector.offset is None else vector.offset) + _NUMBER
    end = start + vector.size_in_bytes
    if not 1 + _NUMBER <= start <= end <= len(stored) - _NUMBER:
        raise ValueError(f"its file ends after {len(stored)} bytes, and the vector would after {end + _NUMBER}")
    size = int.from_bytes(stored[start - _NUMBER : start], "big")
    if size != vector.size_in_bytes:
        raise ValueError(f"it has {size} bytes, but the log says {vector.size_in_bytes}")
    data = stored[start:end]
    if zlib.crc32(data) != int.from_bytes(stored[end : end + _NUMBER], "big"):
        raise ValueError("its checksum isn't that of its content")
    return data


def _portable(data: bytes) -> bytes:
    magic, bitmap = int.from_bytes(data[:_NUMBER], "little"), data[_NUMBER:]
    if magic == PORTABLE:
        return bitmap
    if magic == NATIVE:
        return _from_native(bitmap, "little")
    if int.from_bytes(data[:_NUMBER], "big") == NATIVE:
        return _from_native(bitmap, "big")
    raise ValueError(f"it begins with the magic number {magic}; {PORTABLE} and {NATIVE} are known")


def _from_native(bitmaps: bytes, order: Literal["little", "big"]) -> bytes:
    """One portable bitmap out of a list, whose order says what the upper 32 bits are."""
    count, start = int.from_bytes(bitmaps[:_NUMBER], order), _NUMBER
    parts = [count.to_bytes(8, "little")]
    for key in range(count):
        size = int.from_bytes(bitmaps[start : start + _NUMBER], order)
        start += _NUMBER
        if start + size > len(bitmaps):
            raise ValueError(f"its bitmap {key} of {count} is cut off")
        parts += [key.to_bytes(_NUMBER, "little"), bitmaps[start : start + size]]
        start += size
    return b"".join(parts)
