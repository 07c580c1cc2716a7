"""PURE. Partitioning: Iceberg's epoch offsets and DuckLake's calendar parts (`ducklake-facts.md` §2.1).

Iceberg's day(ts) is DuckLake's three keys year(ts), month(ts), day(ts); month takes two and hour four. So either side
can compute the other's value exactly. What one side can't say (truncate, void, a month alone) is left out there.
DuckDB takes the parts of a timestamptz in the session's time zone, so those tell nothing: the file's bounds do.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from duckicelake.bridge.texts import from_partition_text, from_text, partition_text
from duckicelake.iceberg.partition import PartitionField, PartitionSpec, Transform
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import ColumnStats, PartitionKey

_PARTS = {
    "year": ("year",),
    "month": ("year", "month"),
    "day": ("year", "month", "day"),
    "hour": ("year", "month", "day", "hour"),
}
_SAME_BUCKETS = {"int", "long", "string", "date", "timestamp", "timestamptz", "binary"}
_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1)


def keys_of(spec: PartitionSpec, schema: Schema, *, with_buckets: bool) -> tuple[PartitionKey, ...]:
    """The DuckLake keys that say what `spec` says, as far as DuckLake can.

    Bucket keys are left out unless `with_buckets`: DuckDB skips every file without a value for them, so they may only
    be declared while all live files have one.
    """
    top = {field.id: field.type for field in schema.fields}
    keys: dict[PartitionKey, None] = {}
    for field in spec.fields:
        type_ = top.get(field.source_id)
        if isinstance(type_, PrimitiveType):
            keys.update(dict.fromkeys(_keys(field, type_, with_buckets)))
    return tuple(keys)


def has_buckets(keys: Sequence[PartitionKey]) -> bool:
    """Whether a bucket is among the keys."""
    return any(key.transform.startswith("bucket(") for key in keys)


def spec_of(keys: Sequence[PartitionKey], schema: Schema, spec_id: int, first_field_id: int) -> PartitionSpec:
    """The Iceberg spec of DuckLake keys; keys that Iceberg can't say are left out."""
    names = {field.id: field.name for field in schema.fields}
    fields: list[PartitionField] = []
    for column_id, transform in _transforms(keys):
        if column_id in names:
            fields.append(
                PartitionField(
                    source_id=column_id,
                    field_id=first_field_id + len(fields),
                    name=_field_name(names[column_id], transform, taken={f.name for f in fields} | set(names.values())),
                    transform=transform,
                )
            )
    return PartitionSpec(spec_id=spec_id, fields=tuple(fields))


def values_of(
    spec: PartitionSpec, schema: Schema, keys: Sequence[PartitionKey], partition: Sequence[Any]
) -> tuple[str | None, ...] | None:
    """DuckLake's values for a file with Iceberg's `partition`; None if the file has no value for one of the keys."""
    types = {field.id: field.type for field in schema.fields}
    known: dict[PartitionKey, str | None] = {}
    for field, value in zip(spec.fields, partition, strict=True):
        type_ = types.get(field.source_id)
        if isinstance(type_, PrimitiveType):
            known.update(zip(_keys(field, type_, True), _texts(field.transform, type_, value), strict=False))
    return tuple(known[key] for key in keys) if all(key in known for key in keys) else None


def partition_of(
    spec: PartitionSpec,
    schema: Schema,
    values: Mapping[PartitionKey, str | None],
    stats: Mapping[int, ColumnStats],
) -> tuple[Any, ...] | None:
    """Iceberg's partition of a file that DuckDB wrote; None if it can't be told exactly for every field of `spec`."""
    types = {field.id: field.type for field in schema.fields}
    partition = []
    for field in spec.fields:
        type_ = types.get(field.source_id)
        if not isinstance(type_, PrimitiveType):
            return None
        known, value = _value(field, type_, values, stats.get(field.source_id))
        if not known:
            return None
        partition.append(value)
    return tuple(partition)


def _keys(field: PartitionField, type_: PrimitiveType, with_buckets: bool) -> tuple[PartitionKey, ...]:
    name = field.transform.name
    if name == "identity":
        return (PartitionKey(field.source_id, "identity"),)
    if name == "bucket":
        declared = with_buckets and type_.name in _SAME_BUCKETS
        return (PartitionKey(field.source_id, f"bucket({field.transform.width})"),) if declared else ()
    return tuple(PartitionKey(field.source_id, part) for part in _PARTS.get(name, ()))


