"""PURE. Rows that fit a table, their statistics, and whether they can be inlined."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from duckicelake.bridge.values.statistics import build_extent_stats
from duckicelake.errors import InvalidRequestError, format_count
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.primitives import select_names
from duckicelake.iceberg.types import ListType, MapType, PrimitiveType, StructType
from duckicelake.lake.model import ColumnStats, Extent
from duckicelake.rows.columns import TICKS, RowColumn, select_stored, to_python_values, to_single_value
from duckicelake.rows.inlined_values import Encoded
from duckicelake.rows.layout import Layout

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = DeferredModule("pyarrow")
    pc = DeferredModule("pyarrow.compute")


MAX_BATCH_ROWS: Final = 1 << 20
MAX_BATCH_VALUES: Final = 1 << 25
"""Values of a batch with nulls and defaults, which take no bytes in a request and at least eight in memory."""
_FLOATS: Final = select_names("float")
_NO_BOUNDS = (None, None)


def check_row_count(rows: int, layout: Layout) -> None:
    """Raise InvalidRequestError if a batch has too many rows."""
    most = min(MAX_BATCH_ROWS, MAX_BATCH_VALUES // layout.width)
    if rows > most:
        raise InvalidRequestError(
            f"A batch takes up to {format_count(most, 'row')} of this table, not {rows}: send several"
        )


class Batch:
    """Rows that fit a layout. From JSON they are values first, from Arrow a table."""

    def __init__(
        self, layout: Layout, num_rows: int, values: list[list[Any]] | None = None, table: pa.Table | None = None
    ) -> None:
        self.layout = layout
        self.num_rows = num_rows
        self._table = table
        self._values: list[list[Any] | None] = [*values] if values is not None else [None] * len(layout.stored)
        self._encoded: dict[int, list[Encoded]] = {}

    def column(self, index: int) -> list[Any]:
        """Return the values in memory of one stored column."""
        values = self._values[index]
        if values is None:
            assert self._table is not None
            column = self.layout.stored[index]
            values = [value for chunk in self._table.column(index).chunks for value in to_python_values(chunk, column)]
            self._values[index] = values
        return values

    @property
    def values(self) -> list[list[Any]]:
        """The values in memory of all stored columns."""
        return list(map(self.column, range(len(self._values))))

    @cached_property
    def table(self) -> pa.Table:
        """The stored columns with the layout's Arrow schema."""
        if self._table is not None:
            return self._table
        schema = self.layout.arrow_schema
        arrays = [pa.array(item, kind) for item, kind in zip(self.values, schema.types, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def encode_column(self, index: int) -> list[Encoded]:
        """Encode the values of one stored column as Postgres holds them inlined (`rows/inlined_values.py`)."""
        if index not in self._encoded:
            self._encoded[index] = self.layout.encoders[index](self.column(index))
        return self._encoded[index]


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Join batches of one layout, in their order."""
    first = batches[0]
    if len(batches) == 1:
        return first
    values = [list(chain.from_iterable(parts)) for parts in zip(*(batch.values for batch in batches), strict=True)]
    return Batch(first.layout, sum(batch.num_rows for batch in batches), values=values)


def find_inlining_obstacle(batch: Batch) -> str | None:
    """Explain why a batch can't be inlined, and becomes a file; None if it can."""
    return batch.layout.obstacle or _find_nul(batch)


def _find_nul(batch: Batch) -> str | None:
    """Find a NUL in a nested value, which Postgres holds as text, without NUL. Flat values are bytes there."""
    if not batch.layout.nested:
        return None
    for index, column in enumerate(batch.layout.stored):
        if column.children and any("\0" in str(value) for value in batch.encode_column(index)):
            return f"Postgres holds no NUL character in {column.name}, a column of nested values"
    return None


def build_extents(batch: Batch) -> tuple[Extent, ...]:
    """Build counts and bounds of each leaf column."""
    found: list[Extent] = []
    for column, values in zip(batch.layout.stored, batch.values, strict=True):
        kind = column.type
        if isinstance(kind, PrimitiveType):
            found.append(_build_extent(column.field_id, kind, values))
        else:
            found.extend(extent for extent, _ in _build_column_extents(column, values))
    return tuple(found)


def build_column_stats(batch: Batch) -> tuple[ColumnStats, ...]:
    """Build DuckLake's statistics of each leaf column, with the counts that a file of these rows would have.

    A column whose bounds have no text in DuckLake gets none. Its row of the table must be deleted, since it isn't known
    any more.
    """
    pairs = zip(batch.layout.stored, batch.values, strict=True)
    return _select_known(extent for column, values in pairs for extent in _build_column_extents(column, values))


def build_table_stats(layout: Layout, table: pa.Table) -> tuple[ColumnStats, ...]:
    """Build the same statistics from a table, which is faster for long ones."""
    pairs = zip(layout.stored, table.columns, strict=True)
    return _select_known(extent for column, array in pairs for extent in _build_array_extents(column, array))


def _select_known(extents: Iterable[tuple[Extent, PrimitiveType]]) -> tuple[ColumnStats, ...]:
    return tuple(row for extent, kind in extents if (row := build_extent_stats(extent, kind)) is not None)


def _build_array_extents(column: RowColumn, array: pa.ChunkedArray) -> Iterator[tuple[Extent, PrimitiveType]]:
    kind = column.type
    if not isinstance(kind, PrimitiveType):
        yield from _build_column_extents(
            column, [value for chunk in array.chunks for value in to_python_values(chunk, column)]
        )
        return
    nans = pc.sum(pc.is_nan(array)).as_py() or 0 if kind.name in _FLOATS else 0
    bounds = pc.min_max(array if kind.name not in TICKS else array.cast(TICKS[kind.name]))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    of = _NO_BOUNDS if least is None else _find_bounds(kind, least, most)
    yield Extent(column.field_id, len(array) - array.null_count, array.null_count, nans, *of), kind


def _build_column_extents(column: RowColumn, values: Sequence[Any]) -> Iterator[tuple[Extent, PrimitiveType]]:
    kind = column.type
    if isinstance(kind, PrimitiveType):
        yield _build_extent(column.field_id, kind, values), kind
        return
    for index, child in enumerate(select_stored(column.children)):
        yield from _build_column_extents(child, _list_inside(kind, values, index))


def _list_inside(kind: StructType | ListType | MapType, values: Sequence[Any], part: int) -> list[Any]:
    """List the values of a part of a struct, list or map.

    A list or map without elements gives one null, as Parquet counts it.
    """
    if isinstance(kind, StructType):
        return [None if value is None else value[part] for value in values]
    if isinstance(kind, ListType):
        return [item for value in values for item in value or (None,)]
    return [pair[part] for value in values for pair in value or ((None, None),)]


def _build_extent(column_id: int, kind: PrimitiveType, values: Sequence[Any]) -> Extent:
    nulls = values.count(None)
    present = [value for value in values if value is not None] if nulls else values
    numbers = _drop_nan(present) if kind.name in _FLOATS else present
    bounds = _find_bounds(kind, min(numbers), max(numbers)) if numbers else _NO_BOUNDS
    return Extent(column_id, len(present), nulls, len(present) - len(numbers), *bounds)


def _drop_nan(values: Sequence[float]) -> Sequence[float]:
    return [value for value in values if not math.isnan(value)] if math.isnan(sum(values)) else values


def _find_bounds(kind: PrimitiveType, least: Any, most: Any) -> tuple[Any, Any]:
    return to_single_value(kind, least), to_single_value(kind, most)
