"""PURE. The files that must exist for a table: manifests, manifest lists and metadata.json, as names and bytes.

The same rows give the same bytes, and a name holds the hash of its content, so any worker can write any of them again
and a name never means two contents (design D4).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, TypeAlias
from uuid import UUID, uuid5

from duckicelake.bridge.contract import CONTRACT, MetricsContract
from duckicelake.bridge.entries import partition, plain_entry, plain_file, writable_partition_type
from duckicelake.bridge.realise import AnyFile
from duckicelake.iceberg.manifest import (
    EntryStatus,
    FieldSummary,
    ManifestContent,
    ManifestFile,
    file_encoder,
    summarise_partitions,
    write_manifest,
    write_manifest_list,
)
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SEQUENCE_NUMBER_VERSION, TableMetadata
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, PrimitiveType
from duckicelake.iceberg.values import to_bytes
from duckicelake.lake.state import ManifestRow, SnapshotRow

MANIFEST, MANIFEST_LIST, METADATA = "manifest", "manifest-list", "metadata"
Entries: TypeAlias = Sequence[tuple[int, AnyFile]]
"""The files that a manifest lists, in its order, each after the status of its entry."""
Encoded: TypeAlias = dict[tuple[int, int], bytes]
"""Files as manifests have them, by the manifests' format version and the file's id."""
Lines: TypeAlias = dict[int, ManifestFile]
"""Manifests as lists have them, by their ids."""
_STATUSES = (EntryStatus.ADDED, EntryStatus.EXISTING, EntryStatus.DELETED)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file to write: `object_id` is the manifest id, snapshot id or metadata version that it encodes."""

    kind: str
    object_id: int
    path: str
    data: bytes
    sha256: bytes
    timestamp_ms: int = 0
    facts: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Definitions:
    """What a table's manifests are encoded with."""

    table_uuid: str
    location: str
    schemas: tuple[Schema, ...]
    specs: Mapping[int, PartitionSpec]

    @cached_property
    def contract(self) -> MetricsContract:
        """What may be published of files: a column's type is that of the newest schema that has it."""
        return MetricsContract(sorted(self.schemas, key=lambda schema: schema.schema_id))


def definitions_of(metadata: TableMetadata) -> Definitions:
    """The definitions of a table's metadata."""
    specs = {spec.spec_id: spec for spec in metadata.partition_specs}
    return Definitions(metadata.table_uuid, metadata.location, metadata.schemas, specs)


def manifest_artifact(
    manifest: ManifestRow, entries: Entries, known: Definitions, encoded: Encoded | None = None
) -> Artifact:
    """The manifest's file. encoded: files of other manifests of the table, which learns those of this one."""
    spec = known.specs[manifest.spec_id]
    schema, type_ = writable_partition_type(spec, known.schemas)
    version, content = manifest.format_version, ManifestContent(manifest.content)
    encode = file_encoder(version, content, type_)

    def file_of(row: AnyFile) -> bytes:
        found = None if encoded is None else encoded.get((version, row.file_id))
        if found is None:
            found = encode(plain_file(row, type_, known.contract))
            if encoded is not None:
                encoded[version, row.file_id] = found
        return found

    data = write_manifest(
        format_version=version,
        content=content,
        schema=schema,
        spec=spec,
        entries=(plain_entry(status, file, manifest.added_snapshot_id, file_of(file)) for status, file in entries),
    )
    suffix = "m0-data" if manifest.content == ManifestContent.DATA else "m1-deletes"
    name = f"{manifest.added_snapshot_id}-{{}}-{suffix}.avro"
    facts = manifest_facts(manifest, entries, known)
    return _artifact(MANIFEST, manifest.manifest_id, name, data, known, facts=facts)


def manifest_facts(manifest: ManifestRow, entries: Entries, known: Definitions) -> dict[str, Any]:
    """What manifest lists repeat of a manifest: partition ranges, files and rows by status, its first row id.

    Also the number of the metrics' contract that it keeps.
    """
    _, type_ = writable_partition_type(known.specs[manifest.spec_id], known.schemas)
    by_status = [[file for status, file in entries if status == wanted] for wanted in _STATUSES]
    partitions = (partition(file, type_) for _, file in entries)
    return {
        "files": [len(group) for group in by_status],
        "rows": [sum(file.record_count for file in group) for group in by_status],
        "partitions": [
            _range_json(field.type, summary)
            for field, summary in zip(type_.fields, summarise_partitions(type_, partitions) or (), strict=False)
        ],
        "first_row_id": _first_row_id(manifest, entries),
        "contract": CONTRACT,
    }


