"""The files of a snapshot that the server makes of posted rows or keys, as a client would upload them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.manifest.entry import (
    UNASSIGNED,
    DataFile,
    EntryStatus,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from duckicelake.iceberg.manifest.reader import read_manifest_list
from duckicelake.iceberg.manifest.writer import write_manifest, write_manifest_list
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.snapshot import Snapshot


@dataclass(slots=True)
class SnapshotUpload:
    """Files of one snapshot, in the table's own folders. paths: those that may be there."""

    services: Services
    metadata: TableMetadata
    paths: list[str] = field(default_factory=list)

    def add(self, name: str, data: bytes, folder: str = "metadata") -> str:
        """Write a file whose name ends so; return its path."""
        path = self._name(name, folder)
        self.services.store.write(path, data)
        return path

    def add_data_file(self, name: str, file: Path) -> str:
        """Write what a local file has; return the new one's path."""
        path = self._name(name, "data")
        self.services.store.upload(path, file)
        return path

    def _name(self, name: str, folder: str) -> str:
        """Name a file, and note it before it is written: a store may have it though its answer was lost."""
        path = f"{self.metadata.location}/{folder}/{uuid4()}-{name}"
        self.paths.append(path)
        return path

    def add_manifest(
        self, snapshot_id: int, content: ManifestContent, spec: PartitionSpec, files: Sequence[DataFile]
    ) -> ManifestFile:
        """Write a manifest of new files; return its line in the list."""
        data = write_manifest(
            format_version=max(2, self.metadata.format_version),
            content=content,
            schema=self.metadata.schema(),
            spec=spec,
            entries=[ManifestEntry(EntryStatus.ADDED, snapshot_id, None, None, file) for file in files],
        )
        return ManifestFile(
            manifest_path=self.add("m0.avro", data),
            manifest_length=len(data),
            partition_spec_id=spec.spec_id,
            content=content,
            sequence_number=UNASSIGNED,
            min_sequence_number=UNASSIGNED,
            added_snapshot_id=snapshot_id,
            added_files_count=len(files),
            existing_files_count=0,
            deleted_files_count=0,
            added_rows_count=sum(file.record_count for file in files),
            existing_rows_count=0,
            deleted_rows_count=0,
            partitions=(),
        )

    def add_list(self, snapshot: Snapshot, added: Sequence[ManifestFile], parent: Snapshot | None) -> Snapshot:
        """Write the manifest list; return the snapshot with it. parent: whose manifests stay; None: none does."""
        path = None if parent is None else parent.manifest_list
        before = () if path is None else read_manifest_list(self.services.store.read(path))
        data = write_manifest_list(
            format_version=self.metadata.format_version,
            snapshot_id=snapshot.snapshot_id,
            parent_snapshot_id=snapshot.parent_snapshot_id,
            sequence_number=snapshot.sequence_number,
            manifests=[*added, *before],
            first_row_id=snapshot.first_row_id,
        )
        return snapshot.replace_fields(manifest_list=self.add("list.avro", data))


def build_snapshot(
    services: Services,
    metadata: TableMetadata,
    snapshot_id: int,
    parent: Snapshot | None,
    summary: dict[str, str],
    rows: int,
) -> Snapshot:
    """Build a snapshot without a manifest list. rows: that it adds. parent: None of the table's first."""
    first_row_id = metadata.next_row_id if metadata.format_version >= ROW_LINEAGE_VERSION else None
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=None if parent is None else parent.snapshot_id,
        sequence_number=metadata.last_sequence_number + 1,
        timestamp_ms=max(services.clock(), metadata.last_updated_ms),
        manifest_list="",
        summary=summary,
        schema_id=metadata.current_schema_id,
        first_row_id=first_row_id,
        added_rows=None if first_row_id is None else rows,
    )
