"""PURE. Sets of row positions in one data file, as 64-bit roaring bitmaps in the portable format."""

from collections.abc import Iterable, Mapping

from pyroaring import BitMap64

from duckicelake.errors import InvalidRequest
from duckicelake.lake.changes import NewFile
from duckicelake.lake.state import DeletionRow, FileRow

_MAGIC, _FRAME = bytes.fromhex("d1d33964"), 12


def encode(positions: Iterable[int]) -> bytes:
    """The portable bitmap; the same positions always give the same bytes."""
    bitmap = BitMap64(positions)
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def check(deleted: Mapping[int, frozenset[int]], files: Mapping[int, NewFile | FileRow]) -> None:
    """InvalidRequest if a position isn't one of its data file."""
    for file_id, rows in deleted.items():
        file, last = files[file_id], max(rows, default=0)
        if last >= file.record_count:
            raise InvalidRequest(f"position {last} of {file.path} is deleted, but it has {file.record_count} rows")


def decode(data: bytes) -> frozenset[int]:
    """The positions of a portable bitmap."""
    return frozenset(BitMap64.deserialize(data))


def decode_deletion_vector(blob: bytes) -> frozenset[int]:
    """The positions of a bare deletion vector: length, magic, portable bitmap, CRC (Puffin spec, `ducklake-facts` §4).

    Raises ValueError if it isn't one.
    """
    body, magic = blob[8:-4], blob[4:8]
    if magic != _MAGIC or len(blob) < _FRAME:
        raise ValueError("not a deletion vector")
    return decode(body)


def by_data_file(deletions: Iterable[DeletionRow]) -> dict[int, frozenset[int]]:
    """All deleted positions by data file id."""
    found: dict[int, frozenset[int]] = {}
    for row in deletions:
        found[row.data_file_id] = found.get(row.data_file_id, frozenset()) | decode(row.positions)
    return found