def _first_row_id(manifest: ManifestRow, entries: Entries) -> int | None:
    """What the list must state of a manifest of format version 3: without one, Java ignores its files' row ids."""
    if manifest.format_version < ROW_LINEAGE_VERSION or manifest.content != ManifestContent.DATA:
        return None
    return min((file.first_row_id for _, file in entries if file.first_row_id is not None), default=0)


def _line(manifest: ManifestRow) -> ManifestFile:
    """The line of a written manifest in manifest lists."""
    assert manifest.path is not None
    assert manifest.length is not None
    assert manifest.facts is not None
    files, rows = manifest.facts["files"], manifest.facts["rows"]
    return ManifestFile(
        manifest_path=manifest.path,
        manifest_length=manifest.length,
        partition_spec_id=manifest.spec_id,
        content=ManifestContent(manifest.content),
        sequence_number=manifest.sequence_number,
        min_sequence_number=manifest.min_sequence_number,
        added_snapshot_id=manifest.added_snapshot_id,
        added_files_count=files[0],
        existing_files_count=files[1],
        deleted_files_count=files[2],
        added_rows_count=rows[0],
        existing_rows_count=rows[1],
        deleted_rows_count=rows[2],
        partitions=tuple(map(_range, manifest.facts["partitions"])),
        first_row_id=manifest.facts.get("first_row_id"),
    )


def manifest_list_artifact(
    snapshot: SnapshotRow, manifests: Sequence[ManifestRow], known: Definitions, lines: Lines | None = None
) -> Artifact:
    """The snapshot's manifest list, in the format that its table had: an upgrade leaves what was written as it is.

    lines: those of other lists of the table, which learns those of this one.
    """
    made = {} if lines is None else lines
    made |= {each.manifest_id: _line(each) for each in manifests if each.manifest_id not in made}
    data = write_manifest_list(
        format_version=_format_version(snapshot, manifests),
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number,
        manifests=[made[each.manifest_id] for each in manifests],
        first_row_id=snapshot.first_row_id,
    )
    return _artifact(MANIFEST_LIST, snapshot.snapshot_id, f"snap-{snapshot.snapshot_id}-{{}}.avro", data, known)


def _format_version(snapshot: SnapshotRow, manifests: Iterable[ManifestRow]) -> int:
    """The format version of the table when the snapshot was made."""
    if snapshot.first_row_id is not None:
        return ROW_LINEAGE_VERSION
    numbered = snapshot.sequence_number or any(manifest.format_version > 1 for manifest in manifests)
    return SEQUENCE_NUMBER_VERSION if numbered else 1


def metadata_artifact(metadata: TableMetadata, version: int) -> Artifact:
    """The metadata.json of a version."""
    data = metadata.encoded()
    known = definitions_of(metadata)
    name = f"{version:05d}-{{}}.metadata.json"
    return _artifact(METADATA, version, name, data, known, timestamp_ms=metadata.last_updated_ms)


def _artifact(kind: str, object_id: int, name: str, data: bytes, known: Definitions, **more: Any) -> Artifact:
    digest = sha256(data)
    unique = uuid5(UUID(known.table_uuid), digest.hexdigest())
    path = f"{known.location}/metadata/{name.format(unique)}"
    return Artifact(kind, object_id, path, data, digest.digest(), **more)


def _range_json(kind: IcebergType, summary: FieldSummary) -> list[Any]:
    """The summary of a partition field, its bounds as hex.

    Beside NaN the upper bound is infinity, and so is the lower one where there is nothing else: to Spark and DuckDB
    NaN is greater than all numbers, and Java skips manifests by their bounds alone.
    """
    bounds: tuple[bytes | None, bytes | None] = (summary.lower_bound, summary.upper_bound)
    if summary.contains_nan and isinstance(kind, PrimitiveType):
        infinity = to_bytes(kind, math.inf)
        bounds = (summary.lower_bound or infinity, infinity)
    return [summary.contains_null, summary.contains_nan, *(None if b is None else b.hex() for b in bounds)]


def _range(values: Sequence[Any]) -> FieldSummary:
    null, nan, lower, upper = values
    return FieldSummary(null, nan, _unhexed(lower), _unhexed(upper))


def _unhexed(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
