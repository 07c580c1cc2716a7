"""PURE. Translate partitioning between Iceberg and DuckLake.

A calendar transform of Iceberg is one offset since 1970. DuckLake 1.0 has calendar parts in its place (`year(c)`,
`month(c)`, …), DuckLake 1.1 has the same offset too (`epoch_month(c)`). Keys of both forms are read in every lake.
"""

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from duckicelake.bridge.values.lake_values import format_cast_text, parse_cast_text, parse_stats_text
from duckicelake.bridge.values.types import has_same_buckets
from duckicelake.iceberg.calendar import count_days, split_days
from duckicelake.iceberg.partition import PartitionField, PartitionSpec, Transform
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.transforms import apply_transform
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import ColumnStats, PartitionKey

_PARTS = {
    "year": ("year",),
    "month": ("year", "month"),
    "day": ("year", "month", "day"),
    "hour": ("year", "month", "day", "hour"),
}
_EPOCHS = {f"epoch_{name}": name for name in _PARTS}
"""Iceberg's transforms by those of DuckLake 1.1 that have the same value."""
_OFFSET = re.compile(r"-?[0-9]{1,10}")
_MIN_OFFSET, _MAX_OFFSET = -(2**31), 2**31 - 1
_MICRO_DIGITS = 6
_UNKNOWN = (False, None)


def to_partition_keys(
    spec: PartitionSpec, schema: Schema, *, with_buckets: bool, with_epochs: bool = False
) -> tuple[PartitionKey, ...]:
    """Return the DuckLake keys that say what `spec` says, as far as DuckLake can.

    Args:
        spec: Iceberg's partitioning.
        schema: the schema with its source columns.
        with_buckets: whether bucket keys are among them. DuckDB skips every file without a value for a bucket, so
            buckets may only be declared while all live files have one.
        with_epochs: whether the lake takes `epoch_*` keys (DuckLake 1.1).

    """
    return _list_keys(spec, schema, with_buckets, {field.source_id for field in spec.fields} if with_epochs else ())


def is_described_by(spec: PartitionSpec, schema: Schema, keys: Sequence[PartitionKey]) -> bool:
    """Return whether DuckLake's keys say what `spec` says, with or without buckets, in either calendar form."""
    epochs = {key.column_id for key in keys if key.transform in _EPOCHS}
    return any(_list_keys(spec, schema, buckets, epochs) == tuple(keys) for buckets in (True, False))


def _list_keys(
    spec: PartitionSpec, schema: Schema, with_buckets: bool, epochs: Container[int]
) -> tuple[PartitionKey, ...]:
    """Return DuckLake's keys; those of the columns `epochs` as offsets, those of others as calendar parts."""
    top = {field.id: field.type for field in schema.fields}
    keys: dict[PartitionKey, None] = {}
    for field in spec.fields:
        type_ = top.get(field.source_id)
        if isinstance(type_, PrimitiveType):
            found = _to_epoch_keys(field) if field.source_id in epochs else ()
            keys.update(dict.fromkeys(found or _to_keys(field, type_, with_buckets)))
    return tuple(keys)


def has_calendar_fields(spec: PartitionSpec) -> bool:
    """Return whether DuckLake's formats have different keys for the partitioning."""
    return any(field.transform.name in _PARTS for field in spec.fields)


def has_buckets(keys: Sequence[PartitionKey]) -> bool:
    """Return whether a bucket is among the keys."""
    return any(key.transform.startswith("bucket(") for key in keys)


def to_partition_spec(keys: Sequence[PartitionKey], schema: Schema, spec_id: int, first_field_id: int) -> PartitionSpec:
    """Return the Iceberg spec of DuckLake keys; keys that Iceberg can't say are left out."""
    columns = {field.id: field for field in schema.fields}
    names = {field.name for field in schema.fields}
    fields: list[PartitionField] = []
    for column_id, transform in _to_transforms(keys, schema.leaves()):
        column = columns.get(column_id)
        if column is not None:
            fields.append(
                PartitionField(
                    source_id=column_id,
                    field_id=first_field_id + len(fields),
                    name=_choose_field_name(column.name, transform, taken=names | {field.name for field in fields}),
                    transform=transform,
                )
            )
    return PartitionSpec(spec_id=spec_id, fields=tuple(fields))


