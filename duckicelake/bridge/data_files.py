"""PURE. Iceberg's DataFile and its side-table row, and the bounds that manifests may publish (docs/metrics.md)."""

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, TypeAlias

from duckicelake.iceberg.manifest.entry import DataFile, EntryStatus, FileContent, ManifestEntry, PlainEntry, PlainFile
from duckicelake.iceberg.partition import PartitionSpec, build_partition_type
from duckicelake.iceberg.primitives import TypeFamily
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, ListType, MapType, PrimitiveType, StructType, list_children
from duckicelake.iceberg.values import from_json, to_json
from duckicelake.lake.state import FileRow, Packed

CONTRACT_VERSION: Final = 1
"""The number of this contract, which manifests' facts hold. Raise it when the contract gets stricter."""
Bounds: TypeAlias = tuple[str | None, str | None]
"""Lower and upper bound of a column as stored, in hex."""
Rule: TypeAlias = Callable[[str | None, str | None, int | None], Bounds]
"""From a column's bounds and its count of NaN to those bounds that hold for all clients."""
_NONE: Final[Mapping[str, Any]] = {}
_BOUND_NAMES: Final = ("lower_bounds", "upper_bounds")
_NO_BOUNDS: Final = (None, None)
_FLOAT_DIGITS: Final = 8
_LOWEST_ZERO: Final = {8: "00000080", 16: "0000000000000080"}
_HIGHEST_ZERO: Final = {8: "00000000", 16: "0000000000000000"}
_ZEROS: Final = frozenset((*_LOWEST_ZERO.values(), *_HIGHEST_ZERO.values()))
_EXPONENT_FULL: Final = frozenset(("7f", "ff"))
"""How NaN, the infinities and few numbers end: to look at all floats closer takes three times as long."""
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
_PLAIN = ("sort_order_id", "referenced_data_file", "content_offset", "content_size_in_bytes")
_LISTS = ("split_offsets", "equality_ids")
_counts_of, _bounds_of, _plain_of, _lists_of = (attrgetter(*names) for names in (_COUNTS, _BOUNDS, _PLAIN, _LISTS))
NO_PARTITION: list[Any] = []
_UNKNOWN = PrimitiveType.parse("unknown")
"""The type of a partition whose source column no schema has any more: readers see null (table spec, "Partitioning")."""


