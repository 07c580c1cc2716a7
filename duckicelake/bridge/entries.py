"""PURE. Files of manifests: Iceberg's DataFile, and the side-table row that keeps every fact of it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from duckicelake.bridge.contract import MetricsContract, counted
from duckicelake.iceberg.manifest import DataFile, EntryStatus, FileContent, ManifestEntry, PlainEntry, PlainFile
from duckicelake.iceberg.partition import PartitionSpec, partition_type
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, PrimitiveType, StructType
from duckicelake.iceberg.values import from_json, to_json
from duckicelake.lake.additions import NewFile
from duckicelake.lake.packed import Packed
from duckicelake.lake.state import FileRow

_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
_PLAIN = ("sort_order_id", "referenced_data_file", "content_offset", "content_size_in_bytes")
_LISTS = ("split_offsets", "equality_ids")
_counts_of, _bounds_of, _plain_of, _lists_of = (attrgetter(*names) for names in (_COUNTS, _BOUNDS, _PLAIN, _LISTS))
_NO_PARTITION: list[Any] = []
_UNKNOWN = PrimitiveType.parse("unknown")
"""The type of a partition whose source column no schema has any more: readers see null (table spec, "Partitioning")."""


@dataclass(frozen=True, slots=True)
class UploadedFile(DataFile):
    """A file of a client's manifest, of which there may be very many: `metrics` are what `metrics_json` makes of it.

    `highest_field` is the highest id of those fields that the metrics are of.
    """

    metrics: Packed = field(default_factory=lambda: Packed({}))
    highest_field: int = 0


def packed(entry: ManifestEntry) -> ManifestEntry:
    """The entry with its file as an UploadedFile, without the values that are packed."""
    file = entry.data_file
    small = UploadedFile(
        content=file.content,
        file_path=file.file_path,
        file_format=file.file_format,
        partition=file.partition,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        first_row_id=file.first_row_id,
        content_offset=file.content_offset,
        metrics=Packed(metrics_json(file)),
        highest_field=max((*(file.value_counts or ()), *(file.lower_bounds or ())), default=0),
    )
    return ManifestEntry(entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, small)


def metrics_of(file: DataFile) -> Mapping[str, Any]:
    """The same as `metrics_json`, packed where the file is."""
    return file.metrics if isinstance(file, UploadedFile) else metrics_json(file)


def metrics_json(file: DataFile) -> dict[str, Any]:
    """Everything of a DataFile that has no column of its own; bytes as hex, what is absent left out."""
    found: dict[str, Any] = {}
    for name, counts in zip(_COUNTS, _counts_of(file), strict=True):
        if counts:
            found[name] = {str(key): value for key, value in counts.items()}
    for name, bounds in zip(_BOUNDS, _bounds_of(file), strict=True):
        if bounds:
            found[name] = {str(key): bytes(value).hex() for key, value in bounds.items()}
    plain = zip(_PLAIN, _plain_of(file), strict=True)
    found |= {name: value for name, value in plain if value is not None}
    for name, values in zip(_LISTS, _lists_of(file), strict=True):
        if values is not None:
            found[name] = list(values)
    if file.key_metadata is not None:
        found["key_metadata"] = file.key_metadata.hex()
    return found


def kept_metrics(row: FileRow | NewFile) -> Mapping[str, Any]:
    """What `metrics_json` made of the row's file, parsed once."""
    return row.metrics.unpacked() if isinstance(row.metrics, Packed) else row.metrics


