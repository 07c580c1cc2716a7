"""PURE. Write batches as Parquet files with field ids: partitioned and sorted."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from duckicelake.bridge.values.lake_values import format_cast_text
from duckicelake.bridge.values.types import has_same_buckets
from duckicelake.errors import InvalidRequestError, UnsupportedError
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.calendar import split_days
from duckicelake.iceberg.partition import PartitionField, PartitionSpec, Transform
from duckicelake.iceberg.sort import SortField, SortOrder
from duckicelake.iceberg.transforms import apply_transform, compute_bucket
from duckicelake.iceberg.types import ListType, PrimitiveType, StructType
from duckicelake.lake.model import ColumnStats, PartitionKey
from duckicelake.rows.columns import RowColumn, select_stored, to_arrow_type, to_single_value
from duckicelake.rows.problems import render_value
from duckicelake.rows.row_batch import Batch, build_table_stats

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
else:
    pa = DeferredModule("pyarrow")
    pc = DeferredModule("pyarrow.compute")
    pq = DeferredModule("pyarrow.parquet")


MAX_FILES: Final = 1000
_BUCKET: Final = re.compile(r"bucket\((\d+)\)")
_PARTS: Final = ("year", "month", "day")
_EPOCH: Final = re.compile(r"epoch_(year|month|day|hour)")
_HOURS: Final = 24
PartitionValues: TypeAlias = tuple[str | None, ...]
_Text: TypeAlias = Callable[[Any], str | None]
_FIELD_ID = b"PARQUET:field_id"


def sort_rows(batch: Batch, order: SortOrder) -> pa.Array:
    """Sort the rows by the table's order, as far as it names top-level columns without buckets; return their places."""
    keys = []
    columns = {}
    for name, (field, column) in enumerate(_build_sort_columns(batch, order)):
        columns[str(name)] = column
        keys.append(
            (str(name), f"{field.direction}ending", "at_start" if field.null_order == "nulls-first" else "at_end")
        )
    if not keys:
        return pa.array(range(batch.num_rows))
    return pc.sort_indices(pa.table(columns), sort_keys=keys)


def _build_sort_columns(batch: Batch, order: SortOrder) -> Iterator[tuple[SortField, pa.Array]]:
    places = {column.field_id: index for index, column in enumerate(batch.layout.stored)}
    for field in order.fields:
        if field.source_id not in places:
            return
        place = places[field.source_id]
        kind = batch.layout.stored[place].type
        if not isinstance(kind, PrimitiveType) or field.transform.name == "bucket" or not field.transform.accepts(kind):
            return
        if field.transform.name == "identity":
            yield field, batch.table.column(place)
        else:
            values = (
                None if value is None else apply_transform(field.transform, kind, value)
                for value in batch.column(place)
            )
            yield field, pa.array(values)


def split_partitions(
    batch: Batch, keys: Sequence[PartitionKey], spec: PartitionSpec
) -> list[tuple[PartitionValues, list[int]]]:
    """Divide the rows among files: DuckLake's partition values of each file, and its rows in their order.

    Raises:
        UnsupportedError: a key is a bucket of a type that DuckLake hashes in a way of its own.
        InvalidRequestError: the rows are of too many partitions.

    """
    columns = [_read_column(batch, key.column_id, partial(_make_key, key)) for key in keys]
    columns += [_read_column(batch, field.source_id, partial(_make_value, field.transform)) for field in spec.fields]
    found: defaultdict[PartitionValues, list[int]] = defaultdict(list)
    for row, values in enumerate(zip(*columns, strict=True) if columns else [()] * batch.num_rows):
        found[values].append(row)
    if len(found) > MAX_FILES:
        raise InvalidRequestError(
            f"The rows are of {len(found)} partitions; a batch takes up to {MAX_FILES}: send several"
        )
    return [(values[: len(keys)], rows) for values, rows in found.items()]


