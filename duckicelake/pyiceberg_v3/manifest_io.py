"""Read and write manifests and manifest lists of version 3, with first row ids."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import pyiceberg.manifest
import pyiceberg.table.update.snapshot
from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriter,
    ManifestListWriterV2,
    ManifestWriter,
    ManifestWriterV2,
    read_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import StructProtocol, TableVersion

from duckicelake.pyiceberg_v3.installation import Patch, patch

V3: Final = 3
_MANIFEST_WIDTH: Final = len(MANIFEST_LIST_FILE_SCHEMAS[V3].fields)
_POSITIONS: Final = {field.name: position for position, field in enumerate(DATA_FILE_TYPE[V3].fields)}
_DATA_SEQUENCE_NUMBER: Final = "_data_sequence_number"
D = TypeVar("D", bound=StructProtocol)
FIRST_ROW_ID_FIELD_IDS = {142, 520}
"""Field ids of `first_row_id` in a manifest and in a manifest list; only version 3 has them."""


def is_v3(manifest: ManifestFile) -> bool:
    """Return whether the record comes from a manifest list of version 3."""
    return len(manifest) == _MANIFEST_WIDTH


def get_manifest_first_row_id(manifest: ManifestFile) -> int | None:
    return manifest[_MANIFEST_WIDTH - 1] if is_v3(manifest) else None


def copy_manifest(manifest: ManifestFile, first_row_id: int | None) -> ManifestFile:
    """Copy the record: PyIceberg keeps the original, and a failed commit must not change it."""
    return ManifestFile(*(manifest[position] for position in range(_MANIFEST_WIDTH - 1)), first_row_id)


def copy_as_v3(file: DataFile) -> DataFile:
    """Copy the record at version 3's width, with the attributes that a reader added."""
    values = [file[position] for position in range(len(file))]
    copy = DataFile(*values, *[None] * (len(_POSITIONS) - len(values)))
    vars(copy).update(vars(file))
    return copy


def copy_entry(entry: ManifestEntry, file: DataFile) -> ManifestEntry:
    return ManifestEntry(*(entry[position] for position in range(len(entry) - 1)), file)


def get_first_row_id(file: DataFile) -> int | None:
    value: int | None = _get_field(file, "first_row_id")
    return value


def copy_with_first_row_id(file: DataFile, value: int | None) -> DataFile:
    copy = copy_as_v3(file)
    copy[_POSITIONS["first_row_id"]] = value
    return copy


def get_data_sequence_number(file: DataFile) -> int | None:
    """Return the sequence number that `note_data_sequence_number` stored, None without one."""
    number: int | None = vars(file).get(_DATA_SEQUENCE_NUMBER)
    return number


def note_data_sequence_number(file: DataFile, number: int | None) -> None:
    """Store the sequence number with the file: a scan returns files without their manifest entries."""
    vars(file)[_DATA_SEQUENCE_NUMBER] = number


def find_vector_target(file: DataFile) -> str | None:
    """Return the data file of a deletion vector, None for another file."""
    path: str | None = _get_field(file, "referenced_data_file") if file.file_format == FileFormat.PUFFIN else None
    return path


def size_by_content(vector: DataFile) -> DataFile:
    """Copy a deletion vector with its content size as file size, as Iceberg's summaries count it."""
    copy = copy_as_v3(vector)
    copy[_POSITIONS["file_size_in_bytes"]] = _get_field(vector, "content_size_in_bytes")
    return copy


def _get_field(file: DataFile, name: str) -> Any:
    return file[_POSITIONS[name]] if len(file) == len(_POSITIONS) else None


class ManifestAvroFile(AvroFile[D]):
    """Read a manifest or manifest list with the schema of the version that wrote it, 2 or 3."""

    def __enter__(self) -> "ManifestAvroFile[D]":
        super().__enter__()
        if self.read_schema is not None and FIRST_ROW_ID_FIELD_IDS & self.schema.field_ids:
            self.read_schema = build_v3_schema(self.read_schema)
            self.reader = resolve_reader(self.schema, self.read_schema, self.read_types, self.read_enums)
        return self


def build_v3_schema(schema: Schema) -> Schema:
    schemas = MANIFEST_ENTRY_SCHEMAS if schema == MANIFEST_ENTRY_SCHEMAS[2] else MANIFEST_LIST_FILE_SCHEMAS
    return schemas[V3]


@patch(pyiceberg.manifest, "AvroFile")
def _patch_avro_file(_: Any) -> Any:
    """PyIceberg reads every manifest and list with version 2's schema, and so loses first row ids and vectors."""
    return ManifestAvroFile