def to_partition_values(
    spec: PartitionSpec, schema: Schema, keys: Sequence[PartitionKey], partition: Sequence[Any]
) -> tuple[str | None, ...] | None:
    """Return DuckLake's values for a file with Iceberg's `partition`.

    None if the file has no value for one of the keys.
    """
    types = {field.id: field.type for field in schema.fields}
    known: dict[PartitionKey, str | None] = {}
    for field, value in zip(spec.fields, partition, strict=True):
        type_ = types.get(field.source_id)
        if isinstance(type_, PrimitiveType):
            known.update(zip(_to_keys(field, type_, True), _format_texts(field.transform, type_, value), strict=False))
            known.update(dict.fromkeys(_to_epoch_keys(field), None if value is None else str(value)))
    return tuple(known[key] for key in keys) if all(key in known for key in keys) else None


def to_partition(
    spec: PartitionSpec,
    schema: Schema,
    values: Mapping[PartitionKey, str | None],
    stats: Mapping[int, ColumnStats],
) -> tuple[Any, ...] | None:
    """Return Iceberg's partition of a file that DuckDB wrote.

    None if it isn't known exactly for every field of `spec`.
    """
    if not spec.fields:
        return ()
    types = schema.leaves()
    found = [
        _find_value(field, types.get(field.source_id), values, stats.get(field.source_id)) for field in spec.fields
    ]
    return tuple(value for _, value in found) if all(known for known, _ in found) else None


def _to_keys(field: PartitionField, type_: PrimitiveType, with_buckets: bool) -> tuple[PartitionKey, ...]:
    name = field.transform.name
    if name == "identity":
        return (PartitionKey(field.source_id, "identity"),)
    if name == "bucket":
        declared = with_buckets and has_same_buckets(type_)
        return (PartitionKey(field.source_id, f"bucket({field.transform.width})"),) if declared else ()
    return tuple(PartitionKey(field.source_id, part) for part in _PARTS.get(name, ()))


def _to_epoch_keys(field: PartitionField) -> tuple[PartitionKey, ...]:
    """Return the one key of DuckLake 1.1 for a calendar field, none for others."""
    name = field.transform.name
    return (PartitionKey(field.source_id, f"epoch_{name}"),) if name in _PARTS else ()


def _to_transforms(keys: Sequence[PartitionKey], types: Mapping[int, PrimitiveType]) -> list[tuple[int, Transform]]:
    """Return Iceberg's transforms of DuckLake keys, calendar parts of a column as one where its type allows."""
    found: list[tuple[int, Transform]] = []
    for key in keys:
        type_ = types.get(key.column_id)
        transform = None if type_ is None else _to_transform(key, type_, keys)
        if transform is not None:
            found.append((key.column_id, transform))
    return found


def _to_transform(key: PartitionKey, type_: PrimitiveType, keys: Sequence[PartitionKey]) -> Transform | None:
    if key.transform == "year":
        parts = {other.transform for other in keys if other.column_id == key.column_id}
        possible = [name for name, needed in reversed(_PARTS.items()) if parts.issuperset(needed)]
    else:
        text = _EPOCHS.get(key.transform, key.transform)
        possible = [] if key.transform in _PARTS else [text.replace("(", "[").replace(")", "]")]
    return next((transform for transform in map(Transform.parse, possible) if transform.accepts(type_)), None)


def _choose_field_name(column: str, transform: Transform, taken: set[str]) -> str:
    if transform.name == "identity":
        return column
    name = f"{column}_{transform.name}"
    while name in taken:
        name += "_"
    return name


def _format_texts(transform: Transform, type_: PrimitiveType, value: Any) -> tuple[str | None, ...]:
    """Return DuckLake's values of the field's keys; none at all where DuckLake has no text for the value."""
    keys = 1 if transform.name in {"identity", "bucket"} else len(_PARTS.get(transform.name, ()))
    if value is None:
        return (None,) * keys
    if transform.name == "identity":
        text = format_cast_text(type_, value)
        return () if text is None else (text,)
    if transform.name == "bucket":
        return (str(value),)
    return tuple(str(part) for part in _split_calendar(transform.name, value)) if keys else ()


