"""Metadata of a table's copy: one snapshot, and what else the source's table is."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import uuid4

from duckicelake.client.models import Json
from duckicelake.iceberg.manifest.entry import (
    UNASSIGNED,
    DataFile,
    EntryStatus,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from duckicelake.iceberg.manifest.writer import summarize_partitions, write_manifest, write_manifest_list
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.partition import build_partition_type
from duckicelake.iceberg.schema import Schema
from duckicelake.other_catalogs.comparison import COPIED_SNAPSHOT

WriteMetadataFile = Callable[[str, bytes], str]
"""Stores a file of this name beside the metadata.json, and returns where it is."""
_MANIFEST_FILES: Final = 10_000
_OF_THE_SOURCE: Final = frozenset(
    {
        "write.format.default",
        "write.delete.format.default",
        "write.data.path",
        "write.metadata.path",
        "write.folder-storage.path",
        "write.object-storage.path",
    }
)
"""Properties that say where and in which format the source writes."""


def list_schemas(metadata: TableMetadata) -> Sequence[Schema]:
    """Return the schemas of a table: the current one, then the others, the newest first."""
    current = metadata.schema()
    return current, *reversed([one for one in metadata.schemas if one is not current])


def build_copy(
    source: TableMetadata, location: str, copied: Mapping[int, Sequence[DataFile]], write: WriteMetadataFile
) -> Json:
    """Return the metadata of a table of one snapshot that has the source's UUID, columns and specs, but no history.

    copied: its data files by the id of their partition spec, which the source has. write: stores the manifests.
    """
    version = source.format_version
    rows = sum(file.record_count for files in copied.values() for file in files)
    now_ms = int(time.time() * 1000)
    current = source.current_snapshot()
    snapshot_id = uuid4().int & (1 << 63) - 1
    properties = {key: value for key, value in source.properties.items() if key not in _OF_THE_SOURCE}
    data: Json = {
        **source.drop_history(),
        "location": location,
        "last-updated-ms": now_ms,
        "last-sequence-number": 0,
        "properties": {**properties, COPIED_SNAPSHOT: "none" if current is None else str(current.snapshot_id)},
        "current-snapshot-id": None,
        "snapshots": [],
        "refs": {},
        "snapshot-log": [],
        "metadata-log": [],
        "statistics": [],
        "partition-statistics": [],
    }
    if version > 2:
        data["next-row-id"] = rows
    if current is None:
        return data
    sequence_number = 1 if version > 1 else 0
    manifests = [
        _write_manifest(source, spec_id, files[start : start + _MANIFEST_FILES], snapshot_id, write)
        for spec_id, files in copied.items()
        for start in range(0, len(files), _MANIFEST_FILES)
    ]
    listed = write_manifest_list(
        format_version=version,
        snapshot_id=snapshot_id,
        parent_snapshot_id=None,
        sequence_number=sequence_number,
        manifests=manifests,
        first_row_id=0 if version > 2 else None,
    )
    files = str(sum(map(len, copied.values())))
    snapshot = {
        "snapshot-id": snapshot_id,
        "timestamp-ms": now_ms,
        "manifest-list": write(f"snap-{snapshot_id}-1-{uuid4()}.avro", listed),
        "schema-id": source.current_schema_id,
        "summary": {
            "operation": "append",
            "added-data-files": files,
            "added-records": str(rows),
            "total-data-files": files,
            "total-records": str(rows),
        },
    }
    if version > 1:
        snapshot["sequence-number"] = sequence_number
    if version > 2:
        snapshot |= {"first-row-id": 0, "added-rows": rows}
    return data | {
        "last-sequence-number": sequence_number,
        "current-snapshot-id": snapshot_id,
        "snapshots": [snapshot],
        "refs": {"main": {"snapshot-id": snapshot_id, "type": "branch"}},
        "snapshot-log": [{"snapshot-id": snapshot_id, "timestamp-ms": now_ms}],
    }


def _write_manifest(
    source: TableMetadata, spec_id: int, files: Sequence[DataFile], snapshot_id: int, write: WriteMetadataFile
) -> ManifestFile:
    spec = source.spec(spec_id)
    sources = {field.source_id for field in spec.fields}
    schema = next((one for one in list_schemas(source) if sources <= one.leaves().keys()), source.schema())
    data = write_manifest(
        format_version=source.format_version,
        content=ManifestContent.DATA,
        schema=schema,
        spec=spec,
        entries=[ManifestEntry(EntryStatus.ADDED, snapshot_id, None, None, file) for file in files],
    )
    return ManifestFile(
        manifest_path=write(f"{uuid4()}-m0.avro", data),
        manifest_length=len(data),
        partition_spec_id=spec_id,
        content=ManifestContent.DATA,
        sequence_number=UNASSIGNED,
        min_sequence_number=UNASSIGNED,
        added_snapshot_id=snapshot_id,
        added_files_count=len(files),
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=sum(file.record_count for file in files),
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=summarize_partitions(build_partition_type(spec, schema), [file.partition for file in files]),
    )
