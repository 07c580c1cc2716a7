"""PURE. How values of each primitive type are kept in Arrow, and what they are in memory.

In memory: boolean bool · int, long, date (days), time and timestamps (ticks) int · float, double float ·
decimal Decimal · string str · uuid, fixed, binary bytes · struct a tuple of its storable fields' values · list a list ·
map a list of pairs.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from duckicelake.iceberg.types import ListType, PrimitiveType, StructType
from duckicelake.rows.columns import RowColumn

UNSTORABLE: Final = frozenset({"variant", "geometry", "geography", "unknown"})
"""Types of which this server writes no values, neither inlined nor in files: a column of one can only be null."""
TICKS: Final = {"date": pa.int32(), "time": pa.int64()} | dict.fromkeys(
    ("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), pa.int64()
)
"""Types that Arrow keeps as integers under another name."""

_PLAIN: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "uuid": pa.binary(16),
    "binary": pa.binary(),
}


def is_storable(column: RowColumn) -> bool:
    """Whether the column can hold anything: a list of variants can't, a struct can if one of its fields can."""
    if isinstance(column.type, PrimitiveType):
        return column.type.name not in UNSTORABLE
    check = any if isinstance(column.type, StructType) else all
    return bool(column.children) and check(map(is_storable, column.children))


def stored(columns: Sequence[RowColumn]) -> tuple[RowColumn, ...]:
    """Those of the columns that can hold anything."""
    return tuple(filter(is_storable, columns))


def arrow_type(column: RowColumn) -> pa.DataType:
    """The Arrow type of a storable column's values, nullable throughout."""
    kind = column.type
    if isinstance(kind, PrimitiveType):
        return _primitive(kind)
    parts = [pa.field(child.name, arrow_type(child)) for child in stored(column.children)]
    if isinstance(kind, StructType):
        return pa.struct(parts)
    if isinstance(kind, ListType):
        return pa.list_(parts[0])
    return pa.map_(parts[0].type, parts[1].type)


def _primitive(kind: PrimitiveType) -> pa.DataType:
    if kind.name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    return pa.binary(kind.length) if kind.name == "fixed" else _PLAIN[kind.name]


def single_value(kind: PrimitiveType, value: Any) -> Any:
    """A value in memory as those of `iceberg.values` are."""
    return UUID(bytes=value) if kind.name == "uuid" else value


def values_of(array: pa.Array, column: RowColumn) -> list[Any]:
    """The values in memory of an array that has the column's Arrow type."""
    kind = column.type
    if isinstance(kind, PrimitiveType):
        ticks = TICKS.get(kind.name)
        values: list[Any] = (array if ticks is None else array.view(ticks)).to_pylist()
        return values
    if isinstance(kind, StructType):
        fields = [values_of(array.field(index), child) for index, child in enumerate(stored(column.children))]
        return _where_valid(array, list(zip(*fields, strict=True)))
    if isinstance(kind, ListType):
        (element,) = column.children
        return _slices(array, values_of(array.values, element))
    key, value = column.children
    pairs = zip(values_of(array.keys, key), values_of(array.items, value), strict=True)
    return _slices(array, list(pairs))


def _slices(array: pa.Array, values: list[Any]) -> list[Any]:
    offsets = array.offsets.to_pylist()
    return _where_valid(array, [values[start:end] for start, end in pairwise(offsets)])


def _where_valid(array: pa.Array, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]