def _read_column(batch: Batch, column_id: int, text_of: Callable[[PrimitiveType], _Text | None]) -> list[str | None]:
    """Read a column's values as partition keys.

    All keys are equal if the values aren't known, or the column is nested.
    """
    for index, column in enumerate(batch.layout.stored):
        if column.field_id == column_id and isinstance(column.type, PrimitiveType):
            text = text_of(column.type)
            return [None] * batch.num_rows if text is None else _map_texts(batch.column(index), text)
    return [None] * batch.num_rows


def _map_texts(values: Sequence[Any], text: _Text) -> list[str | None]:
    """Return the text of each value. Equal values share one, except zeros, which are equal and have two texts."""
    if any(isinstance(value, float) for value in values[:1]):
        return [None if value is None else text(value) for value in values]
    texts = {value: None if value is None else text(value) for value in set(values)}
    return [texts[value] for value in values]


def _make_key(key: PartitionKey, kind: PrimitiveType) -> _Text:
    """Make a function that gives DuckLake's value of a key."""
    match = _BUCKET.fullmatch(key.transform)
    if key.transform == "identity":
        return partial(_format_identity, kind)
    if match is not None and has_same_buckets(kind):
        return lambda value: str(compute_bucket(value, int(match[1])))
    if key.transform in _PARTS:
        to_days = Transform(name="day")
        return lambda value: str(split_days(apply_transform(to_days, kind, value))[_PARTS.index(key.transform)])
    if key.transform == "hour":
        to_hours = Transform(name="hour")
        return lambda value: str(apply_transform(to_hours, kind, value) % _HOURS)
    epoch = _EPOCH.fullmatch(key.transform)
    if epoch is not None and (transform := Transform(name=epoch[1])).accepts(kind):
        return lambda value: str(apply_transform(transform, kind, value))
    raise UnsupportedError(
        "row-partitions",
        f"The table is partitioned by {key.transform} of a column of type {kind}, which only DuckDB computes: send "
        "batches that are small enough to be inlined",
    )


def _format_identity(kind: PrimitiveType, value: Any) -> str:
    text = format_cast_text(kind, to_single_value(kind, value))
    if text is None:
        raise InvalidRequestError(
            f"{render_value(value)} can't be the value of a partition, as Postgres holds no NUL in texts"
        )
    return text


def _make_value(transform: Transform, kind: PrimitiveType) -> _Text | None:
    """Make a function that gives Iceberg's partition value; None if a file's bounds can't hold it."""
    if transform.name in {"bucket", "void"} or not transform.accepts(kind):
        return None
    return lambda value: repr(apply_transform(transform, kind, value))


@dataclass(frozen=True, slots=True)
class RowFile:
    """A data file: its bytes, DuckLake's partition values, and statistics of the leaf columns that have some."""

    data: bytes
    record_count: int
    partition_values: tuple[str | None, ...]
    stats: tuple[ColumnStats, ...]
    row_group_count: int


def write_row_files(batch: Batch, keys: Sequence[PartitionKey], spec: PartitionSpec, order: SortOrder) -> list[RowFile]:
    """Write the batch as sorted files, each of one partition of both DuckLake's keys and Iceberg's spec.

    Raises:
        UnsupportedError: only DuckDB can compute one of the keys.
        InvalidRequestError: the rows are of too many partitions.

    """
    schema = pa.schema([_make_field(column) for column in batch.layout.stored])
    table = batch.table.take(sort_rows(batch, order)) if order.fields else batch.table
    ordered = Batch(batch.layout, batch.num_rows, table=table)
    groups = split_partitions(ordered, keys, spec)
    return [_write_file(ordered, values, rows, schema) for values, rows in groups]