@patch(Snapshot, "manifests")
def _patch_manifests(original: Callable[[Snapshot, FileIO], list[ManifestFile]]) -> Any:
    """PyIceberg caches a manifest's record of one list, and ignores later lists.

    The first commit after an upgrade gives a manifest its first row id. A catalog may also change the sequence number
    that the client proposed.
    """

    def manifests(self: Snapshot, io: FileIO) -> list[ManifestFile]:
        if self.first_row_id is None:
            return original(self, io)
        return list(read_manifest_list(io.new_input(self.manifest_list)))

    return manifests


@patch(ManifestFile, "fetch_manifest_entry")
def _patch_fetch_entries(original: Callable[[ManifestFile, FileIO, bool], list[ManifestEntry]]) -> Any:
    """PyIceberg inherits sequence numbers, not first row ids, and drops a file's sequence number."""

    def fetch_manifest_entry(self: ManifestFile, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        entries = original(self, io, discard_deleted)
        return inherit_row_ids(entries, self) if is_v3(self) else entries

    return fetch_manifest_entry


def inherit_row_ids(entries: list[ManifestEntry], manifest: ManifestFile) -> list[ManifestEntry]:
    """Assign first row ids to live data files without one, from the manifest's on (spec, First Row ID Inheritance).

    Store the sequence number with every file.
    """
    next_row_id = get_manifest_first_row_id(manifest) if manifest.content == ManifestContent.DATA else None
    for entry in entries:
        is_unassigned = entry.status != ManifestEntryStatus.DELETED and get_first_row_id(entry.data_file) is None
        if next_row_id is not None and is_unassigned:
            entry.data_file = copy_with_first_row_id(entry.data_file, next_row_id)
            next_row_id += entry.data_file.record_count
        note_data_sequence_number(entry.data_file, entry.sequence_number)
    return entries


READ_PATCHES: tuple[Patch, ...] = (_patch_avro_file, _patch_manifests, _patch_fetch_entries)


class ManifestWriterV3(ManifestWriterV2):
    """Write a manifest of data files. Existing files keep their first row ids; added files have none."""

    @property
    def version(self) -> TableVersion:
        return V3

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "schema-id": str(self._schema.schema_id)}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(V3)
        return AvroOutputFile[ManifestEntry](
            self._output_file, schema, "manifest_entry", record_schema=schema, metadata=self._meta
        )

    def prepare_entry(self, entry: ManifestEntry) -> ManifestEntry:
        checked = super().prepare_entry(entry)
        is_added = checked.status == ManifestEntryStatus.ADDED
        first_row_id = None if is_added else get_first_row_id(checked.data_file)
        return copy_entry(checked, copy_with_first_row_id(checked.data_file, first_row_id))


class DeleteManifestWriterV3(ManifestWriterV3):
    """Write a manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class ManifestListWriterV3(ManifestListWriterV2):
    """Write a manifest list with the manifests' first row ids."""

    def __init__(self, avro_compression: AvroCompressionCodec, **named: Any) -> None:
        super().__init__(compression=avro_compression, **named)
        self._format_version = V3
        self._meta["format-version"] = str(V3)

    def __enter__(self) -> ManifestListWriter:
        schema = MANIFEST_LIST_FILE_SCHEMAS[V3]
        self._writer = AvroOutputFile[ManifestFile](
            self._output_file, schema, "manifest_file", record_schema=schema, metadata=self._meta
        )
        self._writer.__enter__()
        return self


@patch(pyiceberg.table.update.snapshot, "write_manifest")
def _patch_write_manifest(original: Callable[..., ManifestWriter]) -> Any:
    """PyIceberg refuses to write manifests of version 3."""

    def write_manifest(format_version: TableVersion, **named: Any) -> ManifestWriter:
        return ManifestWriterV3(**named) if format_version == V3 else original(format_version, **named)

    return write_manifest


@patch(pyiceberg.table.update.snapshot, "write_manifest_list")
def _patch_write_manifest_list(original: Callable[..., ManifestListWriter]) -> Any:
    """PyIceberg refuses to write manifest lists of version 3."""

    def write_manifest_list(format_version: TableVersion, **named: Any) -> ManifestListWriter:
        return ManifestListWriterV3(**named) if format_version == V3 else original(format_version, **named)

    return write_manifest_list


WRITE_PATCHES: tuple[Patch, ...] = (_patch_write_manifest, _patch_write_manifest_list)
