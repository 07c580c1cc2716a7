"""PURE. Files of deletion vectors: many in one, each at its offset (protocol, "Deletion Vector Format")."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID
from zlib import crc32

from pyroaring import BitMap64

from duckicelake.delta import z85
from duckicelake.delta.actions import DeletionVector
from duckicelake.delta.vectors import PORTABLE

FOLDER: Final = "_delta_vectors"
"""Below the table's folder; the underscore hides it from those who look for data files, or for orphans."""
_FORMAT_VERSION: Final = b"\x01"
_MAGIC: Final = struct.pack("<I", PORTABLE)


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A file, its path relative to the table's folder, and what names each vector in it, in their order."""

    path: str
    data: bytes
    vectors: tuple[DeletionVector, ...]


def vector_file(unique: UUID, positions: Sequence[bytes]) -> VectorFile:
    """A file of this name; positions: portable 64-bit roaring bitmaps, one for each data file."""
    data = bytearray(_FORMAT_VERSION)
    vectors: list[DeletionVector] = []
    for bitmap in positions:
        vector = _MAGIC + bitmap
        name = FOLDER + z85.encode(unique.bytes)
        vectors.append(DeletionVector("u", name, len(vector), len(BitMap64.deserialize(bitmap)), len(data)))
        data += struct.pack(">I", len(vector)) + vector + struct.pack(">I", crc32(vector))
    return VectorFile(vector_path(unique), bytes(data), tuple(vectors))


def vector_path(unique: UUID) -> str:
    """Where the file of that name is, relative to the table's folder."""
    return f"{FOLDER}/deletion_vector_{unique}.bin"
