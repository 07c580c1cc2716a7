"""PURE. Rows of the side tables as values. JSON stays text until it is read: parsed it takes ten times the memory."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import orjson

from duckicelake.lake.model import (
    ColumnStats,
    InlinedDelete,
    InlinedKey,
    InlinedRow,
    LakeChange,
    LakeFile,
    NameMap,
    PartitionKey,
    TableDefinition,
    ViewDefinition,
)


class Packed(Mapping[str, Any]):
    """A JSON object as text, parsed whenever it is looked into."""

    __slots__ = ("text",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.text = _encode_compact(values)

    def __getitem__(self, key: str) -> Any:
        return self.unpack()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.unpack())

    def __len__(self) -> int:
        return len(self.unpack())

    def unpack(self) -> dict[str, Any]:
        """Parse the text once, and return all of it."""
        values: dict[str, Any] = orjson.loads(self.text)
        return values


class PackedStats(Sequence[ColumnStats]):
    """The statistics of one file's columns, packed likewise."""

    __slots__ = ("_kept",)

    def __init__(self, rows: Sequence[ColumnStats]) -> None:
        self._kept = _encode_compact([tuple(row) for row in rows])

    @classmethod
    def from_values(cls, rows: Sequence[Sequence[object]]) -> "PackedStats":
        """Pack rows that are the fields of ColumnStats, in their order."""
        return cls.from_text(_encode_compact(rows))

    @classmethod
    def from_text(cls, text: bytes) -> "PackedStats":
        """Pack rows of the fields of ColumnStats that are JSON."""
        made = cls.__new__(cls)
        made._kept = text  # noqa: SLF001
        return made

    def deflate(self) -> "PackedStats":
        """Compress to a third of the memory, for rows that wait to be written; reading them takes twice as long."""
        return self.from_text(zlib.compress(self.text, 1))

    @property
    def text(self) -> bytes:
        """All of it as JSON."""
        return self._kept if self._kept.startswith(b"[") else zlib.decompress(self._kept)

    def __getitem__(self, index: Any) -> Any:
        return self.unpack()[index]

    def __iter__(self) -> Iterator[ColumnStats]:
        return iter(self.unpack())

    def __len__(self) -> int:
        return len(self.unpack())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedStats) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def unpack(self) -> tuple[ColumnStats, ...]:
        return tuple(ColumnStats(*row) for row in self.values())

    def values(self) -> list[list[Any]]:
        """Return the fields of each row, in their order."""
        rows: list[list[Any]] = orjson.loads(self.text)
        return rows


def _encode_compact(value: object) -> bytes:
    """Encode JSON in bytes of its own length: orjson's result keeps several times as much memory, a copy does not."""
    return bytes(memoryview(orjson.dumps(value)))


