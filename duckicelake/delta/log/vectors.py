"""PURE. Deletion vectors: where they are stored, and their bitmaps (protocol, "Deletion Vector Format")."""

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal
from uuid import UUID
from zlib import crc32

from pyroaring import BitMap64

from duckicelake.delta.log.actions import DeletionVector
from duckicelake.delta.log.paths import decode_path, resolve_location
from duckicelake.errors import DamagedLogError, format_count

_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_BASE85: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
"""The alphabet of Python's base85, which is the same but for its characters."""
_TO_BASE85: Final = bytes.maketrans(_Z85, _BASE85)
_TO_Z85: Final = bytes.maketrans(_BASE85, _Z85)
PORTABLE_MAGIC: Final = 1681511377
"""The magic number of a portable 64-bit roaring bitmap."""
NATIVE_MAGIC: Final = 1681511376
"""The magic number of a list of 32-bit bitmaps, one for each value of the upper 32 bits."""
_VERSION: Final = 1
_UUID_CHARACTERS: Final = 20
_NUMBER: Final = 4
VECTOR_FOLDER: Final = "_delta_vectors"
"""The folder of vectors in the table's folder. The underscore hides it from readers of data files, and from vacuum."""
_FORMAT_VERSION: Final = b"\x01"
_FILE_MAGIC: Final = struct.pack("<I", PORTABLE_MAGIC)


def encode_z85(data: bytes) -> str:
    """Encode bytes as text, padded with zeros to a multiple of four."""
    padded = data + bytes(-len(data) % 4)
    return base64.b85encode(padded).translate(_TO_Z85).decode()


def decode_z85(text: str) -> bytes:
    """Decode a text to bytes, with their padding; ValueError: it is none."""
    data = text.encode("ascii")
    if len(data) % 5 or data.translate(None, delete=_Z85):
        raise ValueError(f"Invalid Z85 text {text!r}")
    return base64.b85decode(data.translate(_TO_BASE85))


def locate_vector_file(root: str, vector: DeletionVector) -> str | None:
    """Locate the file of a vector, None for an inline one; ValueError: its name is malformed."""
    text = vector.path_or_inline
    if vector.storage == "i":
        return None
    if vector.storage == "p":
        return decode_path(text)
    prefix, name = text[:-_UUID_CHARACTERS], UUID(bytes=decode_z85(text[-_UUID_CHARACTERS:]))
    return resolve_location(root, f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin")


def decode_positions(vector: DeletionVector, stored: bytes | None) -> bytes:
    """Decode a vector to a portable 64-bit roaring bitmap. stored: its file. The same positions give the same bytes.

    ValueError says what is malformed.
    """
    data = _decode_inline(vector) if stored is None else _read_from_file(vector, stored)
    bitmap = BitMap64.deserialize(_decode_portable(data))
    if len(bitmap) != vector.cardinality:
        raise ValueError(f"it holds {format_count(len(bitmap), 'position')}, but the log says {vector.cardinality}")
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def build_damage_error(root: str, vector: DeletionVector, data_path: str, why: object) -> DamagedLogError:
    """Build the error for a vector that can't be read."""
    place = "is inline" if vector.storage == "i" else f"is at {vector.offset or 1} in {_describe_file(root, vector)}"
    return DamagedLogError(f"the deletion vector of {data_path} in {root}, which {place}, can't be read: {why}")


def _describe_file(root: str, vector: DeletionVector) -> str:
    try:
        return str(locate_vector_file(root, vector))
    except ValueError:
        return repr(vector.path_or_inline)


def _decode_inline(vector: DeletionVector) -> bytes:
    data = decode_z85(vector.path_or_inline)
    if not 0 <= len(data) - vector.size_in_bytes < _NUMBER:
        raise ValueError(f"it has {len(data)} bytes with padding, but the log says {vector.size_in_bytes}")
    return data[: vector.size_in_bytes]


def _read_from_file(vector: DeletionVector, stored: bytes) -> bytes:
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


def _decode_portable(data: bytes) -> bytes:
    magic, bitmap = int.from_bytes(data[:_NUMBER], "little"), data[_NUMBER:]
    if magic == PORTABLE_MAGIC:
        return bitmap
    if magic == NATIVE_MAGIC:
        return _convert_native(bitmap, "little")
    if int.from_bytes(data[:_NUMBER], "big") == NATIVE_MAGIC:
        return _convert_native(bitmap, "big")
    raise ValueError(f"it begins with the magic number {magic}; {PORTABLE_MAGIC} and {NATIVE_MAGIC} are known")


def _convert_native(bitmaps: bytes, order: Literal["little", "big"]) -> bytes:
    """Convert a list of bitmaps to a portable one. Its order says what the upper 32 bits are."""
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


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A file of vectors, its path relative to the table's folder, and descriptors in order."""

    path: str
    data: bytes
    vectors: tuple[DeletionVector, ...]


def build_vector_file(unique: UUID, positions: Sequence[bytes]) -> VectorFile:
    """Build a file of vectors. positions: portable 64-bit roaring bitmaps, one for each data file."""
    data = bytearray(_FORMAT_VERSION)
    vectors: list[DeletionVector] = []
    for bitmap in positions:
        vector = _FILE_MAGIC + bitmap
        name = VECTOR_FOLDER + encode_z85(unique.bytes)
        vectors.append(DeletionVector("u", name, len(vector), len(BitMap64.deserialize(bitmap)), len(data)))
        data += struct.pack(">I", len(vector)) + vector + struct.pack(">I", crc32(vector))
    return VectorFile(format_vector_path(unique), bytes(data), tuple(vectors))


def format_vector_path(unique: UUID) -> str:
    """Format the path of the file, relative to the table's folder."""
    return f"{VECTOR_FOLDER}/deletion_vector_{unique}.bin"
