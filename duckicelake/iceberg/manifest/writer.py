"""Write manifests and manifest lists, with their partition summaries; the same values give the same bytes."""

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import orjson

from duckicelake.errors import InvalidRequestError, format_count
from duckicelake.iceberg.avro import Encode, compile_encoder, write_container
from duckicelake.iceberg.manifest.entry import (
    UNASSIGNED,
    DataFile,
    EntryStatus,
    FieldSummary,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    PartitionValue,
    PlainEntry,
    PlainFile,
)
from duckicelake.iceberg.manifest.schema import PARTITION_RECORD, build_manifest_list_schema, build_manifest_schema
from duckicelake.iceberg.model import Json
from duckicelake.iceberg.partition import PartitionSpec, build_partition_type
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType, StructType
from duckicelake.iceberg.values import to_bytes

_LRU_ENTRIES: Final = 4096
_MISFIT: Final = (TypeError, AttributeError, ValueError, OverflowError, struct.error, InvalidRequestError)


def summarize_partitions(
    partition_type: StructType, partitions: Iterable[tuple[PartitionValue, ...]]
) -> tuple[FieldSummary, ...] | None:
    """Summarize each field of the partition type. NaN is no bound; -0.0 is below 0.0.

    Bounds on which engines don't agree are None, so that engines read the manifest: Java orders uuids as two signed
    longs, PyIceberg and the spec as unsigned bytes.

    InvalidRequestError: a value isn't of its field's type.
    """
    rows = tuple(partitions)
    kinds = [field.type for field in partition_type.fields if isinstance(field.type, PrimitiveType)]
    for row in rows:
        if len(row) != len(kinds):
            raise InvalidRequestError(
                f"partition {row} has {format_count(len(row), 'value')}, not one for each of {len(kinds)} of its spec"
            )
    columns = [[row[position] for row in rows] for position in range(len(kinds))]
    if not all(_have_same_order(column) for column in columns):
        return None
    return tuple(_summarize(kind, column) for kind, column in zip(kinds, columns, strict=True))


def _have_same_order(values: list[PartitionValue]) -> bool:
    uuids = [value for value in values if isinstance(value, UUID)]
    return not uuids or (min(uuids), max(uuids)) == (min(uuids, key=_to_signed), max(uuids, key=_to_signed))


def _to_signed(value: UUID) -> tuple[int, ...]:
    return struct.unpack(">qq", value.bytes)


def _summarize(kind: PrimitiveType, values: list[PartitionValue]) -> FieldSummary:
    known = [value for value in values if value is not None]
    ordered = [value for value in known if not _is_nan(value)]
    try:
        lower, upper = (min(ordered, key=_get_sort_key), max(ordered, key=_get_sort_key)) if ordered else (None, None)
    except TypeError as error:
        raise InvalidRequestError(f"partition values of type {kind} are of several types") from error
    return FieldSummary(
        contains_null=len(known) < len(values),
        contains_nan=len(ordered) < len(known),
        lower_bound=None if lower is None else to_bytes(kind, lower),
        upper_bound=None if upper is None else to_bytes(kind, upper),
    )


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _get_sort_key(value: Any) -> tuple[Any, float]:
    return value, math.copysign(1, value) if isinstance(value, float) else 0


def write_manifest(
    *,
    format_version: int,
    content: ManifestContent,
    schema: Schema,
    spec: PartitionSpec,
    entries: Iterable[ManifestEntry | PlainEntry],
) -> bytes:
    """Encode a manifest file. Sequence numbers of None stay None, for added files only, which inherit them.

    InvalidRequestError: an entry doesn't belong in such a manifest, or doesn't fit its schema.
    """
    avro, encode = _get_entry_encoder(format_version, build_partition_type(spec, schema))
    metadata = {
        "schema": schema.encoded.decode(),
        "schema-id": str(schema.schema_id),
        "partition-spec": orjson.dumps(spec.to_json()["fields"]).decode(),
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(format_version),
    }
    if format_version > 1:
        metadata["content"] = "data" if content is ManifestContent.DATA else "deletes"
    records = (_encode_entry(encode, format_version, content, entry) for entry in entries)
    return write_container(avro, metadata, records)


@lru_cache(maxsize=256)
def _get_entry_encoder(format_version: int, partition: StructType) -> tuple[Json, Encode]:
    """Return the Avro schema of a manifest's entries, and its encoder."""
    avro = build_manifest_schema(format_version, partition)
    return avro, compile_encoder(avro, {PARTITION_RECORD})


def write_manifest_list(
    *,
    format_version: int,
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int,
    manifests: Iterable[ManifestFile],
    first_row_id: int | None = None,
) -> bytes:
    """Encode a snapshot's manifest list. Its own manifests with UNASSIGNED numbers get its sequence number.

    In version 3, data manifests without a first_row_id get one, counted from first_row_id (`assign_row_ids`).

    InvalidRequestError: the version can't hold a manifest.
    """
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
    }
    if format_version > 1:
        metadata["sequence-number"] = str(sequence_number)
    lines = [_assign_sequence_number(manifest, snapshot_id, sequence_number) for manifest in manifests]
    if format_version > 2:
        metadata["first-row-id"] = "null" if first_row_id is None else str(first_row_id)
        lines = lines if first_row_id is None else list(assign_row_ids(lines, first_row_id)[0])
    metadata["format-version"] = str(format_version)
    records = [_encode_line(format_version, line) for line in lines]
    return write_container(build_manifest_list_schema(format_version), metadata, records)