def write_spec_files(batch: Batch, spec: PartitionSpec, order: SortOrder) -> list[tuple[tuple[Any, ...], RowFile]]:
    """Write the batch as sorted files, each of one partition of Iceberg's spec: its values, and the file.

    Raises:
        InvalidRequestError: the rows are of too many partitions.

    """
    schema = pa.schema([_make_field(column) for column in batch.layout.stored])
    table = batch.table.take(sort_rows(batch, order)) if order.fields else batch.table
    ordered = Batch(batch.layout, batch.num_rows, table=table)
    columns = [_apply_field(ordered, field) for field in spec.fields]
    groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for row in range(ordered.num_rows):
        groups[tuple(repr(column[row]) for column in columns)].append(row)
    if len(groups) > MAX_FILES:
        raise InvalidRequestError(f"The rows are of {len(groups)} partitions; a batch takes up to {MAX_FILES}")
    return [
        (tuple(column[rows[0]] for column in columns), _write_file(ordered, (), rows, schema))
        for rows in groups.values()
    ]


def _apply_field(batch: Batch, field: PartitionField) -> list[Any]:
    """Return the partition value of each row by one field; None of a column that has no values."""
    for index, column in enumerate(batch.layout.stored):
        if column.field_id == field.source_id and isinstance(column.type, PrimitiveType):
            compute = _make_transform(field.transform, column.type)
            return [None if value is None else compute(value) for value in batch.column(index)]
    return [None] * batch.num_rows


def _make_transform(transform: Transform, kind: PrimitiveType) -> Callable[[Any], Any]:
    """Make a function that gives Iceberg's partition value. UnsupportedError for what only engines compute."""
    width = transform.width
    if transform.name == "bucket" and width is not None and has_same_buckets(kind):
        return lambda value: compute_bucket(value, width)
    if transform.name == "bucket" or not (transform.name == "void" or transform.accepts(kind)):
        raise UnsupportedError(
            "row-partitions",
            f"The table is partitioned by {transform} of a column of type {kind}: write it by an engine",
        )
    return partial(apply_transform, transform, kind)


def _write_file(batch: Batch, values: tuple[str | None, ...], rows: Sequence[int], schema: pa.Schema) -> RowFile:
    table = batch.table if len(rows) == batch.num_rows else batch.table.take(pa.array(rows))
    data, sizes, row_groups = _encode_table(table.cast(schema))
    leaves = dict(zip(_list_leaf_ids(batch.layout.stored), sizes, strict=True))
    stats = build_table_stats(batch.layout, table)
    sized = tuple(row._replace(column_size_bytes=leaves[row.column_id]) for row in stats)
    return RowFile(data, len(rows), values, sized, row_groups)


def _encode_table(table: pa.Table) -> tuple[bytes, list[int], int]:
    """Encode a table as Parquet. Also returns the compressed size of each leaf column, and the number of row groups."""
    sink = pa.BufferOutputStream()
    found: list[pq.FileMetaData] = []
    pq.write_table(
        table,
        sink,
        row_group_size=max(1, table.num_rows),
        compression="zstd",
        store_schema=False,
        store_decimal_as_integer=True,
        metadata_collector=found,
    )
    groups = [found[0].row_group(index) for index in range(found[0].num_row_groups)]
    sizes = [sum(g.column(index).total_compressed_size for g in groups) for index in range(found[0].num_columns)]
    return sink.getvalue().to_pybytes(), sizes, len(groups)


def _list_leaf_ids(columns: Sequence[RowColumn]) -> Iterator[int]:
    """Yield the ids of the leaves, in the order of the file's columns."""
    for column in columns:
        if column.children:
            yield from _list_leaf_ids(select_stored(column.children))
        else:
            yield column.field_id


def _make_field(column: RowColumn) -> pa.Field:
    """Make the Arrow field of a column, with field ids. Only keys of maps are required, as in DuckLake's files."""
    return pa.field(column.name, _make_file_type(column), metadata={_FIELD_ID: str(column.field_id).encode()})


def _make_file_type(column: RowColumn) -> pa.DataType:
    if isinstance(column.type, PrimitiveType):
        return pa.uuid() if column.type.traits.family == "uuid" else to_arrow_type(column)
    parts = [_make_field(child) for child in select_stored(column.children)]
    if isinstance(column.type, StructType):
        return pa.struct(parts)
    if isinstance(column.type, ListType):
        return pa.list_(parts[0])
    return pa.map_(parts[0].with_nullable(False), parts[1])
