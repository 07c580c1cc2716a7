"""PURE. Read rows from Arrow streams and from small Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from duckicelake.bridge.values.types import STRICTER_TYPES
from duckicelake.errors import InvalidRequestError, format_count
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.rows.arrow_values import (
    build_missing_column,
    cast_array,
    check_unstorable,
    list_names,
    read_stream_table,
)
from duckicelake.rows.columns import RowColumn, is_storable, select_stored, to_arrow_type
from duckicelake.rows.json_columns import check_names
from duckicelake.rows.layout import Check, Layout
from duckicelake.rows.limits import check_nested_count, count_nested_array
from duckicelake.rows.problems import (
    MAX_NAMED_ROWS,
    MISSING,
    MisfitError,
    OnUnknown,
    RowProblem,
    make_problem,
    refuse_problems,
)
from duckicelake.rows.row_batch import Batch, check_row_count

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa = DeferredModule("pyarrow")
    pq = DeferredModule("pyarrow.parquet")


_REQUIRED = MisfitError(None, "the column is required")
MAX_PARQUET_BYTES: Final = 16 << 20
"""Bytes of a file, and of its values. Dictionaries make many large values of few bytes, so such files stay small."""
_STEP: Final = 16
_FIELD_ID: Final = b"PARQUET:field_id"


def read_arrow_stream(body: bytes, layout: Layout, on_unknown: OnUnknown) -> Batch:
    """Read the rows of a stream as rows of the layout; InvalidRequestError names what doesn't fit."""
    return read_arrow_table(read_stream_table(body), layout, on_unknown)


def read_arrow_table(table: pa.Table, layout: Layout, on_unknown: OnUnknown) -> Batch:
    """Read the rows of a table, as `read_arrow_stream` does."""
    check_row_count(table.num_rows, layout)
    is_cast = not table.schema.equals(layout.arrow_schema)
    if is_cast or layout.nested:
        check_nested_count(_count_inside(table, layout))
    if is_cast:
        table = _cast_table(table, layout, on_unknown)
    batch = Batch(layout, table.num_rows, table=table)
    _check_batch(batch)
    return batch


def _count_inside(table: pa.Table, layout: Layout) -> Iterator[int]:
    """Count the values inside the lists and maps of each column."""
    columns = {column.name: column for column in layout.columns}
    parts = zip(table.schema.names, table.columns, strict=True)
    for name, column in parts:
        for chunk in column.chunks:
            yield from count_nested_array(chunk, columns.get(name))


def _cast_table(table: pa.Table, layout: Layout, on_unknown: OnUnknown) -> pa.Table:
    """Cast a table to the layout's schema."""
    problems: list[RowProblem] = []
    _check_columns(table, layout, on_unknown, problems)
    refuse_problems(problems)
    parts = dict(zip(table.schema.names, map(_combine_chunks, table.columns), strict=True))
    arrays = [
        _cast_column(parts.get(column.name), column, table.num_rows, on_unknown, problems) for column in layout.columns
    ]
    refuse_problems(problems)
    return pa.Table.from_arrays([array for array in arrays if array is not None], schema=layout.arrow_schema)


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _check_columns(table: pa.Table, layout: Layout, on_unknown: OnUnknown, problems: list[RowProblem]) -> None:
    try:
        names = dict.fromkeys(list_names(table.schema))
        check_names(names, {column.name: column for column in layout.columns}, on_unknown)
    except MisfitError as misfit:
        problems.append(make_problem(None, None, misfit))


def _cast_column(
    array: pa.Array | None, column: RowColumn, length: int, on_unknown: OnUnknown, problems: list[RowProblem]
) -> pa.Array | None:
    """Cast a column to the layout's type. None if it isn't stored, or doesn't fit: its problems are added."""
    try:
        if not is_storable(column):
            check_unstorable(array, column)
            return None
        return build_missing_column(column, length) if array is None else cast_array(array, column, on_unknown)
    except MisfitError as misfit:
        problems.append(make_problem(None, column.name, misfit))
    except pa.ArrowNotImplementedError as error:
        problems.append(make_problem(None, column.name, MisfitError(MISSING, f"Arrow can't cast it: {error}")))
    except pa.ArrowInvalid:
        found = islice(_find_failing_rows(array, 0, column, on_unknown), MAX_NAMED_ROWS + 1)
        problems += [make_problem(row, column.name, misfit) for row, misfit in found]
    return None


def _find_failing_rows(
    array: pa.Array, first: int, column: RowColumn, on_unknown: OnUnknown
) -> Iterator[tuple[int, MisfitError]]:
    """Yield the rows that can't be cast. Halving finds them."""
    error = _get_error(array, column, on_unknown)
    if error is None:
        return
    if len(array) == 1:
        yield first, MisfitError(_get_single_value(array), f"it doesn't go into a {to_arrow_type(column)}: {error}")
        return
    half = len(array) // 2
    yield from _find_failing_rows(array.take(pa.array(range(half))), first, column, on_unknown)
    yield from _find_failing_rows(array.take(pa.array(range(half, len(array)))), first + half, column, on_unknown)


