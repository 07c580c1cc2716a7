"""PURE. Build the ChangeSet of native steps: snapshots, files and manifests as side-table rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from duckicelake.bridge.data_files import NO_PARTITION, serialize_metrics, serialize_partition
from duckicelake.bridge.file_schema import add_name_mapping
from duckicelake.bridge.manifest_lists import ListedManifest, ListOwner, build_next_list, parse_packing
from duckicelake.bridge.native.added_files import DuckDBAddedFile, drop_bounds
from duckicelake.bridge.native.schema import add_unpartitioned_spec, evolve_metadata
from duckicelake.bridge.native.steps import SAME_ROWS, NativeStep
from duckicelake.bridge.project import build_target, to_snapshot_row
from duckicelake.bridge.snapshots import SnapshotNumbers, SnapshotTotals, find_data_sequence_number, summarize_snapshot
from duckicelake.bridge.values.partitions import to_partition
from duckicelake.bridge.values.statistics import LakeMetrics
from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.manifest.entry import DataFile, FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.metadata_builder import apply_updates
from duckicelake.iceberg.partition import PartitionSpec, build_partition_type
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.snapshot import MAIN, Snapshot, SnapshotLogEntry, SnapshotRef
from duckicelake.iceberg.types import StructType
from duckicelake.iceberg.updates import RemoveSnapshots, UpgradeFormatVersion
from duckicelake.lake.additions import NewDeletion, NewVirtualFile, SideFiles
from duckicelake.lake.changes import ChangeSet, LakeStep
from duckicelake.lake.model import ColumnStats, LakeFile, NameMap, PartitionKey
from duckicelake.lake.state import FileRow, NativeWindow, Packed, PackedStats
from duckicelake.properties import UNVERIFIED_HERE_KEY, add_unverified, merge_options

_DATA = int(FileContent.DATA)
_NO_STATS = PackedStats(())


@dataclass(frozen=True, slots=True)
class ReadableCopy:
    """A file of the same rows at the same positions as one of DuckDB's that Iceberg clients can't read exactly.

    first_row_id: of its first row, if that has no row id in it.
    """

    path: str
    file_size_in_bytes: int
    first_row_id: int


@dataclass(frozen=True, slots=True)
class ServedData:
    """How Iceberg clients read the data files of a step, by DuckLake's ids.

    added: those that DuckDB only added. names: maps of those without field ids that clients read by names.
    """

    copies: Mapping[int, ReadableCopy] = field(default_factory=dict)
    added: Mapping[int, DuckDBAddedFile] = field(default_factory=dict)
    names: tuple[NameMap, ...] = ()


@dataclass(frozen=True, slots=True)
class ServedFiles:
    """What the server wrote for one step: delete files with their deletions, and virtual files."""

    files: tuple[FileRow, ...] = ()
    deletions: tuple[NewDeletion, ...] = ()
    virtual_files: tuple[NewVirtualFile, ...] = ()


def build_native_files(
    step: NativeStep,
    window: NativeWindow,
    metadata: TableMetadata,
    numbers: SnapshotNumbers,
    served: ServedData,
) -> tuple[TableMetadata, tuple[FileRow, ...]]:
    """Build the rows of data files that DuckDB wrote or added, or of the copies that Iceberg clients get.

    The metadata gains a spec for those whose partition is unclear, and names of columns for those without field ids.
    """
    if not step.data_files:
        return metadata, ()
    rows: list[FileRow] = []
    for names in served.names:
        metadata = add_name_mapping(metadata, names) or metadata
    schema = metadata.schema()
    metrics, types = LakeMetrics(schema.leaves()), dict[int, StructType]()
    for file_id, file in step.data_files:
        stats = window.stats.get(file.file_id, _NO_STATS)
        added = served.added.get(file.file_id)
        metadata, spec, partition = find_partition(metadata, schema, file, window, added)
        if spec.fields and spec.spec_id not in types:
            types[spec.spec_id] = build_partition_type(spec, schema)
        copy = served.copies.get(file.file_id)
        known = metrics.build_metrics(stats.values())
        rows.append(
            FileRow(  # by position: for very many, names take twice as long
                file_id,
                _DATA,
                copy.path if copy else file.path,
                file.file_format.upper(),
                spec.spec_id,
                serialize_partition(partition, types[spec.spec_id]) if spec.fields else NO_PARTITION,
                file.record_count,
                copy.file_size_in_bytes if copy else file.file_size_bytes,
                Packed(drop_bounds(known, added.inexact) if added and added.inexact else known),
                numbers.snapshot_id,
                find_data_sequence_number(file, metadata, numbers),
                numbers.sequence_number,
                # null where the file holds its row ids, which Java reads anyhow
                copy.first_row_id if copy else file.row_id_start or 0,
                file.file_id,
            )
        )
    return metadata, tuple(rows)


def build_new_file(
    file_id: int,
    file: DataFile,
    spec_id: int,
    partition_type: StructType,
    numbers: SnapshotNumbers,
    ducklake_id: int | None,
) -> FileRow:
    """Return the row of a data file that joins the table with this snapshot; `partition_type` is that of the spec."""
    return FileRow(
        file_id=file_id,
        content=int(file.content),
        path=file.file_path,
        file_format=file.file_format,
        spec_id=spec_id,
        partition=serialize_partition(file.partition, partition_type),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        metrics=serialize_metrics(file),
        added_snapshot_id=numbers.snapshot_id,
        sequence_number=numbers.sequence_number,
        file_sequence_number=numbers.sequence_number,
        first_row_id=file.first_row_id,
        ducklake_id=ducklake_id,
    )


class SnapshotLine:
    """The snapshots of a table while catching up: those that it had, and those that the steps add to main.

    The metadata lists what is added at the end only, as it would else be copied with all its snapshots at each step.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self.newest = metadata.current_snapshot()
        self.ids = set(metadata.snapshots_by_id)
        self._added: list[Snapshot] = []

    def add(self, snapshot: Snapshot) -> None:
        """Let main go on with a snapshot."""
        self.newest = snapshot
        self.ids.add(snapshot.snapshot_id)
        self._added.append(snapshot)

    def list_added(self, metadata: TableMetadata) -> TableMetadata:
        """Return the metadata with all that was added."""
        if not self._added:
            return metadata
        entries = [SnapshotLogEntry(snapshot_id=s.snapshot_id, timestamp_ms=s.timestamp_ms) for s in self._added]
        return metadata.replace_fields(
            snapshots=(*metadata.snapshots, *self._added), snapshot_log=(*metadata.snapshot_log, *entries)
        )


