"""PURE. Statistics of a batch by leaf column, as `ducklake_table_column_stats` and file statistics need them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from duckicelake.bridge.texts import to_text
from duckicelake.iceberg.types import ListType, MapType, PrimitiveType, StructType
from duckicelake.lake.model import ColumnStats
from duckicelake.rows.batch import Batch
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.kinds import TICKS, single_value, stored, values_of
from duckicelake.rows.layout import Layout

_FLOATS = {"float", "double"}
_AMBIGUOUS = {"binary", "fixed"}
"""Types of whose bounds DuckDB writes two texts, and takes one for the other (see `bridge.stats`)."""


def column_stats(batch: Batch) -> tuple[ColumnStats, ...]:
    """A row for each leaf column, with the counts that a file of these rows would have.

    A column whose bounds have no text in DuckLake has none: its row of the table must go, as its truth isn't known.
    """
    pairs = zip(batch.layout.stored, batch.values, strict=True)
    return _known(row for column, values in pairs for row in _stats(column, values))


def table_stats(layout: Layout, table: pa.Table) -> tuple[ColumnStats, ...]:
    """The same of a table, in less time if it is a long one."""
    pairs = zip(layout.stored, table.columns, strict=True)
    return _known(row for column, array in pairs for row in _stats_of_array(column, array))


def _known(rows: Iterable[ColumnStats | None]) -> tuple[ColumnStats, ...]:
    return tuple(row for row in rows if row is not None)


def _stats_of_array(column: RowColumn, array: pa.ChunkedArray) -> Iterator[ColumnStats | None]:
    kind = column.type
    if not isinstance(kind, PrimitiveType):
        yield from _stats(column, [value for chunk in array.chunks for value in values_of(chunk, column)])
        return
    present = len(array) - array.null_count
    nans = pc.sum(pc.is_nan(array)).as_py() or 0 if kind.name in _FLOATS else 0
    bounds = pc.min_max(array if kind.name not in TICKS else array.cast(TICKS[kind.name]))
    yield _row(
        column.field_id, kind, _Counts(present, array.null_count, nans), bounds["min"].as_py(), bounds["max"].as_py()
    )


def _stats(column: RowColumn, values: Sequence[Any]) -> Iterator[ColumnStats | None]:
    kind = column.type
    if isinstance(kind, PrimitiveType):
        yield _leaf(column.field_id, kind, values)
        return
    for index, child in enumerate(stored(column.children)):
        yield from _stats(child, _inside(kind, values, index))


def _inside(kind: StructType | ListType | MapType, values: Sequence[Any], part: int) -> list[Any]:
    """The values of a part of a struct, list or map; where there are none, one that is null, as Parquet counts them."""
    if isinstance(kind, StructType):
        return [None if value is None else value[part] for value in values]
    if isinstance(kind, ListType):
        return [each for value in values for each in value or (None,)]
    return [pair[part] for value in values for pair in value or ((None, None),)]


def _leaf(column_id: int, kind: PrimitiveType, values: Sequence[Any]) -> ColumnStats | None:
    nulls = values.count(None)
    present = [value for value in values if value is not None] if nulls else values
    numbers = _without_nan(present) if kind.name in _FLOATS else present
    counts = _Counts(len(present), nulls, len(present) - len(numbers))
    return _row(column_id, kind, counts, min(numbers, default=None), max(numbers, default=None))


def _without_nan(values: Sequence[float]) -> Sequence[float]:
    return [value for value in values if not math.isnan(value)] if math.isnan(sum(values)) else values


class _Counts(NamedTuple):
    """Values, of which some are NaN, and nulls."""

    present: int
    nulls: int
    nans: int


def _row(column_id: int, kind: PrimitiveType, counts: _Counts, least: Any, most: Any) -> ColumnStats | None:
    has_bounds = counts.present > counts.nans
    low, high = (_text(kind, least), _text(kind, most)) if has_bounds else (None, None)
    if has_bounds and (low is None or high is None or kind.name in _AMBIGUOUS):
        return None
    return ColumnStats(
        column_id=column_id,
        contains_null=counts.nulls > 0,
        contains_nan=counts.nans > 0 if kind.name in _FLOATS else None,
        min_value=low,
        max_value=high,
        value_count=counts.present,
        null_count=counts.nulls,
    )


def _text(kind: PrimitiveType, value: Any) -> str | None:
    return to_text(kind, single_value(kind, value))