def _get_error(array: pa.Array, column: RowColumn, on_unknown: OnUnknown) -> pa.ArrowInvalid | None:
    try:
        cast_array(array, column, on_unknown)
    except pa.ArrowInvalid as error:
        return error
    return None


def _get_single_value(array: pa.Array) -> Any:
    """Return the only value, as Python has it."""
    try:
        return array[0].as_py()
    except (ValueError, OverflowError):
        return MISSING


def _check_batch(batch: Batch) -> None:
    """Raise InvalidRequestError for values of the right type that don't fit their column, as out of range."""
    problems: list[RowProblem] = []
    layout = batch.layout
    for index, (column, check) in enumerate(zip(layout.stored, layout.checks, strict=True)):
        array = batch.table.column(index)
        if column.required and array.null_count:
            problems += [make_problem(row, column.name, _REQUIRED) for row in _find_nulls(array)]
        if check is not None and not _is_surely_right(batch.column(index), column, check):
            problems += islice(_find_misfits(batch.column(index), column, check), MAX_NAMED_ROWS + 1)
    refuse_problems(problems)


def _find_nulls(array: pa.ChunkedArray) -> Iterator[int]:
    nulls = (row for row, null in enumerate(array.is_null().to_pylist()) if null)
    return islice(nulls, MAX_NAMED_ROWS + 1)


def _is_surely_right(values: list[Any], column: RowColumn, check: Check) -> bool:
    """Return whether the least and the greatest value are valid, which proves it for all in between."""
    if not isinstance(column.type, PrimitiveType) or column.declared in STRICTER_TYPES:
        return False
    present = [value for value in values if value is not None] if None in values else values
    return not present or not any(_find_misfits([min(present), max(present)], column, check))


def _find_misfits(values: list[Any], column: RowColumn, check: Check) -> Iterator[RowProblem]:
    for row, value in enumerate(values):
        try:
            if value is not None:
                check(value)
        except MisfitError as misfit:
            yield make_problem(row, column.name, misfit)


def read_parquet(path: Path, layout: Layout, row_count: int) -> Batch:
    """Read a file's rows.

    InvalidRequestError: other or too many rows, other columns, or values that don't fit the table.
    """
    try:
        with pq.ParquetFile(path) as file:
            _check_size(file.metadata, row_count)
            table = _read_batches(file)
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequestError(f"The file can't be read as Parquet: {error}") from error
    return read_arrow_table(_rename_columns(table, layout), layout, "reject")


def _check_size(metadata: pq.FileMetaData, row_count: int) -> None:
    if metadata.num_rows != row_count:
        raise InvalidRequestError(f"The file has {format_count(metadata.num_rows, 'row')}, not {row_count}")
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    if sum(group.total_byte_size for group in groups) > MAX_PARQUET_BYTES:
        raise InvalidRequestError(f"The file unpacks to more than {MAX_PARQUET_BYTES} bytes")


def _read_batches(file: pq.ParquetFile) -> pa.Table:
    batches, size = [], 0
    for batch in file.iter_batches(batch_size=_STEP):
        size += batch.nbytes
        if size > MAX_PARQUET_BYTES:
            raise InvalidRequestError(f"The file has more than {MAX_PARQUET_BYTES} bytes of values")
        batches.append(batch)
    table = pa.Table.from_batches(batches, file.schema_arrow)
    table.validate(full=True)
    return table


def _rename_columns(table: pa.Table, layout: Layout) -> pa.Table:
    """Rename a table's columns to their present names."""
    by_id = {column.field_id: column for column in layout.stored}
    found = [_get_field_id(field) for field in table.schema]
    if sorted(found) != sorted(by_id):
        raise InvalidRequestError("The file has other columns than the table")
    for field, field_id in zip(table.schema, found, strict=True):
        _check_parts(field.type, by_id[field_id])
    return table.rename_columns([by_id[field_id].name for field_id in found])


def _check_parts(kind: pa.DataType, column: RowColumn) -> None:
    """Check that nested fields have their present ids and names."""
    children = select_stored(column.children)
    parts = _list_parts(kind)
    if [_get_field_id(part) for part in parts] != [child.field_id for child in children]:
        raise InvalidRequestError(f"The file has other fields in {column.name} than the table")
    for part, child in zip(parts, children, strict=True):
        if pa.types.is_struct(kind) and part.name != child.name:
            raise InvalidRequestError(f"The file calls {child.name} in {column.name} {part.name}")
        _check_parts(part.type, child)


def _list_parts(kind: pa.DataType) -> Sequence[pa.Field]:
    if pa.types.is_struct(kind):
        return [kind.field(index) for index in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if pa.types.is_list(kind) or pa.types.is_large_list(kind) else []


def _get_field_id(field: pa.Field) -> int:
    return int((field.metadata or {}).get(_FIELD_ID, b"-1"))