def build_native_step(
    step: NativeStep,
    metadata: TableMetadata,
    line: SnapshotLine,
    numbers: SnapshotNumbers,
    parent: Sequence[ListedManifest],
    added: Sequence[FileRow],
    removed: Sequence[FileRow],
    served: ServedFiles,
    next_row_id: int,
    manifest_ids: Iterator[int],
    unverified: Sequence[str] = (),
) -> tuple[LakeStep, TableMetadata, tuple[ListedManifest, ...]]:
    """Build the step's rows, the metadata after its snapshot, and the manifests to build on next.

    `removed` are files of whichever content; `next_row_id` is DuckLake's after the step. `unverified` are constraints
    that the step's rows may violate.
    """
    owner = ListOwner(
        numbers.snapshot_id,
        numbers.sequence_number,
        metadata.current_schema_id,
        metadata.format_version,
        parse_packing(metadata.properties),
    )
    manifests = build_next_list(parent, added, {file.file_id for file in removed}, owner, manifest_ids)
    snapshot = _build_snapshot(step, metadata, line.newest, numbers, added, removed, next_row_id)
    if unverified:
        snapshot = snapshot.replace_fields(summary={**snapshot.summary, UNVERIFIED_HERE_KEY: ",".join(unverified)})
        properties = add_unverified(metadata.properties, unverified, snapshot.snapshot_id)
        metadata = metadata.replace_fields(properties=properties)
    line.add(snapshot)
    lake_step = LakeStep(
        ducklake_id=step.change.snapshot_id,
        snapshots=(to_snapshot_row(snapshot, [manifest.manifest_id for manifest in manifests.listed]),),
        side=SideFiles(
            files=tuple(added),
            deletions=served.deletions,
            virtual_files=served.virtual_files,
            manifests=manifests.new,
        ),
    )
    return lake_step, move_main(metadata, snapshot), manifests.listed


def build_native_change_set(
    base: TableMetadata, target: TableMetadata, table_id: int, version: int, after: int, steps: Sequence[LakeStep]
) -> ChangeSet:
    """Return all that catching up writes.

    Snapshots of the steps that have left the target already aren't listed at all.
    """
    listed = target.snapshots_by_id
    kept = tuple(replace(step, snapshots=tuple(s for s in step.snapshots if s.snapshot_id in listed)) for step in steps)
    return ChangeSet(table_id, version, after, kept, build_target(base, target), len(kept) - 1 if kept else None)


def redefine(metadata: TableMetadata, step: NativeStep, *, holds_rows: bool) -> TableMetadata:
    """Return the metadata after the step's change of the definition, if it has one.

    holds_rows: whether files of before stay. UnsupportedError if Iceberg has no word for what the table is now.
    """
    if step.definition is None:
        return metadata
    changed = evolve_metadata(metadata, step.definition, holds_rows=holds_rows)
    if changed is metadata:
        return metadata
    return changed.replace_fields(last_updated_ms=max(metadata.last_updated_ms, step.change.timestamp_ms))