def column_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What `metrics_json` says of columns, as a DataFile has it."""
    counts: dict[str, Any] = {name: _unkeyed(metrics.get(name)) for name in _COUNTS}
    return counts | {name: _unhexed(metrics.get(name)) for name in _BOUNDS}


def partition_json(values: Sequence[Any], type_: StructType) -> list[Any]:
    """The partition as JSON single values, by position; numbers that JSON lacks, NaN and the infinities, as texts.

    Nobody may change it: all files without a partition share one.
    """
    if not type_.fields and not values:
        return _NO_PARTITION
    return [
        str(value) if isinstance(value, float) and not math.isfinite(value) else to_json(field.type, value)
        for field, value in zip(type_.fields, values, strict=True)
    ]


def data_file(row: FileRow | NewFile, type_: StructType) -> DataFile:
    """The DataFile of a row, its bounds beside counts of nulls; `type_` is the partition type of its spec."""
    metrics = counted(row.content, kept_metrics(row))
    return DataFile(
        content=FileContent(row.content),
        file_path=row.path,
        file_format=row.file_format,
        partition=partition(row, type_),
        record_count=row.record_count,
        file_size_in_bytes=row.file_size_in_bytes,
        **column_metrics(metrics),
        key_metadata=bytes.fromhex(metrics["key_metadata"]) if "key_metadata" in metrics else None,
        split_offsets=_tuple(metrics.get("split_offsets")),
        equality_ids=_tuple(metrics.get("equality_ids")),
        sort_order_id=metrics.get("sort_order_id"),
        first_row_id=row.first_row_id,
        referenced_data_file=metrics.get("referenced_data_file"),
        content_offset=metrics.get("content_offset"),
        content_size_in_bytes=metrics.get("content_size_in_bytes"),
    )


def partition(row: FileRow | NewFile, type_: StructType) -> tuple[Any, ...]:
    """The partition values of a row."""
    if not row.partition and not type_.fields:
        return ()
    pairs = zip(type_.fields, row.partition, strict=True)
    return tuple([_partition_value(field.type, value) for field, value in pairs])


def _partition_value(type_: IcebergType, value: Any) -> Any:
    if type_ == _UNKNOWN:
        return None
    is_number = isinstance(type_, PrimitiveType) and type_.name in {"float", "double"}
    return float(value) if is_number and isinstance(value, str) else from_json(type_, value)


def plain_entry(status: int, row: FileRow | NewFile, added_snapshot_id: int, encoded: bytes) -> PlainEntry:
    """The manifest entry of a row; a deleted file's entry names the manifest's snapshot, which deleted it."""
    return PlainEntry(
        status=status,
        snapshot_id=added_snapshot_id if status == EntryStatus.DELETED else row.added_snapshot_id,
        sequence_number=row.sequence_number,
        file_sequence_number=row.file_sequence_number,
        data_file=encoded,
    )


def plain_file(row: FileRow | NewFile, type_: StructType, contract: MetricsContract) -> PlainFile:
    """The DataFile of a row as manifests have it: with those of its metrics that the contract lets be published."""
    metrics = contract.published(row.content, kept_metrics(row))
    get = metrics.get
    key = get("key_metadata")
    return PlainFile(  # by position: for very many, names take twice as long
        row.content,
        row.path,
        row.file_format,
        partition(row, type_),
        row.record_count,
        row.file_size_in_bytes,
        get("column_sizes"),
        get("value_counts"),
        get("null_value_counts"),
        get("nan_value_counts"),
        get("lower_bounds"),
        get("upper_bounds"),
        None if key is None else bytes.fromhex(key),
        get("split_offsets"),
        get("equality_ids"),
        get("sort_order_id"),
        row.first_row_id,
        get("referenced_data_file"),
        get("content_offset"),
        get("content_size_in_bytes"),
    )


def writable_partition_type(spec: PartitionSpec, schemas: Iterable[Schema]) -> tuple[Schema, StructType]:
    """The newest schema that still has all sources of the spec, with the partition type under it."""
    newest_first = sorted(schemas, key=lambda schema: schema.schema_id, reverse=True)
    sources = {field.source_id for field in spec.fields}
    schema = next((s for s in newest_first if sources <= s.fields_by_id().keys()), newest_first[0])
    return schema, partition_type(spec, schema)


def _unkeyed(values: Mapping[str, int] | None) -> dict[int, int] | None:
    return None if values is None else {int(key): value for key, value in values.items()}


def _unhexed(values: Mapping[str, str] | None) -> dict[int, bytes] | None:
    return None if values is None else {int(key): bytes.fromhex(value) for key, value in values.items()}


def _tuple(values: list[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)
