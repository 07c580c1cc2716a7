"""PURE. Rows that come as an Arrow IPC stream."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from duckicelake.iceberg.types import PrimitiveType
from duckicelake.rows.arrow_casting import cast, check_empty, missing, names_of
from duckicelake.rows.arrow_stream import read_table
from duckicelake.rows.batch import Batch, check_count
from duckicelake.rows.bounds import check_inside, inside_array
from duckicelake.rows.checks import Check
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.json_columns import check_names
from duckicelake.rows.kinds import arrow_type, is_storable
from duckicelake.rows.layout import Layout
from duckicelake.rows.problems import MISSING, MOST_NAMED, MisfitError, OnUnknown, Problem, problem, refuse


def read_stream(body: bytes, layout: Layout, on_unknown: OnUnknown) -> Batch:
    """The rows of a stream as rows of the layout; InvalidRequest names what doesn't fit."""
    return read_arrow(read_table(body), layout, on_unknown)


def read_arrow(table: pa.Table, layout: Layout, on_unknown: OnUnknown) -> Batch:
    """The same of a table."""
    check_count(table.num_rows, layout)
    is_cast = not table.schema.equals(layout.arrow_schema)
    if is_cast or layout.nested:
        check_inside(_inside(table, layout))
    if is_cast:
        table = _cast(table, layout, on_unknown)
    batch = Batch(layout, table.num_rows, table=table)
    _check(batch)
    return batch


def _inside(table: pa.Table, layout: Layout) -> Iterator[int]:
    """The values inside the lists and maps of all columns."""
    columns = {column.name: column for column in layout.columns}
    parts = zip(table.schema.names, table.columns, strict=True)
    for name, column in parts:
        for chunk in column.chunks:
            yield from inside_array(chunk, columns.get(name))


def _cast(table: pa.Table, layout: Layout, on_unknown: OnUnknown) -> pa.Table:
    """The table with the layout's schema."""
    problems: list[Problem] = []
    _check_columns(table, layout, on_unknown, problems)
    refuse(problems)
    parts = dict(zip(table.schema.names, map(_whole, table.columns), strict=True))
    arrays = [
        _column(parts.get(column.name), column, table.num_rows, on_unknown, problems) for column in layout.columns
    ]
    refuse(problems)
    return pa.Table.from_arrays([array for array in arrays if array is not None], schema=layout.arrow_schema)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _check_columns(table: pa.Table, layout: Layout, on_unknown: OnUnknown, problems: list[Problem]) -> None:
    try:
        names = dict.fromkeys(names_of(table.schema))
        check_names(names, {column.name: column for column in layout.columns}, on_unknown)
    except MisfitError as misfit:
        problems.append(problem(None, None, misfit))


def _column(
    array: pa.Array | None, column: RowColumn, length: int, on_unknown: OnUnknown, problems: list[Problem]
) -> pa.Array | None:
    """The column as the layout wants it; None if it isn't stored, or has the problems that are added."""
    try:
        if not is_storable(column):
            check_empty(array, column)
            return None
        return missing(column, length) if array is None else cast(array, column, on_unknown)
    except MisfitError as misfit:
        problems.append(problem(None, column.name, misfit))
    except pa.ArrowNotImplementedError as error:
        problems.append(problem(None, column.name, MisfitError(MISSING, f"Arrow can't cast it: {error}")))
    except pa.ArrowInvalid:
        found = islice(_failing(array, 0, column, on_unknown), MOST_NAMED + 1)
        problems += [problem(row, column.name, misfit) for row, misfit in found]
    return None


def _failing(
    array: pa.Array, first: int, column: RowColumn, on_unknown: OnUnknown
) -> Iterator[tuple[int, MisfitError]]:
    """The rows that can't be cast, found by halving."""
    error = _error_of(array, column, on_unknown)
    if error is None:
        return
    if len(array) == 1:
        yield first, MisfitError(_value(array), f"it doesn't go into a {arrow_type(column)}: {error}")
        return
    half = len(array) // 2
    yield from _failing(array.take(pa.array(range(half))), first, column, on_unknown)
    yield from _failing(array.take(pa.array(range(half, len(array)))), first + half, column, on_unknown)


def _error_of(array: pa.Array, column: RowColumn, on_unknown: OnUnknown) -> pa.ArrowInvalid | None:
    try:
        cast(array, column, on_unknown)
    except pa.ArrowInvalid as error:
        return error
    return None


def _value(array: pa.Array) -> Any:
    """The only value, where Python has it."""
    try:
        return array[0].as_py()
    except (ValueError, OverflowError):
        return MISSING


def _check(batch: Batch) -> None:
    """InvalidRequest for values that have the right type and don't fit their column all the same."""
    problems: list[Problem] = []
    layout = batch.layout
    for index, (column, check) in enumerate(zip(layout.stored, layout.checks, strict=True)):
        array = batch.table.column(index)
        if column.required and array.null_count:
            problems += [problem(row, column.name, _REQUIRED) for row in _nulls(array)]
        if check is not None and not _is_surely_right(batch.column(index), column, check):
            problems += islice(_misfits(batch.column(index), column, check), MOST_NAMED + 1)
    refuse(problems)


def _nulls(array: pa.ChunkedArray) -> Iterator[int]:
    nulls = (row for row, null in enumerate(array.is_null().to_pylist()) if null)
    return islice(nulls, MOST_NAMED + 1)


def _is_surely_right(values: list[Any], column: RowColumn, check: Check) -> bool:
    """Whether the least and the greatest value are right, and with them all in between."""
    if not isinstance(column.type, PrimitiveType) or column.declared in _NOT_ORDERED:
        return False
    present = [value for value in values if value is not None] if None in values else values
    return not present or not any(_misfits([min(present), max(present)], column, check))


def _misfits(values: list[Any], column: RowColumn, check: Check) -> Iterator[Problem]:
    for row, value in enumerate(values):
        try:
            if value is not None:
                check(value)
        except MisfitError as misfit:
            yield problem(row, column.name, misfit)


_NOT_ORDERED = {"json", "timestamp_s", "timestamp_ms"}
_REQUIRED = MisfitError(None, "the column is required")
