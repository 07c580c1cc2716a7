"""PURE. Manifests, manifest lists and metadata.json as names and bytes, and the renewal of older manifests."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, TypeAlias
from uuid import UUID, uuid5

from duckicelake.bridge.data_files import (
    CONTRACT_VERSION,
    MetricsContract,
    find_writable_partition_type,
    parse_kept_metrics,
    parse_partition,
    to_plain_entry,
    to_plain_file,
)
from duckicelake.iceberg.manifest.entry import EntryStatus, FieldSummary, FileContent, ManifestContent, ManifestFile
from duckicelake.iceberg.manifest.writer import (
    make_file_encoder,
    summarize_partitions,
    write_manifest,
    write_manifest_list,
)
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SEQUENCE_NUMBER_VERSION, TableMetadata
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, PrimitiveType, StructType
from duckicelake.iceberg.values import to_bytes
from duckicelake.lake.changes import WrittenFile
from duckicelake.lake.model import KnownColumns
from duckicelake.lake.state import FileRow, ManifestRow, SnapshotRow

MANIFEST, MANIFEST_LIST, METADATA = "manifest", "manifest-list", "metadata"
Entries: TypeAlias = Sequence[tuple[int, FileRow]]
"""The files that a manifest lists, in its order, each after the status of its entry."""
Encoded: TypeAlias = dict[tuple[int, int], bytes]
"""Files as manifests have them, by the manifests' format version and the file's id."""
Lines: TypeAlias = dict[int, ManifestFile]
"""Manifests as lists have them, by their ids."""
_STATUSES = (EntryStatus.ADDED, EntryStatus.EXISTING, EntryStatus.DELETED)
_BOUND_NAMES: Final = ("lower_bounds", "upper_bounds")
_NANS: Final = "nan_value_counts"
_REPEATED: Final = ("files", "rows", "partitions", "first_row_id")
_NOTHING: Final = KnownColumns(is_mapped_by_name=False, columns_without_nan=frozenset())


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file to write, with its row: `row.object_id` is the manifest id, snapshot id or metadata version."""

    row: WrittenFile
    data: bytes


@dataclass(frozen=True)
class ManifestDefinitions:
    """What a table's manifests are encoded with."""

    table_uuid: str
    location: str
    schemas: tuple[Schema, ...]
    specs: Mapping[int, PartitionSpec]
    _types: dict[int, tuple[Schema, StructType]] = field(default_factory=dict, compare=False)

    def find_type(self, spec_id: int) -> tuple[Schema, StructType]:
        """Find the newest schema that has all sources of a spec, and the partition type under it."""
        if spec_id not in self._types:
            self._types[spec_id] = find_writable_partition_type(self.specs[spec_id], self.schemas)
        return self._types[spec_id]

    @cached_property
    def contract(self) -> MetricsContract:
        """What may be published of files: a column's type is that of the newest schema that has it."""
        return MetricsContract(sorted(self.schemas, key=lambda schema: schema.schema_id))


def get_definitions(metadata: TableMetadata) -> ManifestDefinitions:
    """Return the definitions of a table's metadata."""
    specs = {spec.spec_id: spec for spec in metadata.partition_specs}
    return ManifestDefinitions(metadata.table_uuid, metadata.location, metadata.schemas, specs)


def encode_manifest(
    manifest: ManifestRow, entries: Entries, known: ManifestDefinitions, encoded: Encoded | None = None
) -> Artifact:
    """Return the manifest's file. encoded: files of other manifests of the table, which learns those of this one."""
    spec = known.specs[manifest.spec_id]
    schema, type_ = known.find_type(manifest.spec_id)
    version, content = manifest.format_version, ManifestContent(manifest.content)
    encode = make_file_encoder(version, content, type_)

    def file_of(row: FileRow) -> bytes:
        found = None if encoded is None else encoded.get((version, row.file_id))
        if found is None:
            found = encode(to_plain_file(row, type_, known.contract))
            if encoded is not None:
                encoded[version, row.file_id] = found
        return found

    data = write_manifest(
        format_version=version,
        content=content,
        schema=schema,
        spec=spec,
        entries=(to_plain_entry(status, file, manifest.added_snapshot_id, file_of(file)) for status, file in entries),
    )
    suffix = "m0-data" if manifest.content == ManifestContent.DATA else "m1-deletes"
    name = f"{manifest.added_snapshot_id}-{{}}-{suffix}.avro"
    facts = collect_manifest_facts(manifest, entries, known)
    return _make_artifact(MANIFEST, manifest.manifest_id, name, data, known, facts=facts)


