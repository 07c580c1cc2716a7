"""Commits that delete rows of main, by keys or by position."""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

from duckicelake.bridge.data_files import parse_column_metrics
from duckicelake.bridge.values.statistics import LakeMetrics
from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.deletes import FoundRows
from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.manifest.entry import (
    UNASSIGNED,
    DataFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from duckicelake.iceberg.manifest.reader import read_manifest_list
from duckicelake.iceberg.manifest.writer import write_manifest, write_manifest_list
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.partition import UNPARTITIONED, PartitionSpec, UnboundPartitionSpec
from duckicelake.iceberg.requirements import AssertRefSnapshotId
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.snapshot import MAIN, Snapshot
from duckicelake.iceberg.sort import UNSORTED
from duckicelake.iceberg.updates import AddSnapshot, AddSpec, SetSnapshotRef, TableUpdate
from duckicelake.lake.model import ColumnStats
from duckicelake.rows.files import write_row_files
from duckicelake.rows.row_batch import Batch


@dataclass(slots=True)
class _Uploaded:
    """Files of one commit, in the table's metadata folder."""

    services: Services
    metadata: TableMetadata
    paths: list[str]

    def add(self, suffix: str, data: bytes) -> str:
        path = f"{self.metadata.location}/metadata/{uuid4()}-{suffix}"
        self.services.store.write(path, data)
        self.paths.append(path)
        return path


@dataclass(frozen=True, slots=True)
class KeyFile:
    """Keys of rows that are to go, as Parquet; the statistics exclude data files without such rows."""

    data: bytes
    count: int
    field_ids: tuple[int, ...]
    stats: tuple[ColumnStats, ...]


def write_key_file(keys: Batch) -> KeyFile:
    """Return the keys, of which there is one at least."""
    (file,) = write_row_files(keys, (), UNPARTITIONED, UNSORTED)
    return KeyFile(file.data, keys.num_rows, tuple(column.field_id for column in keys.layout.columns), file.stats)


def delete_by_key(
    services: Services, namespace: Namespace, table: str, metadata: TableMetadata, parent: Snapshot, keys: KeyFile
) -> tuple[TableCommit, list[str]]:
    """Return the commit that deletes from main all rows with these keys, and the files that were written for it.

    No table lists these files once it is committed: the deletes are listed as positions.
    """
    uploaded = _Uploaded(services, metadata, [])
    snapshot_id, spec = secrets.randbits(62), _global_spec(metadata)
    metrics = LakeMetrics(metadata.schema().leaves()).build_metrics(keys.stats)
    file = DataFile(
        content=FileContent.EQUALITY_DELETES,
        file_path=uploaded.add("keys.parquet", keys.data),
        file_format="PARQUET",
        partition=(),
        record_count=keys.count,
        file_size_in_bytes=len(keys.data),
        **parse_column_metrics(metrics),
        equality_ids=tuple(sorted(keys.field_ids)),
    )
    line = _manifest(uploaded, snapshot_id, spec, file)
    snapshot = _snapshot(services, metadata, snapshot_id, parent)
    snapshot = snapshot.replace_fields(manifest_list=_list(uploaded, snapshot, [line, *_list_line(services, parent)]))
    return TableCommit(namespace, table, _request(metadata, snapshot, _new_specs(metadata, spec))), uploaded.paths


def delete_found(
    services: Services, namespace: Namespace, table: str, metadata: TableMetadata, parent: Snapshot, found: FoundRows
) -> TableCommit:
    """Return the commit that deletes from main the rows that were found in it."""
    snapshot = _snapshot(services, metadata, secrets.randbits(62), parent)
    return TableCommit(namespace, table, _request(metadata, snapshot), found)


def _request(metadata: TableMetadata, snapshot: Snapshot, before: Iterable[TableUpdate] = ()) -> CommitTableRequest:
    main = SetSnapshotRef(
        ref_name=MAIN, **metadata.refs[MAIN].replace_fields(snapshot_id=snapshot.snapshot_id).model_dump()
    )
    requirement = AssertRefSnapshotId(ref=MAIN, snapshot_id=snapshot.parent_snapshot_id)
    return CommitTableRequest(requirements=(requirement,), updates=(*before, AddSnapshot(snapshot=snapshot), main))


def _manifest(uploaded: _Uploaded, snapshot_id: int, spec: PartitionSpec, file: DataFile) -> ManifestFile:
    metadata = uploaded.metadata
    data = write_manifest(
        format_version=max(2, metadata.format_version),
        content=ManifestContent.DELETES,
        schema=metadata.schema(),
        spec=spec,
        entries=[ManifestEntry(EntryStatus.ADDED, snapshot_id, None, None, file)],
    )
    return ManifestFile(
        manifest_path=uploaded.add("m0.avro", data),
        manifest_length=len(data),
        partition_spec_id=spec.spec_id,
        content=ManifestContent.DELETES,
        sequence_number=UNASSIGNED,
        min_sequence_number=UNASSIGNED,
        added_snapshot_id=snapshot_id,
        added_files_count=1,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=file.record_count,
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=(),
    )


def _list(uploaded: _Uploaded, snapshot: Snapshot, manifests: Sequence[ManifestFile]) -> str:
    data = write_manifest_list(
        format_version=uploaded.metadata.format_version,
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number,
        manifests=manifests,
        first_row_id=snapshot.first_row_id,
    )
    return uploaded.add("list.avro", data)


def _snapshot(services: Services, metadata: TableMetadata, snapshot_id: int, parent: Snapshot) -> Snapshot:
    """Return a snapshot without a manifest list."""
    first_row_id = metadata.next_row_id if metadata.format_version >= ROW_LINEAGE_VERSION else None
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id,
        sequence_number=metadata.last_sequence_number + 1,
        timestamp_ms=max(services.clock(), metadata.last_updated_ms),
        manifest_list="",
        summary={"operation": "delete"},
        schema_id=metadata.current_schema_id,
        first_row_id=first_row_id,
        added_rows=None if first_row_id is None else 0,
    )


def _list_line(services: Services, parent: Snapshot) -> Sequence[ManifestFile]:
    return () if parent.manifest_list is None else read_manifest_list(services.store.read(parent.manifest_list))


def _global_spec(metadata: TableMetadata) -> PartitionSpec:
    """Return one without partitions, under which equality deletes apply to all.

    The table's, or one that it is given.
    """
    plain = (spec for spec in metadata.partition_specs if not spec.fields)
    new_id = max(spec.spec_id for spec in metadata.partition_specs) + 1
    return next(plain, PartitionSpec(spec_id=new_id, fields=()))


def _new_specs(metadata: TableMetadata, spec: PartitionSpec) -> Iterator[AddSpec]:
    if spec not in metadata.partition_specs:
        yield AddSpec(spec=UnboundPartitionSpec(spec_id=spec.spec_id, fields=()))
