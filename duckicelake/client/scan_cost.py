"""What a filter would read of a table, as clients read it."""

from collections.abc import Mapping
from dataclasses import dataclass

from duckicelake.client.models import Json


@dataclass(frozen=True, slots=True)
class FileSums:
    """Files, their bytes, and their rows before deletes."""

    files: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class PrunedSums:
    """Files that aren't read. partition_fields: those that decide the filter."""

    by_partition: int
    by_bounds: int
    empty: int
    partition_fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FilteredColumnInfo:
    """A column of the filter, and what its bounds are worth.

    Attributes:
        pruned: files that partitions leave and this column's bounds alone prune.
        without_bounds: files that are read whatever the column is compared with.
        overlap: files of a partition in whose bounds a value of the column lies, on average.
        of_files: files of a partition, on average.

    """

    name: str
    type: str
    pruned: int
    without_bounds: int
    overlap: float
    of_files: float
    is_worth_sorting_by: bool


@dataclass(frozen=True, slots=True)
class PartitionReadInfo:
    """What is read of a partition."""

    spec_id: int
    partition: Mapping[str, Json]
    read: FileSums
    total: FileSums


@dataclass(frozen=True, slots=True)
class ExplanationInfo:
    """What a filter would read of a snapshot.

    Attributes:
        snapshot_id: None if the table has no snapshot.
        whole: of `read`, the files all of whose rows pass the filter.
        partitions: those of which most is read.
        ignored: conditions that prune nothing, as no statistics decide them.
        delete_files: delete files that are read besides.

    """

    table: str
    snapshot_id: int | None
    read: FileSums
    total: FileSums
    whole: FileSums
    pruned: PrunedSums
    columns: tuple[FilteredColumnInfo, ...]
    partitions: tuple[PartitionReadInfo, ...]
    partitions_read: int
    partitions_total: int
    ignored: tuple[str, ...]
    delete_files: int