@lru_cache(maxsize=3)
def _get_list_encoder(format_version: int) -> Encode:
    return compile_encoder(build_manifest_list_schema(format_version))


def assign_row_ids(manifests: Sequence[ManifestFile], first_row_id: int) -> tuple[tuple[ManifestFile, ...], int]:
    """Give data manifests without a first_row_id one, in order (spec, "Row Lineage"). Also returns the next row id."""
    assigned: list[ManifestFile] = []
    for manifest in manifests:
        if manifest.content is ManifestContent.DATA and manifest.first_row_id is None:
            assigned.append(replace(manifest, first_row_id=first_row_id))
            first_row_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        else:
            assigned.append(manifest)
    return tuple(assigned), first_row_id


def make_file_encoder(
    format_version: int, content: ManifestContent, partition: StructType
) -> Callable[[PlainFile], bytes]:
    """Make an encoder of files for manifests of this kind, whatever their status. Raises as `write_manifest`."""
    encode = _get_data_file_encoder(format_version, partition)

    def encode_file(file: PlainFile) -> bytes:
        _check_content(format_version, content, file)
        try:
            return encode(file)
        except _MISFIT as error:
            raise InvalidRequestError(f"{file.file_path} doesn't fit the manifest's schema: {error}") from error

    return encode_file


@lru_cache(maxsize=256)
def _get_data_file_encoder(format_version: int, partition: StructType) -> Encode:
    avro, _ = _get_entry_encoder(format_version, partition)
    kind = next(field["type"] for field in avro["fields"] if field["name"] == "data_file")
    return compile_encoder(kind, {PARTITION_RECORD})


def _encode_entry(
    encode: Encode, format_version: int, content: ManifestContent, entry: ManifestEntry | PlainEntry
) -> bytes:
    if isinstance(entry, PlainEntry):
        status, snapshot_id, sequence_number, file_sequence_number, data_file = entry
        return _encode_opening(encode, status, snapshot_id, sequence_number, file_sequence_number) + data_file
    file = entry.data_file
    _check_content(format_version, content, file)
    unnumbered = entry.sequence_number is None or entry.file_sequence_number is None
    if format_version > 1 and unnumbered and entry.status is not EntryStatus.ADDED:
        raise InvalidRequestError(f"{file.file_path} is {entry.status.name} and must have both its sequence numbers")
    try:
        return encode(entry)
    except _MISFIT as error:
        raise InvalidRequestError(f"{file.file_path} doesn't fit the manifest's schema: {error}") from error


@lru_cache(_LRU_ENTRIES)
def _encode_opening(
    encode: Encode, status: int, snapshot_id: int | None, sequence_number: int | None, file_sequence_number: int | None
) -> bytes:
    """Encode an entry up to its file, its last field. Most entries of a manifest begin with the same bytes."""
    return encode(PlainEntry(status, snapshot_id, sequence_number, file_sequence_number, b""))


def _check_content(format_version: int, content: ManifestContent, file: DataFile | PlainFile) -> None:
    if (content is ManifestContent.DATA) != (file.content == FileContent.DATA):
        raise InvalidRequestError(
            f"{file.file_path} is a file of {FileContent(file.content).name} in a manifest of {content.name}"
        )
    if format_version == 1 and content is ManifestContent.DELETES:
        raise InvalidRequestError(f"{file.file_path}: format version 1 has no delete files")


@lru_cache(_LRU_ENTRIES)
def _encode_line(format_version: int, line: ManifestFile) -> bytes:
    """Encode a line of a list. Cached, since a list repeats most lines of its parent's."""
    if format_version == 1 and line.content is not ManifestContent.DATA:
        raise InvalidRequestError(f"{line.manifest_path}: format version 1 has no delete manifests")
    try:
        return _get_list_encoder(format_version)(line)
    except _MISFIT as error:
        raise InvalidRequestError(f"{line.manifest_path} doesn't fit the manifest list's schema: {error}") from error


def _assign_sequence_number(manifest: ManifestFile, snapshot_id: int, sequence_number: int) -> ManifestFile:
    if UNASSIGNED not in (manifest.sequence_number, manifest.min_sequence_number):
        return manifest
    if manifest.added_snapshot_id != snapshot_id:
        raise InvalidRequestError(
            f"{manifest.manifest_path} of snapshot {manifest.added_snapshot_id} has no sequence number"
        )
    low = manifest.min_sequence_number
    return replace(
        manifest, sequence_number=sequence_number, min_sequence_number=sequence_number if low == UNASSIGNED else low
    )
