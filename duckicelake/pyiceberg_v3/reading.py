"""Manifests and manifest lists of version 3 are read with all their fields, and row ids are inherited."""

from collections.abc import Callable
from typing import Any, TypeVar

import pyiceberg.manifest
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import StructProtocol

from duckicelake.pyiceberg_v3 import records
from duckicelake.pyiceberg_v3.patching import Patch, patch
from duckicelake.pyiceberg_v3.records import V3

D = TypeVar("D", bound=StructProtocol)
FIRST_ROW_IDS = {142, 520}
"""Field ids of `first_row_id` in a manifest and in a manifest list: what only version 3 has."""


class ManifestAvroFile(AvroFile[D]):
    """Reads a manifest or a manifest list with the schema of the version that wrote it, 2 or 3."""

    def __enter__(self) -> "ManifestAvroFile[D]":
        super().__enter__()
        if self.read_schema is not None and FIRST_ROW_IDS & self.schema.field_ids:
            self.read_schema = v3_schema(self.read_schema)
            self.reader = resolve_reader(self.schema, self.read_schema, self.read_types, self.read_enums)
        return self


def v3_schema(schema: Schema) -> Schema:
    schemas = MANIFEST_ENTRY_SCHEMAS if schema == MANIFEST_ENTRY_SCHEMAS[2] else MANIFEST_LIST_FILE_SCHEMAS
    return schemas[V3]


@patch(pyiceberg.manifest, "AvroFile")
def _avro_file(_: Any) -> Any:
    """PyIceberg reads every manifest and list with version 2's schema: first row ids and vectors get lost."""
    return ManifestAvroFile


@patch(Snapshot, "manifests")
def _manifests(original: Callable[[Snapshot, FileIO], list[ManifestFile]]) -> Any:
    """PyIceberg keeps what it once read about a manifest in a list, whatever later lists say.

    But the first commit after an upgrade gives a manifest its first row id, and a catalog may give it another sequence
    number than the client had proposed.
    """

    def manifests(self: Snapshot, io: FileIO) -> list[ManifestFile]:
        if self.first_row_id is None:
            return original(self, io)
        return list(read_manifest_list(io.new_input(self.manifest_list)))

    return manifests


@patch(ManifestFile, "fetch_manifest_entry")
def _fetch_manifest_entry(original: Callable[[ManifestFile, FileIO, bool], list[ManifestEntry]]) -> Any:
    """PyIceberg inherits sequence numbers, but not first row ids, and it forgets a file's sequence number."""

    def fetch_manifest_entry(self: ManifestFile, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        entries = original(self, io, discard_deleted)
        return inherit(entries, self) if records.is_v3(self) else entries

    return fetch_manifest_entry


def inherit(entries: list[ManifestEntry], manifest: ManifestFile) -> list[ManifestEntry]:
    """Give live data files without a first row id the next ones from the manifest's on, as in First Row ID Inheritance.

    Every file gets to know its sequence number.
    """
    next_row_id = records.manifest_first_row_id(manifest) if manifest.content == ManifestContent.DATA else None
    for entry in entries:
        is_unassigned = entry.status != ManifestEntryStatus.DELETED and records.first_row_id(entry.data_file) is None
        if next_row_id is not None and is_unassigned:
            entry.data_file = records.with_first_row_id(entry.data_file, next_row_id)
            next_row_id += entry.data_file.record_count
        records.note_data_sequence_number(entry.data_file, entry.sequence_number)
    return entries


PATCHES: tuple[Patch, ...] = (_avro_file, _manifests, _fetch_manifest_entry)