def _transforms(keys: Sequence[PartitionKey]) -> list[tuple[int, Transform]]:
    """Iceberg's transforms of DuckLake keys, calendar parts of one column drawn together."""
    found: list[tuple[int, Transform]] = []
    for key in keys:
        if key.transform == "identity":
            found.append((key.column_id, Transform.parse("identity")))
        elif key.transform.startswith("bucket("):
            found.append((key.column_id, Transform.parse(f"bucket[{key.transform[7:-1]}]")))
        elif key.transform == "year":
            found.append((key.column_id, Transform.parse(_finest(keys, key.column_id))))
    return found


def _finest(keys: Sequence[PartitionKey], column_id: int) -> str:
    parts = {key.transform for key in keys if key.column_id == column_id}
    return max(
        (name for name, needed in _PARTS.items() if parts.issuperset(needed)), key=lambda name: len(_PARTS[name])
    )


def _field_name(column: str, transform: Transform, taken: set[str]) -> str:
    if transform.name == "identity":
        return column
    name = f"{column}_{transform.name}"
    while name in taken:
        name += "_"
    return name


def _texts(transform: Transform, type_: PrimitiveType, value: Any) -> tuple[str | None, ...]:
    """DuckLake's values of the field's keys; none at all where DuckLake has no text for the value."""
    keys = 1 if transform.name in {"identity", "bucket"} else len(_PARTS.get(transform.name, ()))
    if value is None:
        return (None,) * keys
    if transform.name == "identity":
        text = partition_text(type_, value)
        return () if text is None else (text,)
    if transform.name == "bucket":
        return (str(value),)
    try:
        return tuple(str(part) for part in _calendar(transform.name, value)) if keys else ()
    except OverflowError:
        return ()


def _calendar(transform: str, value: int) -> tuple[int, ...]:
    """An epoch offset as (year, month, day, hour), as far as the transform goes."""
    if transform == "year":
        return (1970 + value,)
    if transform == "month":
        return 1970 + value // 12, value % 12 + 1
    day = _EPOCH_DAY + timedelta(days=value if transform == "day" else value // 24)
    parts = (day.year, day.month, day.day)
    return parts if transform == "day" else (*parts, value % 24)


def _value(
    field: PartitionField,
    type_: PrimitiveType,
    values: Mapping[PartitionKey, str | None],
    stats: ColumnStats | None,
) -> tuple[bool, Any]:
    """(whether it is known, the value)."""
    keys = _keys(field, type_, True)
    if not keys or any(key not in values for key in keys):
        return False, None
    texts = [values[key] for key in keys]
    if field.transform.name == "bucket":
        return _bucket_value(texts[0], stats)
    if type_.name == "timestamptz" and field.transform.name in _PARTS:
        return _zoned_value(field.transform.name, type_, stats)
    if any(text is None for text in texts):
        return all(text is None for text in texts), None
    if field.transform.name == "identity":
        value = from_partition_text(type_, texts[0] or "")
        return value is not None, value
    return True, _offset(field.transform.name, [int(text or 0) for text in texts])


def _bucket_value(text: str | None, stats: ColumnStats | None) -> tuple[bool, int | None]:
    """Nulls in bucket 0, where Iceberg keeps them apart: such a file is exact only if it holds one kind."""
    if text is None:
        return True, None
    if text != "0":
        return True, int(text)
    if stats is None or stats.null_count is None:
        return False, None
    if stats.null_count == 0:
        return True, 0
    return stats.value_count == 0, None


def _zoned_value(transform: str, type_: PrimitiveType, stats: ColumnStats | None) -> tuple[bool, int | None]:
    """The offset in UTC of a file's timestamps: known if the bounds have the same one, or if all are null."""
    if stats is None or stats.null_count is None or stats.value_count is None:
        return False, None
    if stats.value_count == 0:
        return True, None
    low, high = (_offset_of(transform, type_, text) for text in (stats.min_value, stats.max_value))
    return stats.null_count == 0 and low is not None and low == high, low


def _offset_of(transform: str, type_: PrimitiveType, text: str | None) -> int | None:
    micros = None if text is None else from_text(type_, text)
    if micros is None:
        return None
    moment = _EPOCH + timedelta(microseconds=micros)
    return _offset(transform, (moment.year, moment.month, moment.day, moment.hour))


def _offset(transform: str, parts: Sequence[int]) -> int:
    if transform == "year":
        return parts[0] - 1970
    if transform == "month":
        return (parts[0] - 1970) * 12 + parts[1] - 1
    days = (date(parts[0], parts[1], parts[2]) - _EPOCH_DAY).days
    return days if transform == "day" else days * 24 + parts[3]
