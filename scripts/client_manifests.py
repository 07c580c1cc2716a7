"""Manifests as clients write them, for the benches, the history checker and the tests."""

from collections.abc import Sequence

from duckicelake.iceberg.manifest.entry import (
    UNASSIGNED,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)


def content_of(entries: Sequence[ManifestEntry]) -> ManifestContent:
    """What the manifest of these entries, which are of one kind, is to hold."""
    is_data = all(entry.data_file.content is FileContent.DATA for entry in entries)
    return ManifestContent.DATA if is_data else ManifestContent.DELETES


def line_of(
    path: str, data: bytes, entries: Sequence[ManifestEntry], snapshot_id: int, spec_id: int = 0
) -> ManifestFile:
    """The line of a manifest that the snapshot adds, which gets its sequence numbers from the catalog."""
    added, existing, deleted = (
        [entry.data_file.record_count for entry in entries if entry.status is status]
        for status in (EntryStatus.ADDED, EntryStatus.EXISTING, EntryStatus.DELETED)
    )
    return ManifestFile(
        manifest_path=path,
        manifest_length=len(data),
        partition_spec_id=spec_id,
        content=content_of(entries),
        sequence_number=UNASSIGNED,
        min_sequence_number=UNASSIGNED,
        added_snapshot_id=snapshot_id,
        added_files_count=len(added),
        existing_files_count=len(existing),
        deleted_files_count=len(deleted),
        added_rows_count=sum(added),
        existing_rows_count=sum(existing),
        deleted_rows_count=sum(deleted),
        partitions=(),
    )