def collect_manifest_facts(manifest: ManifestRow, entries: Entries, known: ManifestDefinitions) -> dict[str, Any]:
    """Return what manifest lists repeat of a manifest: partition ranges, files and rows by status, its first row id.

    Also the number of the metrics' contract that it keeps.
    """
    _, type_ = known.find_type(manifest.spec_id)
    by_status = [[file for status, file in entries if status == wanted] for wanted in _STATUSES]
    partitions = (parse_partition(file, type_) for _, file in entries)
    return {
        "files": [len(group) for group in by_status],
        "rows": [sum(file.record_count for file in group) for group in by_status],
        "partitions": [
            _serialize_range(field.type, summary)
            for field, summary in zip(type_.fields, summarize_partitions(type_, partitions) or (), strict=False)
        ],
        "first_row_id": _find_first_row_id(manifest, entries),
        "contract": CONTRACT_VERSION,
    }


def _find_first_row_id(manifest: ManifestRow, entries: Entries) -> int | None:
    """Return what the list must state of a manifest of format version 3.

    Without one, Java ignores its files' row ids.
    """
    if manifest.format_version < ROW_LINEAGE_VERSION or manifest.content != ManifestContent.DATA:
        return None
    return min((file.first_row_id for _, file in entries if file.first_row_id is not None), default=0)


def _build_line(manifest: ManifestRow) -> ManifestFile:
    """Return the line of a written manifest in manifest lists."""
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
        partitions=tuple(map(_parse_range, manifest.facts["partitions"])),
        first_row_id=manifest.facts.get("first_row_id"),
    )


def encode_manifest_list(
    snapshot: SnapshotRow, manifests: Sequence[ManifestRow], known: ManifestDefinitions, lines: Lines | None = None
) -> Artifact:
    """Return the snapshot's manifest list, in the format that its table had.

    An upgrade leaves what was written as it is.

    lines: those of other lists of the table, which learns those of this one.
    """
    made = {} if lines is None else lines
    made |= {manifest.manifest_id: _build_line(manifest) for manifest in manifests if manifest.manifest_id not in made}
    data = write_manifest_list(
        format_version=_find_format_version(snapshot, manifests),
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number,
        manifests=[made[manifest.manifest_id] for manifest in manifests],
        first_row_id=snapshot.first_row_id,
    )
    return _make_artifact(MANIFEST_LIST, snapshot.snapshot_id, f"snap-{snapshot.snapshot_id}-{{}}.avro", data, known)


def _find_format_version(snapshot: SnapshotRow, manifests: Iterable[ManifestRow]) -> int:
    """Return the format version of the table when the snapshot was made."""
    if snapshot.first_row_id is not None:
        return ROW_LINEAGE_VERSION
    numbered = snapshot.sequence_number or any(manifest.format_version > 1 for manifest in manifests)
    return SEQUENCE_NUMBER_VERSION if numbered else 1


def encode_metadata(metadata: TableMetadata, version: int) -> Artifact:
    """Return the metadata.json of a version."""
    data = metadata.encode()
    known = get_definitions(metadata)
    name = f"{version:05d}-{{}}.metadata.json"
    return _make_artifact(METADATA, version, name, data, known, timestamp_ms=metadata.last_updated_ms)


def _make_artifact(
    kind: str,
    object_id: int,
    name: str,
    data: bytes,
    known: ManifestDefinitions,
    timestamp_ms: int = 0,
    facts: Mapping[str, Any] | None = None,
) -> Artifact:
    digest = sha256(data)
    unique = uuid5(UUID(known.table_uuid), digest.hexdigest())
    path = f"{known.location}/metadata/{name.format(unique)}"
    return Artifact(WrittenFile(kind, object_id, path, len(data), digest.digest(), timestamp_ms, facts), data)


