"""PURE. The numbers of native snapshots: their ids, sequence numbers and row ids (design D3)."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal

from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SEQUENCE_NUMBER_VERSION, TableMetadata
from duckicelake.lake.additions import NewFile
from duckicelake.lake.model import LakeFile

_FAR: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Numbering:
    """The id and sequence number of the Iceberg snapshot that a DuckLake snapshot makes."""

    snapshot_id: int
    sequence_number: int


def numbering(
    metadata: TableMetadata, ducklake_id: int, mode: Literal["client", "ducklake"], taken: Container[int]
) -> Numbering:
    """The numbers of a native snapshot: its id is DuckLake's, and so is its number in mode `ducklake` and in version 3.

    Version 1 has no sequence numbers: they are 0. taken: the ids of all snapshots that the table has.
    """
    snapshot_id = free_id(ducklake_id, taken)
    if metadata.format_version < SEQUENCE_NUMBER_VERSION:
        return Numbering(snapshot_id, 0)
    following = metadata.last_sequence_number + 1
    shared = mode == "ducklake" or metadata.format_version >= ROW_LINEAGE_VERSION
    return Numbering(snapshot_id, max(ducklake_id, following) if shared else following)


def free_id(ducklake_id: int, taken: Container[int]) -> int:
    """A snapshot id that is DuckLake's, or far from all of DuckLake's where the table has that one from elsewhere."""
    return next(snapshot_id for snapshot_id in count(ducklake_id, _FAR) if snapshot_id not in taken)


def is_native(snapshot_id: int, ducklake_id: int) -> bool:
    """Whether a snapshot of DuckDB's got this id, and not one of a client's."""
    return snapshot_id % _FAR == ducklake_id


def data_number(file: LakeFile, metadata: TableMetadata, numbers: Numbering) -> int:
    """The sequence number of a data file: DuckLake's, where several of its snapshots became one of Iceberg's."""
    return min(max(file.begin_snapshot, metadata.last_sequence_number + 1), numbers.sequence_number)


def next_row_id(added: Iterable[NewFile], at_most: int) -> int:
    """The next row id after a snapshot in the midst of DuckLake's history, as far as its added files tell."""
    ends = (file.first_row_id + file.record_count for file in added if file.first_row_id is not None)
    return min(max(ends, default=0), at_most)
