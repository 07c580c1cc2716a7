"""Manifests and manifest lists of version 3."""

from collections.abc import Callable
from typing import Any

import pyiceberg.table.update.snapshot
from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriter,
    ManifestListWriterV2,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.typedef import TableVersion

from duckicelake.pyiceberg_v3 import records
from duckicelake.pyiceberg_v3.patching import Patch, patch
from duckicelake.pyiceberg_v3.records import V3


class ManifestWriterV3(ManifestWriterV2):
    """A manifest of data files, which keep the first row ids they have; added ones are without."""

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
        first_row_id = None if is_added else records.first_row_id(checked.data_file)
        return records.with_file(checked, records.with_first_row_id(checked.data_file, first_row_id))


class DeleteManifestWriterV3(ManifestWriterV3):
    """A manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class ManifestListWriterV3(ManifestListWriterV2):
    """A list whose manifests come with their first row ids."""

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
def _write_manifest(original: Callable[..., ManifestWriter]) -> Any:
    """PyIceberg refuses to write manifests of version 3."""

    def write_manifest(format_version: TableVersion, **named: Any) -> ManifestWriter:
        return ManifestWriterV3(**named) if format_version == V3 else original(format_version, **named)

    return write_manifest


@patch(pyiceberg.table.update.snapshot, "write_manifest_list")
def _write_manifest_list(original: Callable[..., ManifestListWriter]) -> Any:
    """PyIceberg refuses to write manifest lists of version 3."""

    def write_manifest_list(format_version: TableVersion, **named: Any) -> ManifestListWriter:
        return ManifestListWriterV3(**named) if format_version == V3 else original(format_version, **named)

    return write_manifest_list


PATCHES: tuple[Patch, ...] = (_write_manifest, _write_manifest_list)
