"""PURE. Which rows of a batch go into one file together: those with the same partition on both sides.

DuckLake's keys and Iceberg's spec may say different things (`bridge.partitions`); a file holds one value of each, so
that its bounds tell Iceberg what DuckLake's keys don't.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from duckicelake.bridge.texts import cast_text
from duckicelake.errors import InvalidRequest, Unsupported
from duckicelake.iceberg.buckets import bucket
from duckicelake.iceberg.calendar import civil
from duckicelake.iceberg.partition import PartitionSpec, Transform
from duckicelake.iceberg.transforms import transformed
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import PartitionKey
from duckicelake.rows.batch import Batch
from duckicelake.rows.kinds import single_value
from duckicelake.rows.problems import shown

MOST_FILES: Final = 1000
_BUCKET: Final = re.compile(r"bucket\((\d+)\)")
_PARTS: Final = ("year", "month", "day")
_HASHED: Final = frozenset({"int", "long", "string", "date", "time", "timestamp", "timestamptz", "binary"})
"""Types that both sides hash alike."""
_HOURS: Final = 24

Values: TypeAlias = tuple[str | None, ...]
_Text: TypeAlias = Callable[[Any], str | None]


def partitioned(batch: Batch, keys: Sequence[PartitionKey], spec: PartitionSpec) -> list[tuple[Values, list[int]]]:
    """DuckLake's partition values of each file, and the rows in it, as they come.

    Raises:
        Unsupported: a key is a bucket of a type that DuckLake hashes in a way of its own.
        InvalidRequest: the rows are of too many partitions.

    """
    columns = [_column(batch, key.column_id, partial(_key, key)) for key in keys]
    columns += [_column(batch, field.source_id, partial(_value, field.transform)) for field in spec.fields]
    found: defaultdict[Values, list[int]] = defaultdict(list)
    for row, values in enumerate(zip(*columns, strict=True) if columns else [()] * batch.num_rows):
        found[values].append(row)
    if len(found) > MOST_FILES:
        raise InvalidRequest(f"The rows are of {len(found)} partitions; a batch takes up to {MOST_FILES}: send several")
    return [(values[: len(keys)], rows) for values, rows in found.items()]


def _column(batch: Batch, column_id: int, text_of: Callable[[PrimitiveType], _Text | None]) -> list[str | None]:
    """What the column's values are told apart by; all alike where that isn't known, or the column is inside another."""
    for index, column in enumerate(batch.layout.stored):
        if column.field_id == column_id and isinstance(column.type, PrimitiveType):
            text = text_of(column.type)
            return [None] * batch.num_rows if text is None else _mapped(batch.column(index), text)
    return [None] * batch.num_rows


def _mapped(values: Sequence[Any], text: _Text) -> list[str | None]:
    """The text of each value, made once for equal ones; zeros are equal and have two."""
    if any(isinstance(value, float) for value in values[:1]):
        return [None if value is None else text(value) for value in values]
    texts = {value: None if value is None else text(value) for value in set(values)}
    return [texts[value] for value in values]


def _key(key: PartitionKey, kind: PrimitiveType) -> _Text:
    """DuckLake's value of a key."""
    match = _BUCKET.fullmatch(key.transform)
    if key.transform == "identity":
        return partial(_identity, kind)
    if match is not None and kind.name in _HASHED:
        return lambda value: str(bucket(value, int(match[1])))
    if key.transform in _PARTS:
        to_days = Transform(name="day")
        return lambda value: str(civil(transformed(to_days, kind, value))[_PARTS.index(key.transform)])
    if key.transform == "hour":
        to_hours = Transform(name="hour")
        return lambda value: str(transformed(to_hours, kind, value) % _HOURS)
    raise Unsupported(
        "row-partitions",
        f"The table is partitioned by {key.transform} of a column of type {kind}, which only DuckDB computes: send "
        "batches that are small enough to be inlined",
    )


def _identity(kind: PrimitiveType, value: Any) -> str:
    text = cast_text(kind, single_value(kind, value))
    if text is None:
        raise InvalidRequest(f"{shown(value)} can't be the value of a partition, as Postgres holds no NUL in texts")
    return text


def _value(transform: Transform, kind: PrimitiveType) -> _Text | None:
    """Iceberg's value, where a file's bounds can tell it."""
    if transform.name in {"bucket", "void"} or not transform.accepts(kind):
        return None
    return lambda value: repr(transformed(transform, kind, value))
