"""PURE. Sets of row positions in one data file, as 64-bit roaring bitmaps in the portable format."""

from collections.abc import Iterable, Mapping

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.deletes import read_bitmap, write_bitmap
from duckicelake.lake.additions import NewFile
from duckicelake.lake.state import DeletionRow, FileRow


def encode(positions: Iterable[int]) -> bytes:
    """The bitmap of a `duckicelake_deletion` row."""
    return write_bitmap(positions)


def decode(data: bytes) -> frozenset[int]:
    """The positions of a `duckicelake_deletion` row."""
    return read_bitmap(data)


def check(deleted: Mapping[int, frozenset[int]], files: Mapping[int, NewFile | FileRow]) -> None:
    """InvalidRequest if a position isn't one of its data file."""
    for file_id, rows in deleted.items():
        file, last = files[file_id], max(rows, default=0)
        if last >= file.record_count:
            raise InvalidRequest(f"position {last} of {file.path} is deleted, but it has {file.record_count} rows")


def by_data_file(deletions: Iterable[DeletionRow]) -> dict[int, frozenset[int]]:
    """All deleted positions by data file id."""
    found: dict[int, frozenset[int]] = {}
    for row in deletions:
        found[row.data_file_id] = found.get(row.data_file_id, frozenset()) | decode(row.positions)
    return found
