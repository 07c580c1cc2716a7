"""PURE. Rows that a commit adds: files, deletions, manifests and snapshots, with ids known before the lock."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from duckicelake.lake.model import Column, InlinedKey, NameMap
from duckicelake.lake.state import FileRow, PackedStats

OWN_PARTITIONING_ID: Final = 2**62
"""The partitioning id of a file with partition values is this number and its own id; DuckLake's ids are lower.

Every partitioned file has a partitioning of its own: DuckDB dies merging files of one partition from two folders.
DuckDB skips files by the partition values alone, wherever a filter names a bucket."""


class NewDataFile(NamedTuple):
    """A `ducklake_data_file` row for a file that joins main, with its statistics and partition values.

    `file_id` is its id in `duckicelake_file`: a new row's of the same step, or that of a file which was elsewhere
    before (on a branch, in a snapshot that main goes back to, or serving inlined rows). A file with field ids has no
    `name_map`. `row_group_count` is None unless the footer was read.
    """

    file_id: int
    path: str
    record_count: int
    file_size_bytes: int
    row_id_start: int
    stats: PackedStats
    partition_values: tuple[str | None, ...] | None
    path_is_relative: bool = False
    name_map: NameMap | None = None
    row_group_count: int | None = None


@dataclass(frozen=True, slots=True)
class NewDeleteFile:
    """A `ducklake_delete_file` row: all positions deleted so far from one data file, superseding the row before it.

    `data_file_id` is the data file's id in `duckicelake_file`; `path` is relative to the table's DuckLake folder.
    """

    data_file_id: int
    path: str
    delete_count: int
    file_size_bytes: int


@dataclass(frozen=True, slots=True)
class NewDeletion:
    """A `duckicelake_deletion` row; `positions` is a portable 64-bit roaring bitmap."""

    delete_file_id: int
    data_file_id: int
    positions: bytes


@dataclass(frozen=True, slots=True)
class NewVirtualFile:
    """A `duckicelake_virtual_file` row: the inlined rows that the file holds, by position."""

    file_id: int
    keys: tuple[InlinedKey, ...]


@dataclass(frozen=True, slots=True)
class InlinedInto:
    """The table in Postgres that takes inlined rows, with its columns' types there.

    `version` is the schema version that it is to be made for, with these columns; None: it is there.
    """

    name: str
    types: tuple[str, ...]
    version: int | None
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class InlinedFile:
    """The rows of a file that serves them to Iceberg: the values of each column, packed as an array's elements."""

    file_id: int
    first_row_id: int
    record_count: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InlinedRows:
    """Rows that come inlined, each file's in its order."""

    into: InlinedInto
    files: tuple[InlinedFile, ...]


@dataclass(frozen=True, slots=True)
class NewManifest:
    """A `duckicelake_manifest` row; `added`, `existing` and `deleted` are file ids by the status of their entries.

    is_laid_out: a client says what files it holds, so that it isn't packed.
    """

    manifest_id: int
    format_version: int
    content: int
    spec_id: int
    schema_id: int
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added: tuple[int, ...] = ()
    existing: tuple[int, ...] = ()
    deleted: tuple[int, ...] = ()
    is_laid_out: bool = False


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A `duckicelake_snapshot` row; `proposed_id` is what the client called it, where that differs."""

    snapshot_id: int
    proposed_id: int | None
    parent_snapshot_id: int | None
    sequence_number: int
    timestamp_ms: int
    schema_id: int | None
    summary: Mapping[str, str]
    manifest_ids: tuple[int, ...]
    first_row_id: int | None = None
    added_rows: int | None = None
    key_id: str | None = None


@dataclass(frozen=True, slots=True)
class SideFiles:
    """The side-table rows that a new Iceberg snapshot brings; `uploads` are the client's files that these replace."""

    files: tuple[FileRow, ...] = ()
    deletions: tuple[NewDeletion, ...] = ()
    virtual_files: tuple[NewVirtualFile, ...] = ()
    manifests: tuple[NewManifest, ...] = ()
    uploads: tuple[str, ...] = ()