def complete_counts(content: int, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metrics with `column_sizes`, be they empty, and bounds only beside counts of nulls.

    Position deletes keep their bounds: their columns hold no nulls.
    """
    if "column_sizes" not in metrics:
        metrics = {"column_sizes": _NONE, **metrics}
    nulls = metrics.get("null_value_counts") or _NONE
    if content == FileContent.POSITION_DELETES:
        return metrics
    uncounted = [name for name in _BOUND_NAMES if not (metrics.get(name) or _NONE).keys() <= nulls.keys()]
    kept = {name: {key: bound for key, bound in metrics[name].items() if key in nulls} for name in uncounted}
    return {**metrics, **kept} if kept else metrics


class MetricsContract:
    """Decides which bounds are published of files of a table with these schemas, the current one last."""

    def __init__(self, schemas: Iterable[Schema]) -> None:
        rules: dict[str, Rule] = {}
        for schema in schemas:
            rules |= schema.compute_once(_build_schema_rules)
        self._rules = tuple(rules.items())

    def publish_bounds(self, content: int, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the metrics as a manifest has them: `metrics` itself where nothing has to change."""
        metrics = complete_counts(content, metrics)
        if content == FileContent.POSITION_DELETES or not self._rules:
            return metrics
        lows, highs = (metrics.get(name) or _NONE for name in _BOUND_NAMES)
        changes = self._changes(lows, highs, metrics.get("nan_value_counts") or _NONE)
        if not changes:
            return metrics
        kept = (
            {key: bound for key in bounds if (bound := changes[key][at] if key in changes else bounds[key]) is not None}
            for at, bounds in enumerate((lows, highs))
        )
        return {**metrics, **dict(zip(_BOUND_NAMES, kept, strict=True))}

    def _changes(self, lows: Mapping[str, str], highs: Mapping[str, str], nans: Mapping[str, int]) -> dict[str, Bounds]:
        """Return the bounds of columns that can't stay as they are; most files have none."""
        changes: dict[str, Bounds] = {}
        for key, rule in self._rules:
            low, high = lows.get(key), highs.get(key)
            if low is None and high is None:
                continue
            bounds = rule(low, high, nans.get(key))
            if bounds != (low, high):
                changes[key] = bounds
        return changes


def _build_schema_rules(schema: Schema) -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for column in schema.fields:
        rules |= _build_rules(column.id, column.type, repeated=False)
    return rules


def _build_rules(field_id: int, kind: IcebergType, *, repeated: bool) -> dict[str, Rule]:
    """Return the rules of the leaves of a field, by id as metrics have it. repeated: the field is in a list or map."""
    if not isinstance(kind, PrimitiveType):
        inside = repeated or isinstance(kind, ListType | MapType)
        found: dict[str, Rule] = {}
        for child in list_children(kind):
            found |= _build_rules(child.id, child.type, repeated=inside)
        return found
    rule = _publish_no_bounds if repeated else _RULES.get(kind.traits.family)
    return {} if rule is None else {str(field_id): rule}


def _publish_no_bounds(_low: str | None, _high: str | None, _nans: int | None) -> Bounds:
    """Return no bounds.

    Of list elements, map keys and map values no client evaluates any, and writers count nulls of empty lists in
    different ways. UUIDs Java orders as two signed longs, all others as unsigned bytes, so that Java skips files by
    what lies between; and Spark can't show bounds of UUIDs in `files` and `entries`.
    """
    return _NO_BOUNDS


def _publish_float_bounds(low: str | None, high: str | None, nans: int | None) -> Bounds:
    """Return bounds only where NaN are counted, and no upper one beside NaN, the greatest value of Spark and DuckDB.

    A zero is both zeros: writers don't say which one they saw, and Java orders -0.0 before 0.0.
    """
    if nans is None or nans < 0:
        return _NO_BOUNDS
    return _choose_zero(_LOWEST_ZERO, low), _choose_zero(_HIGHEST_ZERO, high) if nans == 0 else None


def _choose_zero(zeros: Mapping[int, str], bound: str | None) -> str | None:
    """Return the bound, one of the zeros if it is either; None if it is NaN or no float."""
    if bound is None or len(bound) not in zeros:
        return None
    if bound in _ZEROS:
        return zeros[len(bound)]
    return bound if bound[-2:] not in _EXPONENT_FULL or not _is_nan(bound) else None


def _is_nan(bound: str) -> bool:
    (value,) = struct.unpack("<f" if len(bound) == _FLOAT_DIGITS else "<d", bytes.fromhex(bound))
    return math.isnan(value)


_RULES: Final[Mapping[TypeFamily, Rule]] = {"float": _publish_float_bounds, "uuid": _publish_no_bounds}


@dataclass(frozen=True, slots=True)
class UploadedFile(DataFile):
    """A file of a client's manifest, of which there may be very many: `metrics` are what `metrics_json` makes of it.

    `highest_field` is the highest id of those fields that the metrics are of.
    """

    metrics: Packed = field(default_factory=lambda: Packed({}))
    highest_field: int = 0


def pack_entry(entry: ManifestEntry) -> ManifestEntry:
    """Return the entry with its file as an UploadedFile, without the values that are packed."""
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
        metrics=Packed(serialize_metrics(file)),
        highest_field=max((*(file.value_counts or ()), *(file.lower_bounds or ())), default=0),
    )
    return ManifestEntry(entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, small)


def pack_metrics(file: DataFile) -> Mapping[str, Any]:
    """Return the same as `metrics_json`, packed where the file is."""
    return file.metrics if isinstance(file, UploadedFile) else serialize_metrics(file)


def serialize_metrics(file: DataFile) -> dict[str, Any]:
    """Return everything of a DataFile that has no column of its own; bytes as hex, what is absent left out."""
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


def parse_kept_metrics(row: FileRow) -> Mapping[str, Any]:
    """Return what `metrics_json` made of the row's file, parsed once."""
    return row.metrics.unpack() if isinstance(row.metrics, Packed) else row.metrics