def _serialize_range(kind: IcebergType, summary: FieldSummary) -> list[Any]:
    """Return the summary of a partition field, its bounds as hex.

    Beside NaN the upper bound is infinity, and so is the lower one where there is nothing else: to Spark and DuckDB
    NaN is greater than all numbers, and Java skips manifests by their bounds alone.
    """
    bounds: tuple[bytes | None, bytes | None] = (summary.lower_bound, summary.upper_bound)
    if summary.contains_nan and isinstance(kind, PrimitiveType):
        infinity = to_bytes(kind, math.inf)
        bounds = (summary.lower_bound or infinity, infinity)
    return [summary.contains_null, summary.contains_nan, *(None if b is None else b.hex() for b in bounds)]


def _parse_range(values: Sequence[Any]) -> FieldSummary:
    null, nan, lower, upper = values
    return FieldSummary(null, nan, _parse_hex(lower), _parse_hex(upper))


def _parse_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@dataclass(frozen=True, slots=True)
class ManifestRenewal:
    """What becomes of manifests of an older contract. metrics: of files of which more is known, by their ids."""

    kept: tuple[int, ...]
    forgotten: tuple[int, ...]
    metrics: Mapping[int, Mapping[str, Any]]


def sort_manifests(
    manifests: Mapping[int, ManifestRow],
    entries: Mapping[int, Entries],
    definitions: ManifestDefinitions,
    known: Mapping[int, KnownColumns],
) -> ManifestRenewal:
    """Sort manifests into those that keep the contract as they are, and those to be written anew."""
    completion = _Completion(definitions, known)
    forgotten = [
        manifest_id
        for manifest_id, manifest in manifests.items()
        if completion.is_stale(entries.get(manifest_id, ())) or _has_other_facts(manifest, entries, definitions)
    ]
    kept = manifests.keys() - set(forgotten)
    return ManifestRenewal(tuple(sorted(kept)), tuple(forgotten), completion.completed)


def _has_other_facts(manifest: ManifestRow, entries: Mapping[int, Entries], definitions: ManifestDefinitions) -> bool:
    """Return whether manifest lists would now say something else of the manifest."""
    said = manifest.facts or {}
    found = collect_manifest_facts(manifest, entries.get(manifest.manifest_id, ()), definitions)
    return any(said.get(name) != found[name] for name in _REPEATED)


class _Completion:
    """Metrics with what DuckLake knows of their files besides, and without what was misread of its statistics."""

    def __init__(self, definitions: ManifestDefinitions, known: Mapping[int, KnownColumns]) -> None:
        self._contract = definitions.contract
        self._known = known
        self._floats = _find_leaves(definitions, ("float", "double"))
        self._bytes = _find_leaves(definitions, ("binary", "fixed"))
        self.completed: dict[int, Mapping[str, Any]] = {}

    def is_stale(self, entries: Entries) -> bool:
        """Return whether a manifest of these files, written as their metrics were, promises too much or lacks a map."""
        stale = False
        for _, file in entries:
            before = parse_kept_metrics(file)
            known = self._known.get(file.ducklake_id or -1, _NOTHING) if file.content == FileContent.DATA else _NOTHING
            after = self._complete(before, known)
            if after != before:
                self.completed[file.file_id] = after
            stale = stale or _has_promises(before) != _has_promises(self._contract.publish_bounds(file.content, after))
        return stale

    def _complete(self, metrics: Mapping[str, Any], known: KnownColumns) -> Mapping[str, Any]:
        counts = metrics.get(_NANS) or {}
        without = {key: 0 for key, field_id in self._floats.items() if field_id in known.columns_without_nan} | counts
        found = {**metrics, _NANS: without} if without else dict(metrics)
        for name in _BOUND_NAMES if known.is_mapped_by_name else ():
            bounds = metrics.get(name) or {}
            if bounds.keys() & self._bytes.keys():
                found[name] = {key: bound for key, bound in bounds.items() if key not in self._bytes}
        return found


def _has_promises(metrics: Mapping[str, Any]) -> tuple[object, ...]:
    return "column_sizes" in metrics, *(metrics.get(name) or {} for name in _BOUND_NAMES)


def _find_leaves(definitions: ManifestDefinitions, names: Iterable[str]) -> dict[str, int]:
    """Return the ids of columns of the types, by how metrics write them."""
    leaves: dict[int, PrimitiveType] = {}
    for schema in definitions.schemas:
        leaves |= schema.leaves()
    return {str(field_id): field_id for field_id, kind in leaves.items() if kind.name in set(names)}