@dataclass(frozen=True, slots=True)
class TableRow:
    """A `duckicelake_table` row."""

    table_id: int
    table_uuid: str
    location: str
    version: int
    caught_up_to: int
    epoch: int
    ducklake_id: int
    format_version: int
    last_sequence_number: int
    next_row_id: int
    last_updated_ms: int
    current_snapshot_id: int | None
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A `duckicelake_view` row: what Iceberg clients last read, and what DuckDB read then."""

    view_id: int
    version: int
    metadata: Mapping[str, Any]
    metadata_location: str
    definition: ViewDefinition


class FreshnessQuery(NamedTuple):
    """A table by its name. checked_upto: the DuckLake snapshot up to which what is known of it was found right."""

    schema_name: str
    table_name: str
    checked_upto: int | None = None


@dataclass(frozen=True, slots=True)
class Freshness:
    """Facts that show whether a table is still as it was read; `version` is None before any Iceberg client saw it.

    `has_overdue`: snapshots were held long enough and leave its history. `is_untouched`: no DuckLake snapshot since
    `checked_upto` is about it; never so where that is None. `seen`: as long as it stays the same, nothing at all
    was written to Postgres.
    """

    table_id: int
    version: int | None
    caught_up_to: int | None
    newest_snapshot: int
    epoch: int
    has_overdue: bool
    is_untouched: bool
    seen: str


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A `duckicelake_snapshot` row with the path of its manifest list, None until that is written."""

    snapshot_id: int
    proposed_id: int | None
    ducklake_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    timestamp_ms: int
    schema_id: int | None
    first_row_id: int | None
    added_rows: int | None
    key_id: str | None
    summary: Mapping[str, str]
    manifest_ids: Sequence[int]
    manifest_list: str | None


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as the side tables hold it; both logs are (path or snapshot id, epoch ms), oldest first."""

    row: TableRow
    snapshots: tuple[SnapshotRow, ...]
    snapshot_log: tuple[tuple[int, int], ...]
    metadata_log: tuple[tuple[str, int], ...]
    metadata_location: str | None

    def current(self) -> SnapshotRow | None:
        """Return the snapshot that main names."""
        wanted = self.row.current_snapshot_id
        return next((row for row in reversed(self.snapshots) if row.snapshot_id == wanted), None)


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """A `duckicelake_manifest` row without its file ids, with what was written for it."""

    manifest_id: int
    content: int
    format_version: int
    spec_id: int
    schema_id: int
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    live_files: int
    path: str | None
    length: int | None
    facts: Mapping[str, Any] | None
    is_laid_out: bool | None = None


class FileRow(NamedTuple):
    """A `duckicelake_file` row: a data or delete file, with every fact of its manifest entry."""

    file_id: int
    content: int
    path: str
    file_format: str
    spec_id: int
    partition: list[Any]
    record_count: int
    file_size_in_bytes: int
    metrics: Mapping[str, Any]
    added_snapshot_id: int
    sequence_number: int
    file_sequence_number: int
    first_row_id: int | None = None
    ducklake_id: int | None = None


Entry: TypeAlias = tuple[int, FileRow]
"""A file as a manifest lists it: the entry's status (0, 1, 2) comes first."""


@dataclass(frozen=True, slots=True)
class VirtualFileRow:
    """A `duckicelake_virtual_file` row: position i of the file holds the inlined row keys[i]."""

    file_id: int
    keys: tuple[InlinedKey, ...]


@dataclass(frozen=True, slots=True)
class DeletionRow:
    """A `duckicelake_deletion` row: `positions` is a portable 64-bit roaring bitmap."""

    delete_file_id: int
    data_file_id: int
    positions: bytes


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that the current snapshot lists, in short; `manifest_id` where it was found by that."""

    file_id: int
    content: int
    sequence_number: int
    ducklake_id: int | None
    file_format: str
    manifest_id: int = 0


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """What the current Iceberg snapshot holds, as far as catching up needs it: all, or all that it can concern.

    `deleted` are the positions already deleted, by data file id; `delete_targets` the data files of each delete file.
    `virtual` are those that serve inlined rows, if these may have ended since.
    """

    files: tuple[LiveFile, ...]
    virtual: Mapping[int, VirtualFileRow]
    deleted: Mapping[int, frozenset[int]]
    delete_targets: Mapping[int, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Reach:
    """The range in which DuckDB's changes of a table are read.

    Files that came since have ids of DuckLake's from `first` to `last`, but for those `live`, which were known; deletes
    that are inlined came after `deletes_after`, or are of such files. Inlined rows of before are left out if there are
    `served` many.
    """

    deletes_after: int = -1
    first: int = 0
    last: int = 2**63 - 1
    live: tuple[int, ...] = ()
    served: int | None = None


@dataclass(frozen=True, slots=True)
class NativeWindow:
    """What DuckLake did to one table in the snapshots (after, upto], and the rows needed to find its files at each.

    `changes` are those that touch the table, oldest first; `definitions` what the table was after each change of its
    definition; `data_files` those whose visibility changes for a reader of the live files; `vanished` the ids of live
    files that DuckLake no longer has at all; `delete_files` those not seen before; `rows` and `deletes` all that are
    visible in the window, `rows` without those of before unless `all_rows`; `next_row_id` DuckLake's at its end;
    `name_maps` those of files without field ids, by id.
    """

    after: int
    upto: int
    changes: tuple[LakeChange, ...]
    definitions: Mapping[int, TableDefinition]
    data_files: tuple[LakeFile, ...]
    vanished: frozenset[int]
    delete_files: tuple[LakeFile, ...]
    rows: tuple[InlinedRow, ...]
    all_rows: bool
    deletes: tuple[InlinedDelete, ...]
    stats: Mapping[int, PackedStats]
    partition_values: Mapping[int, Mapping[PartitionKey, str | None]]
    next_row_id: int
    name_maps: Mapping[int, NameMap]