def parse_column_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `metrics_json` says of columns, as a DataFile has it."""
    counts: dict[str, Any] = {name: _parse_keys(metrics.get(name)) for name in _COUNTS}
    return counts | {name: _parse_hex_values(metrics.get(name)) for name in _BOUNDS}


def serialize_partition(values: Sequence[Any], type_: StructType) -> list[Any]:
    """Return the partition as JSON single values, by position.

    Numbers that JSON lacks, NaN and the infinities, as texts.

    Callers must not change it: all files without a partition share one.
    """
    if not type_.fields and not values:
        return NO_PARTITION
    return [
        str(value) if isinstance(value, float) and not math.isfinite(value) else to_json(field.type, value)
        for field, value in zip(type_.fields, values, strict=True)
    ]


def to_data_file(row: FileRow, type_: StructType) -> DataFile:
    """Return the DataFile of a row, its bounds beside counts of nulls; `type_` is the partition type of its spec."""
    metrics = complete_counts(row.content, parse_kept_metrics(row))
    return DataFile(
        content=FileContent(row.content),
        file_path=row.path,
        file_format=row.file_format,
        partition=parse_partition(row, type_),
        record_count=row.record_count,
        file_size_in_bytes=row.file_size_in_bytes,
        **parse_column_metrics(metrics),
        key_metadata=bytes.fromhex(metrics["key_metadata"]) if "key_metadata" in metrics else None,
        split_offsets=_to_tuple(metrics.get("split_offsets")),
        equality_ids=_to_tuple(metrics.get("equality_ids")),
        sort_order_id=metrics.get("sort_order_id"),
        first_row_id=row.first_row_id,
        referenced_data_file=metrics.get("referenced_data_file"),
        content_offset=metrics.get("content_offset"),
        content_size_in_bytes=metrics.get("content_size_in_bytes"),
    )


def parse_partition(row: FileRow, type_: StructType) -> tuple[Any, ...]:
    """Return the partition values of a row."""
    if not row.partition and not type_.fields:
        return ()
    pairs = zip(type_.fields, row.partition, strict=True)
    return tuple([parse_partition_value(field.type, value) for field, value in pairs])


def parse_partition_value(type_: IcebergType, value: Any) -> Any:
    """Return a partition value of its JSON, as `serialize_partition` writes it."""
    if type_ == _UNKNOWN:
        return None
    is_number = isinstance(type_, PrimitiveType) and type_.traits.family == "float"
    return float(value) if is_number and isinstance(value, str) else from_json(type_, value)


def to_plain_entry(status: int, row: FileRow, added_snapshot_id: int, encoded: bytes) -> PlainEntry:
    """Return the manifest entry of a row; a deleted file's entry names the manifest's snapshot, which deleted it."""
    return PlainEntry(
        status=status,
        snapshot_id=added_snapshot_id if status == EntryStatus.DELETED else row.added_snapshot_id,
        sequence_number=row.sequence_number,
        file_sequence_number=row.file_sequence_number,
        data_file=encoded,
    )


def to_plain_file(row: FileRow, type_: StructType, contract: MetricsContract) -> PlainFile:
    """Return the DataFile of a row as manifests have it.

    With those of its metrics that the contract lets be published.
    """
    metrics = contract.publish_bounds(row.content, parse_kept_metrics(row))
    get = metrics.get
    key = get("key_metadata")
    return PlainFile(  # by position: for very many, names take twice as long
        row.content,
        row.path,
        row.file_format,
        parse_partition(row, type_),
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


def find_writable_partition_type(spec: PartitionSpec, schemas: Iterable[Schema]) -> tuple[Schema, StructType]:
    """Return the newest schema that still has all sources of the spec, with the partition type under it."""
    newest_first = sorted(schemas, key=lambda schema: schema.schema_id, reverse=True)
    sources = {field.source_id for field in spec.fields}
    schema = newest_first[0]
    if sources:
        schema = next((s for s in newest_first if sources <= s.map_fields_by_id().keys()), schema)
    return schema, build_partition_type(spec, schema)


def _parse_keys(values: Mapping[str, int] | None) -> dict[int, int] | None:
    return None if values is None else {int(key): value for key, value in values.items()}


def _parse_hex_values(values: Mapping[str, str] | None) -> dict[int, bytes] | None:
    return None if values is None else {int(key): bytes.fromhex(value) for key, value in values.items()}


def _to_tuple(values: list[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)
