"""PURE. Batches as Parquet files with field ids, as DuckLake and Iceberg read them: one for each partition."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.sort import SortOrder
from duckicelake.iceberg.types import ListType, PrimitiveType, StructType
from duckicelake.lake.model import ColumnStats, PartitionKey
from duckicelake.rows.batch import Batch
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.kinds import arrow_type, stored
from duckicelake.rows.ordering import sorted_rows
from duckicelake.rows.partitions import partitioned
from duckicelake.rows.statistics import table_stats

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class RowFile:
    """A data file: its bytes, DuckLake's partition values, and the statistics of each leaf column it is known of."""

    data: bytes
    record_count: int
    partition_values: tuple[str | None, ...]
    stats: tuple[ColumnStats, ...]


def row_files(batch: Batch, keys: Sequence[PartitionKey], spec: PartitionSpec, order: SortOrder) -> list[RowFile]:
    """The batch as files, each of one partition of both DuckLake's keys and Iceberg's spec, and sorted by the order.

    Raises:
        Unsupported: only DuckDB can compute one of the keys.
        InvalidRequest: the rows are of too many partitions.

    """
    schema = pa.schema([_field(column) for column in batch.layout.stored])
    table = batch.table.take(sorted_rows(batch, order)) if order.fields else batch.table
    ordered = Batch(batch.layout, batch.num_rows, table=table)
    groups = partitioned(ordered, keys, spec)
    return [_file(ordered, values, rows, schema) for values, rows in groups]


def _file(batch: Batch, values: tuple[str | None, ...], rows: Sequence[int], schema: pa.Schema) -> RowFile:
    table = batch.table if len(rows) == batch.num_rows else batch.table.take(pa.array(rows))
    data, sizes = _written(table.cast(schema))
    leaves = dict(zip(_leaves(batch.layout.stored), sizes, strict=True))
    stats = table_stats(batch.layout, table)
    sized = tuple(row._replace(column_size_bytes=leaves[row.column_id]) for row in stats)
    return RowFile(data, len(rows), values, sized)


def _written(table: pa.Table) -> tuple[bytes, list[int]]:
    """The table as Parquet, and the compressed size of each leaf column."""
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
    return sink.getvalue().to_pybytes(), sizes


def _leaves(columns: Sequence[RowColumn]) -> Iterator[int]:
    """The ids of the leaves, in the order of the file's columns."""
    for column in columns:
        if column.children:
            yield from _leaves(stored(column.children))
        else:
            yield column.field_id


def _field(column: RowColumn) -> pa.Field:
    """The column with its field ids; nothing is required but the keys of maps, as in DuckLake's files."""
    return pa.field(column.name, _file_type(column), metadata={_FIELD_ID: str(column.field_id).encode()})


def _file_type(column: RowColumn) -> pa.DataType:
    if isinstance(column.type, PrimitiveType):
        return pa.uuid() if column.type.name == "uuid" else arrow_type(column)
    parts = [_field(child) for child in stored(column.children)]
    if isinstance(column.type, StructType):
        return pa.struct(parts)
    if isinstance(column.type, ListType):
        return pa.list_(parts[0])
    return pa.map_(parts[0].with_nullable(False), parts[1])
