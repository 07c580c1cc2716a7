"""PURE. Statistics of a batch by leaf column, as `ducklake_table_column_stats` and file statistics need them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from duckicelake.bridge.stats import extent_stats
from duckicelake.iceberg.types import ListType, MapType, PrimitiveType, StructType
from duckicelake.lake.model import ColumnStats, Extent
from duckicelake.rows.batch import Batch
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.kinds import TICKS, single_value, stored, values_of
from duckicelake.rows.layout import Layout

_FLOATS = {"float", "double"}
_NO_BOUNDS = (None, None)


def extents(batch: Batch) -> tuple[Extent, ...]:
    """What the values of each leaf column span."""
    found: list[Extent] = []
    for column, values in zip(batch.layout.stored, batch.values, strict=True):
        kind = column.type
        if isinstance(kind, PrimitiveType):
            found.append(_extent(column.field_id, kind, values))
        else:
            found.extend(extent for extent, _ in _extents(column, values))
    return tuple(found)


def column_stats(batch: Batch) -> tuple[ColumnStats, ...]:
    """A row for each leaf column, with the counts that a file of these rows would have.

    A column whose bounds have no text in DuckLake has none: its row of the table must go, as its truth isn't known.
    """
    pairs = zip(batch.layout.stored, batch.values, strict=True)
    return _known(each for column, values in pairs for each in _extents(column, values))


def table_stats(layout: Layout, table: pa.Table) -> tuple[ColumnStats, ...]:
    """The same of a table, in less time if it is a long one."""
    pairs = zip(layout.stored, table.columns, strict=True)
    return _known(each for column, array in pairs for each in _extents_of_array(column, array))


def _known(extents: Iterable[tuple[Extent, PrimitiveType]]) -> tuple[ColumnStats, ...]:
    return tuple(row for extent, kind in extents if (row := extent_stats(extent, kind)) is not None)


def _extents_of_array(column: RowColumn, array: pa.ChunkedArray) -> Iterator[tuple[Extent, PrimitiveType]]:
    kind = column.type
    if not isinstance(kind, PrimitiveType):
        yield from _extents(column, [value for chunk in array.chunks for value in values_of(chunk, column)])
        return
    nans = pc.sum(pc.is_nan(array)).as_py() or 0 if kind.name in _FLOATS else 0
    bounds = pc.min_max(array if kind.name not in TICKS else array.cast(TICKS[kind.name]))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    of = _NO_BOUNDS if least is None else _bounds(kind, least, most)
    yield Extent(column.field_id, len(array) - array.null_count, array.null_count, nans, *of), kind


def _extents(column: RowColumn, values: Sequence[Any]) -> Iterator[tuple[Extent, PrimitiveType]]:
    kind = column.type
    if isinstance(kind, PrimitiveType):
        yield _extent(column.field_id, kind, values), kind
        return
    for index, child in enumerate(stored(column.children)):
        yield from _extents(child, _inside(kind, values, index))


def _inside(kind: StructType | ListType | MapType, values: Sequence[Any], part: int) -> list[Any]:
    """The values of a part of a struct, list or map; where there are none, one that is null, as Parquet counts them."""
    if isinstance(kind, StructType):
        return [None if value is None else value[part] for value in values]
    if isinstance(kind, ListType):
        return [each for value in values for each in value or (None,)]
    return [pair[part] for value in values for pair in value or ((None, None),)]


def _extent(column_id: int, kind: PrimitiveType, values: Sequence[Any]) -> Extent:
    nulls = values.count(None)
    present = [value for value in values if value is not None] if nulls else values
    numbers = _without_nan(present) if kind.name in _FLOATS else present
    bounds = _bounds(kind, min(numbers), max(numbers)) if numbers else _NO_BOUNDS
    return Extent(column_id, len(present), nulls, len(present) - len(numbers), *bounds)


def _without_nan(values: Sequence[float]) -> Sequence[float]:
    return [value for value in values if not math.isnan(value)] if math.isnan(sum(values)) else values


def _bounds(kind: PrimitiveType, least: Any, most: Any) -> tuple[Any, Any]:
    return (least, most) if kind.name != "uuid" else (single_value(kind, least), single_value(kind, most))