def _split_calendar(transform: str, value: int) -> tuple[int, ...]:
    """Return an epoch offset as (year, month, day, hour), as far as the transform goes."""
    if transform == "year":
        return (1970 + value,)
    if transform == "month":
        return 1970 + value // 12, value % 12 + 1
    return split_days(value) if transform == "day" else (*split_days(value // 24), value % 24)


def _find_value(
    field: PartitionField,
    type_: PrimitiveType | None,
    values: Mapping[PartitionKey, str | None],
    stats: ColumnStats | None,
) -> tuple[bool, Any]:
    """Return (whether it is known, the value)."""
    if field.transform.name == "void":
        return True, None
    if type_ is None:
        return _UNKNOWN
    for key in _to_epoch_keys(field):
        if key in values and (known := _find_epoch_value(values[key], stats)) != _UNKNOWN:
            return known
    keys = _to_keys(field, type_, True)
    if keys and all(key in values for key in keys):
        known = _find_value_of_keys(field.transform, type_, [values[key] for key in keys], stats)
        if known != _UNKNOWN:
            return known
    return _find_value_of_bounds(field.transform, type_, stats)


def _find_epoch_value(text: str | None, stats: ColumnStats | None) -> tuple[bool, int | None]:
    """Return the offset that DuckLake 1.1 has as its text; timestamps with a zone are in UTC on both sides."""
    if text is None:
        return _find_null(stats)
    if not _OFFSET.fullmatch(text) or not _MIN_OFFSET <= int(text) <= _MAX_OFFSET:
        return _UNKNOWN
    return True, int(text)


def _find_null(stats: ColumnStats | None) -> tuple[bool, None]:
    """Return null unless the file has values: infinite days and timestamps have no calendar, and Iceberg compares them.

    A file of infinities under null would be skipped by `IS NOT NULL`.
    """
    return stats is None or not stats.value_count, None


def _find_value_of_keys(
    transform: Transform, type_: PrimitiveType, texts: Sequence[str | None], stats: ColumnStats | None
) -> tuple[bool, Any]:
    if transform.name == "bucket":
        return _find_bucket_value(texts[0], stats)
    if transform.name in _PARTS and _has_other_parts(type_):
        return _UNKNOWN
    parts = [text for text in texts if text is not None]
    if not parts and transform.name in _PARTS:
        return _find_null(stats)
    if len(parts) < len(texts):
        return not parts, None
    if transform.name != "identity":
        known = all(part.removeprefix("-").isdecimal() for part in parts)
        return (True, _compute_offset(transform.name, [int(part) for part in parts])) if known else _UNKNOWN
    value = parse_cast_text(type_, parts[0])
    return value is not None and not _is_either_zero(value), value


def _has_other_parts(type_: PrimitiveType) -> bool:
    """Return whether DuckDB takes parts in the session's time zone, or before 1970 of the next microsecond."""
    return type_.traits.has_zone or type_.traits.digits > _MICRO_DIGITS


def _find_bucket_value(text: str | None, stats: ColumnStats | None) -> tuple[bool, int | None]:
    """Return nulls in bucket 0, where Iceberg keeps them apart: such a file is exact only if it holds one kind."""
    if text is None:
        return True, None
    if not text.isdecimal():
        return _UNKNOWN
    if text != "0":
        return True, int(text)
    if stats is None or stats.null_count is None:
        return _UNKNOWN
    if stats.null_count == 0:
        return True, 0
    return stats.value_count == 0, None


def _find_value_of_bounds(transform: Transform, type_: PrimitiveType, stats: ColumnStats | None) -> tuple[bool, Any]:
    """Return the one value of a file whose bounds are both transformed to it, or null if it holds nothing else."""
    if stats is None or stats.null_count is None or stats.value_count is None:
        return _UNKNOWN
    if stats.value_count == 0:
        return True, None
    may_have_nan = stats.contains_nan or (stats.contains_nan is None and type_.traits.family == "float")
    if stats.null_count or may_have_nan or transform.name == "bucket" or not transform.accepts(type_):
        return _UNKNOWN
    low, high = (None if text is None else parse_stats_text(type_, text) for text in (stats.min_value, stats.max_value))
    if low is None or high is None:
        return _UNKNOWN
    first, last = (apply_transform(transform, type_, bound) for bound in (low, high))
    return (True, first) if first == last and not _is_either_zero(first) else _UNKNOWN


def _is_either_zero(value: Any) -> bool:
    """Return whether it is a zero: both are one value to DuckDB, in partitions and bounds, and two to Iceberg."""
    return isinstance(value, float) and value == 0


def _compute_offset(transform: str, parts: Sequence[int]) -> int:
    if transform == "year":
        return parts[0] - 1970
    if transform == "month":
        return (parts[0] - 1970) * 12 + parts[1] - 1
    days = count_days(parts[0], parts[1], parts[2])
    return days if transform == "day" else days * 24 + parts[3]
