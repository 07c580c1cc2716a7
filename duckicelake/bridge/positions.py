"""PURE. Sets of row positions in one data file, as 64-bit roaring bitmaps in the portable format."""

from collections.abc import Iterable

from pyroaring import BitMap64

from duckicelake.lake.state import DeletionRow


def encode(positions: Iterable[int]) -> bytes:
    """The portable bitmap; the same positions always give the same bytes."""
    bitmap = BitMap64(positions)
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def decode(data: bytes) -> frozenset[int]:
    """The positions of a portable bitmap."""
    return frozenset(BitMap64.deserialize(data))


def by_data_file(deletions: Iterable[DeletionRow]) -> dict[int, frozenset[int]]:
    """All deleted positions by data file id; those that only DuckDB's delete files hold are left out."""
    found: dict[int, frozenset[int]] = {}
    for row in deletions:
        if row.positions is not None:
            found[row.data_file_id] = found.get(row.data_file_id, frozenset()) | decode(row.positions)
    return found
