"""Deletion vectors: the blob `deletion-vector-v1` (Puffin spec, "Blob types"), and the bitmap inside it."""

import zlib
from collections.abc import Iterable
from typing import Final

from pyroaring import BitMap64

from duckicelake.errors import InvalidRequest

DELETION_VECTOR_VERSION: Final = 3
"""The format version from which on a data file's deletes are one vector, in the place of all it had before."""
MAGIC: Final = bytes.fromhex("d1d33964")
_LENGTH, _CRC = 4, 4
_FRAME: Final = _LENGTH + len(MAGIC) + _CRC
MAX_POSITION: Final = ((2**31 - 2) << 32) | 2**31
"""The highest position that Java takes."""
MAX_POSITIONS: Final = 1 << 24
"""Positions of one data file that are taken from clients; unpacked they are about a gigabyte."""


def write_bitmap(positions: Iterable[int]) -> bytes:
    """The 64-bit roaring bitmap in its portable format; the same positions always give the same bytes."""
    bitmap = BitMap64(positions)
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def read_bitmap(data: bytes, at_most: int | None = None) -> frozenset[int]:
    """The positions of a portable bitmap; InvalidRequest if it isn't one, or holds more than `at_most`."""
    try:
        bitmap = BitMap64.deserialize(data)
    except (ValueError, IndexError) as error:
        raise InvalidRequest(f"its bitmap can't be read: {error}") from error
    if at_most is not None and len(bitmap) > at_most:
        raise InvalidRequest(f"it holds {len(bitmap)} positions; this server takes up to {at_most} of one data file")
    if bitmap and bitmap.max() > MAX_POSITION:
        raise InvalidRequest(f"it holds the position {bitmap.max()}; the highest that there can be is {MAX_POSITION}")
    return frozenset(bitmap)


def write_vector(positions: Iterable[int]) -> bytes:
    """The blob: length of magic and bitmap, magic, bitmap, CRC of magic and bitmap."""
    body = MAGIC + write_bitmap(positions)
    return len(body).to_bytes(_LENGTH, "big") + body + zlib.crc32(body).to_bytes(_CRC, "big")


def read_vector(blob: bytes, at_most: int | None = None) -> frozenset[int]:
    """The positions of a blob; InvalidRequest saying what isn't as it should be, or if there are more than `at_most`.

    Ask for a limit where strangers write the blob: a run of 65,536 positions takes four bytes.
    """
    if len(blob) < _FRAME:
        raise InvalidRequest(f"it has {len(blob)} bytes, no deletion vector has fewer than {_FRAME}")
    length, body, crc = blob[:_LENGTH], blob[_LENGTH:-_CRC], blob[-_CRC:]
    if int.from_bytes(length, "big") != len(body):
        raise InvalidRequest(f"its length says {int.from_bytes(length, 'big')} bytes, but it has {len(body)}")
    if not body.startswith(MAGIC):
        raise InvalidRequest(f"it begins with {body[: len(MAGIC)].hex()}, a deletion vector with {MAGIC.hex()}")
    if zlib.crc32(body) != int.from_bytes(crc, "big"):
        raise InvalidRequest("its checksum isn't that of its content")
    return read_bitmap(body[len(MAGIC) :], at_most)