def upgrade_for_steps(metadata: TableMetadata, steps: Sequence[NativeStep], next_row_id: int) -> TableMetadata:
    """Return the metadata to begin with, of the format version that all the steps need; `next_row_id` is DuckLake's.

    Version 1 has no word for deleted rows, version 2 lacks some types of columns.
    """
    needed = max(_find_version(metadata, steps), 2 if any(step.positions for step in steps) else 1)
    if metadata.format_version >= needed:
        return metadata
    changed = apply_updates(metadata, [UpgradeFormatVersion(format_version=needed)], metadata.last_updated_ms)
    return skip_given_row_ids(changed, next_row_id)


def _find_version(metadata: TableMetadata, steps: Sequence[NativeStep]) -> int:
    """Return the format version that all steps need which Iceberg can say."""
    for step in steps:
        with suppress(UnsupportedError):
            metadata = redefine(metadata, step, holds_rows=False)
    return metadata.format_version


def skip_given_row_ids(metadata: TableMetadata, next_row_id: int) -> TableMetadata:
    """Skip row ids that DuckLake has given already, also to rows that no snapshot shows."""
    if metadata.next_row_id is None or metadata.next_row_id >= next_row_id:
        return metadata
    return metadata.replace_fields(next_row_id=next_row_id)


def show_options(metadata: TableMetadata, options: Mapping[str, str], now_ms: int) -> TableMetadata:
    """Return the metadata with properties as DuckLake's options of the table say; itself if they are so."""
    properties = merge_options(metadata.properties, options)
    if properties == metadata.properties:
        return metadata
    return metadata.replace_fields(properties=properties, last_updated_ms=max(metadata.last_updated_ms, now_ms))


def drop_snapshots(metadata: TableMetadata, leaving: AbstractSet[int]) -> TableMetadata:
    """Return the metadata without the snapshots that leave its history, but for those that a branch or tag names."""
    unnamed = leaving - {ref.snapshot_id for ref in metadata.refs.values()}
    gone = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id in unnamed]
    if not gone:
        return metadata
    return apply_updates(metadata, [RemoveSnapshots(snapshot_ids=tuple(gone))], metadata.last_updated_ms)


def find_partition(
    metadata: TableMetadata, schema: Schema, file: LakeFile, window: NativeWindow, added: DuckDBAddedFile | None
) -> tuple[TableMetadata, PartitionSpec, tuple[Any, ...]]:
    """Return the spec and partition of a file.

    They are the default spec's if the values are known, else another spec's, else none.

    What a folder's name says of an added file counts where DuckDB reads it there, too.
    """
    values: Mapping[PartitionKey, str | None] = window.partition_values.get(file.file_id, {})
    stats: Iterable[ColumnStats] = window.stats.get(file.file_id, _NO_STATS) if metadata.specs_to_try[0].fields else ()
    if added is not None:
        values, stats = added.trust_folder(values), added.without_nan(stats)
    by_column = {row.column_id: row for row in stats}
    for spec in metadata.specs_to_try:
        partition = to_partition(spec, schema, values, by_column) if spec.fields else ()
        if partition is not None:
            return metadata, spec, partition
    metadata, spec = add_unpartitioned_spec(metadata)
    return metadata, spec, ()


def _build_snapshot(
    step: NativeStep,
    metadata: TableMetadata,
    parent: Snapshot | None,
    numbers: SnapshotNumbers,
    added: Sequence[FileRow],
    removed: Sequence[FileRow],
    next_row_id: int,
) -> Snapshot:
    totals = SnapshotTotals.from_parent(parent)
    return Snapshot(
        snapshot_id=numbers.snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=numbers.sequence_number,
        timestamp_ms=max(step.change.timestamp_ms, metadata.last_updated_ms),
        manifest_list="",
        summary=summarize_snapshot(_find_operation(step, added, removed), added, removed, totals),
        schema_id=metadata.current_schema_id,
        first_row_id=metadata.next_row_id,
        added_rows=None if metadata.next_row_id is None else max(next_row_id - metadata.next_row_id, 0),
    )


def _find_operation(step: NativeStep, added: Sequence[FileRow], removed: Sequence[FileRow]) -> str:
    if step.change.kinds <= SAME_ROWS:
        return "replace"
    if not removed and all(file.content == FileContent.DATA for file in added):
        return "append"
    if not any(file.content == FileContent.DATA for file in added):
        return "delete"
    return "overwrite"


def move_main(metadata: TableMetadata, snapshot: Snapshot) -> TableMetadata:
    """Return the metadata with main at a snapshot that isn't listed yet."""
    main = metadata.refs.get(MAIN) or SnapshotRef(snapshot_id=snapshot.snapshot_id, type="branch")
    return metadata.replace_fields(
        current_snapshot_id=snapshot.snapshot_id,
        refs={**metadata.refs, MAIN: main.replace_fields(snapshot_id=snapshot.snapshot_id)},
        last_sequence_number=max(metadata.last_sequence_number, snapshot.sequence_number),
        last_updated_ms=max(metadata.last_updated_ms, snapshot.timestamp_ms),
        next_row_id=None if snapshot.first_row_id is None else snapshot.first_row_id + (snapshot.added_rows or 0),
    )
