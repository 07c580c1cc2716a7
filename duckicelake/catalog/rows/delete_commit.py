"""Commits that delete rows of main, by keys or by position."""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from duckicelake.bridge.data_files import parse_column_metrics
from duckicelake.bridge.values.statistics import LakeMetrics
from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.deletes import FoundRows
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.snapshot_upload import SnapshotUpload, build_snapshot
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.manifest.entry import (
    DataFile,
    FileContent,
    ManifestContent,
)
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.partition import UNPARTITIONED, PartitionSpec, UnboundPartitionSpec
from duckicelake.iceberg.requirements import AssertRefSnapshotId
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.snapshot import MAIN, Snapshot
from duckicelake.iceberg.sort import UNSORTED
from duckicelake.iceberg.updates import AddSnapshot, AddSpec, SetSnapshotRef, TableUpdate
from duckicelake.lake.model import ColumnStats
from duckicelake.rows.files import write_row_files
from duckicelake.rows.row_batch import Batch

_SUMMARY: Final = {"operation": "delete"}


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
    uploaded = SnapshotUpload(services, metadata)
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
    manifest = uploaded.add_manifest(snapshot_id, ManifestContent.DELETES, spec, [file])
    snapshot = build_snapshot(services, metadata, snapshot_id, parent, dict(_SUMMARY), 0)
    snapshot = uploaded.add_list(snapshot, [manifest], parent)
    return TableCommit(namespace, table, _request(metadata, snapshot, _new_specs(metadata, spec))), uploaded.paths


def delete_found(
    services: Services, namespace: Namespace, table: str, metadata: TableMetadata, parent: Snapshot, found: FoundRows
) -> TableCommit:
    """Return the commit that deletes from main the rows that were found in it."""
    snapshot = build_snapshot(services, metadata, secrets.randbits(62), parent, dict(_SUMMARY), 0)
    return TableCommit(namespace, table, _request(metadata, snapshot), found)


def _request(metadata: TableMetadata, snapshot: Snapshot, before: Iterable[TableUpdate] = ()) -> CommitTableRequest:
    main = SetSnapshotRef(
        ref_name=MAIN, **metadata.refs[MAIN].replace_fields(snapshot_id=snapshot.snapshot_id).model_dump()
    )
    requirement = AssertRefSnapshotId(ref=MAIN, snapshot_id=snapshot.parent_snapshot_id)
    return CommitTableRequest(requirements=(requirement,), updates=(*before, AddSnapshot(snapshot=snapshot), main))


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
