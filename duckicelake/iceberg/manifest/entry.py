"""Data files, manifest entries and manifest list lines as values, named as the Avro fields."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

PartitionValue: TypeAlias = bool | int | float | str | UUID | bytes | Decimal | None
UNASSIGNED: Final = -1
"""The sequence number of a manifest that no snapshot holds yet; the manifest list gives it the snapshot's."""
BLOCK_SIZE: Final = 64 << 20


class FileContent(IntEnum):
    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


class ManifestContent(IntEnum):
    DATA = 0
    DELETES = 1


class EntryStatus(IntEnum):
    EXISTING = 0
    ADDED = 1
    DELETED = 2


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data or delete file. partition: one value per field of the spec. Maps are by field id; bounds as stored."""

    content: FileContent
    file_path: str
    file_format: str
    partition: tuple[PartitionValue, ...]
    record_count: int
    file_size_in_bytes: int
    column_sizes: Mapping[int, int] | None = None
    value_counts: Mapping[int, int] | None = None
    null_value_counts: Mapping[int, int] | None = None
    nan_value_counts: Mapping[int, int] | None = None
    lower_bounds: Mapping[int, bytes] | None = None
    upper_bounds: Mapping[int, bytes] | None = None
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None

    @property
    def block_size_in_bytes(self) -> int:
        """Deprecated; version 1 writers must write some value, and Java writes this one."""
        return BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A file's part in a snapshot. Numbers that are None are inherited from the manifest list (`inherit_numbers`)."""

    status: EntryStatus
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    data_file: DataFile


class PlainFile(NamedTuple):
    """A DataFile to write. Map keys may be digits of field ids, and bounds hex, as in JSON."""

    content: int
    file_path: str
    file_format: str
    partition: tuple[PartitionValue, ...]
    record_count: int
    file_size_in_bytes: int
    column_sizes: Mapping[str, int] | None
    value_counts: Mapping[str, int] | None
    null_value_counts: Mapping[str, int] | None
    nan_value_counts: Mapping[str, int] | None
    lower_bounds: Mapping[str, str] | None
    upper_bounds: Mapping[str, str] | None
    key_metadata: bytes | None
    split_offsets: Sequence[int] | None
    equality_ids: Sequence[int] | None
    sort_order_id: int | None
    first_row_id: int | None
    referenced_data_file: str | None
    content_offset: int | None
    content_size_in_bytes: int | None
    block_size_in_bytes: int = BLOCK_SIZE


class PlainEntry(NamedTuple):
    """A ManifestEntry to write, with its file already encoded."""

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    data_file: bytes


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest file's content. partition_fields: field ids of the values in partition tuples, in order.

    content and spec_id are None if the header lacks them; the manifest list has them, too.
    """

    format_version: int
    content: ManifestContent | None
    schema_id: int
    spec_id: int | None
    partition_fields: tuple[int, ...]
    entries: tuple[ManifestEntry, ...]


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """The range of one partition field in a manifest; bounds as stored."""

    contains_null: bool
    contains_nan: bool | None = None
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One line of a manifest list. Counts are None where a version 1 writer left them out."""

    manifest_path: str
    manifest_length: int
    partition_spec_id: int
    content: ManifestContent
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added_files_count: int | None
    existing_files_count: int | None
    deleted_files_count: int | None
    added_rows_count: int | None
    existing_rows_count: int | None
    deleted_rows_count: int | None
    partitions: tuple[FieldSummary, ...] | None = None
    key_metadata: bytes | None = None
    first_row_id: int | None = None


def inherit_numbers(entry: ManifestEntry, manifest_file: ManifestFile) -> ManifestEntry:
    """Fill in the numbers that an entry inherits, except first_row_id (spec, "Sequence Number Inheritance").

    Only added files inherit sequence numbers. In version 1 all files do, and the number is 0.
    """
    if None not in (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number):
        return entry
    inherits = entry.status is EntryStatus.ADDED or manifest_file.sequence_number == 0
    number = manifest_file.sequence_number if inherits else None
    return replace(
        entry,
        snapshot_id=manifest_file.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id,
        sequence_number=number if entry.sequence_number is None else entry.sequence_number,
        file_sequence_number=number if entry.file_sequence_number is None else entry.file_sequence_number,
    )


def inherit_all_numbers(entries: Iterable[ManifestEntry], manifest_file: ManifestFile) -> Iterator[ManifestEntry]:
    """Fill in what a manifest's entries inherit, row ids included (spec, "First Row ID Inheritance").

    Live files without a first_row_id get ids in order from the manifest's. If that has none, no file gets one.
    """
    next_row_id = manifest_file.first_row_id
    for entry in entries:
        file, first_row_id = entry.data_file, entry.data_file.first_row_id
        if next_row_id is None:
            first_row_id = None
        elif first_row_id is None and entry.status is not EntryStatus.DELETED:
            first_row_id, next_row_id = next_row_id, next_row_id + file.record_count
        if first_row_id != file.first_row_id:
            entry = replace(entry, data_file=replace(file, first_row_id=first_row_id))  # noqa: PLW2901
        yield inherit_numbers(entry, manifest_file)
