"""The range of partition values in a manifest, field by field, with which engines skip manifests."""

import math
import struct
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.manifest_entry import FieldSummary, PartitionValue
from duckicelake.iceberg.types import PrimitiveType, StructType
from duckicelake.iceberg.values import to_bytes


def summarise_partitions(
    partition_type: StructType, partitions: Iterable[tuple[PartitionValue, ...]]
) -> tuple[FieldSummary, ...] | None:
    """One summary per field of the partition type; NaN is neither lower nor upper bound, -0.0 is below 0.0.

    None, which makes engines read the manifest, where they don't agree on the bounds: Java orders uuids as two signed
    longs, PyIceberg and the spec as unsigned bytes. Raises InvalidRequest for a value that isn't of its field's type.
    """
    rows = tuple(partitions)
    kinds = [field.type for field in partition_type.fields if isinstance(field.type, PrimitiveType)]
    for row in rows:
        if len(row) != len(kinds):
            raise InvalidRequest(f"partition {row} has {len(row)} values, its spec has {len(kinds)} fields")
    columns = [[row[position] for row in rows] for position in range(len(kinds))]
    if not all(_agreed(column) for column in columns):
        return None
    return tuple(_summarise(kind, column) for kind, column in zip(kinds, columns, strict=True))


def _agreed(values: list[PartitionValue]) -> bool:
    uuids = [value for value in values if isinstance(value, UUID)]
    return not uuids or (min(uuids), max(uuids)) == (min(uuids, key=_signed), max(uuids, key=_signed))


def _signed(value: UUID) -> tuple[int, ...]:
    return struct.unpack(">qq", value.bytes)


def _summarise(kind: PrimitiveType, values: list[PartitionValue]) -> FieldSummary:
    known = [value for value in values if value is not None]
    ordered = [value for value in known if not _is_nan(value)]
    try:
        lower, upper = (min(ordered, key=_order), max(ordered, key=_order)) if ordered else (None, None)
    except TypeError as error:
        raise InvalidRequest(f"partition values of type {kind} are of several types") from error
    return FieldSummary(
        contains_null=len(known) < len(values),
        contains_nan=len(ordered) < len(known),
        lower_bound=None if lower is None else to_bytes(kind, lower),
        upper_bound=None if upper is None else to_bytes(kind, upper),
    )


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _order(value: Any) -> tuple[Any, float]:
    return value, math.copysign(1, value) if isinstance(value, float) else 0
