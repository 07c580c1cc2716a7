"""Manifests and manifest lists (table spec, "Manifests" and "Manifest Lists"): the front door of this chapter."""

from duckicelake.iceberg.manifest_entry import (
    UNASSIGNED,
    DataFile,
    EntryStatus,
    FieldSummary,
    FileContent,
    Manifest,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    PartitionValue,
    PlainEntry,
    PlainFile,
    inherit,
    inherit_all,
)
from duckicelake.iceberg.manifest_read import read_manifest, read_manifest_list
from duckicelake.iceberg.manifest_summary import summarise_partitions
from duckicelake.iceberg.manifest_write import assign_row_ids, file_encoder, write_manifest, write_manifest_list

__all__ = [
    "UNASSIGNED",
    "DataFile",
    "EntryStatus",
    "FieldSummary",
    "FileContent",
    "Manifest",
    "ManifestContent",
    "ManifestEntry",
    "ManifestFile",
    "PartitionValue",
    "PlainEntry",
    "PlainFile",
    "assign_row_ids",
    "file_encoder",
    "inherit",
    "inherit_all",
    "read_manifest",
    "read_manifest_list",
    "summarise_partitions",
    "write_manifest",
    "write_manifest_list",
]
