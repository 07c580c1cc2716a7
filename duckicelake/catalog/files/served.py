"""Writes the virtual Parquet files that serve rows which DuckLake keeps in Postgres (design §6.16).

They lie under the table's metadata folder, are immutable and named by their content. Row ids and sequence numbers are
in the file, so it can be registered in DuckLake like any other once its rows have left Postgres.
"""

import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from duckicelake.bridge.caught_up import ServedFiles, new_file
from duckicelake.bridge.columns import check_written
from duckicelake.bridge.entries import column_metrics
from duckicelake.bridge.evolve import with_unpartitioned
from duckicelake.bridge.native import NativeStep
from duckicelake.bridge.numbering import Numbering
from duckicelake.bridge.parquet_types import duckdb_type, field_ids, path_of
from duckicelake.bridge.stats import LakeMetrics
from duckicelake.catalog.files.beside import FilesBeside
from duckicelake.catalog.services import Services
from duckicelake.errors import DamagedTable, InvalidRequest
from duckicelake.iceberg.manifest import DataFile, FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.partition import partition_type
from duckicelake.iceberg.schema import Schema
from duckicelake.lake import native
from duckicelake.lake.additions import NewFile, NewVirtualFile
from duckicelake.lake.model import Column, ColumnStats, InlinedKey, children_of
from duckicelake.lake.rows import inlined
from duckicelake.storage.csv_rows import CopiedRows, ParquetColumn
from duckicelake.storage.parquet import ParquetRows, in_room, write_rows


def serve_rows(
    services: Services,
    beside: FilesBeside,
    table_id: int,
    step: NativeStep,
    metadata: TableMetadata,
    numbers: Numbering,
) -> tuple[TableMetadata, ServedFiles]:
    """Have the step's new inlined rows written as Parquet, a file for each inlined table, listed as unpartitioned."""
    files: list[NewFile] = []
    virtual: list[NewVirtualFile] = []
    for file_id, keys in step.rows:
        columns, rows = _written(services, table_id, keys, metadata.schema())
        name = f"{numbers.snapshot_id}-{{}}-inlined.parquet"
        path = beside.add(metadata, name, rows.data, keys[0].inlined_table)
        metadata, spec = with_unpartitioned(metadata)
        data_file = replace(_data_file(path, rows, columns, metadata), first_row_id=min(key.row_id for key in keys))
        files.append(new_file(file_id, data_file, spec.spec_id, partition_type(spec, metadata.schema()), numbers, None))
        virtual.append(NewVirtualFile(file_id, keys))
    return metadata, ServedFiles(files=tuple(files), virtual_files=tuple(virtual))


def _written(
    services: Services, table_id: int, keys: Sequence[InlinedKey], schema: Schema
) -> tuple[tuple[Column, ...], ParquetRows]:
    """The columns of an inlined table that the schema has, and the rows with their lineage.

    In format version 3 a DuckLake snapshot's id is its sequence number.
    """
    name = keys[0].inlined_table
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        with in_room(), path.open("wb") as file, services.database.statement() as cursor:
            columns = native.columns(cursor, table_id, inlined.columns_at(cursor, table_id, name))
            columns, gone = _still_there(columns, schema)
            check_written(columns, schema, "inlined rows")
            copied = inlined.copy_rows(cursor, keys, children_of(columns, None), file)
        try:
            return columns, write_rows(CopiedRows(path, copied.longest, parquet_columns(_apart(columns), gone)))
        except InvalidRequest as error:
            raise DamagedTable(f"{name}, a table of its inlined rows: {error}") from error


def _still_there(columns: Sequence[Column], schema: Schema) -> tuple[tuple[Column, ...], frozenset[int]]:
    """(the columns that the schema has with all that is in them, as structs are read whole; ids of what it lacks)."""
    top, known = {field.id for field in schema.fields}, schema.fields_by_id().keys()
    kept = tuple(column for column in columns if column.parent_column is not None or column.column_id in top)
    return kept, frozenset(column.column_id for column in kept) - known


def _apart(columns: Sequence[Column]) -> list[Column]:
    """The columns, with other names for those that have the full name of a field: PyIceberg reads no such file."""
    names = {column.column_name for column in columns if column.parent_column is None}
    return [
        replace(column, column_name=f"{column.column_name}_{column.column_id}")
        if column.parent_column is None and any(column.column_name.startswith(f"{name}.") for name in names)
        else column
        for column in columns
    ]


def parquet_columns(columns: Sequence[Column], gone: Collection[int] = ()) -> list[ParquetColumn]:
    """How top-level columns are written to Parquet; Unsupported if Iceberg can't read the type of one.

    gone: ids of fields that it needn't read.
    """
    return [
        ParquetColumn(
            name=column.column_name,
            type=duckdb_type(column, columns, gone),
            field_ids=field_ids(column, columns),
            has_bounds=not children_of(columns, column.column_id),
        )
        for column in children_of(columns, None)
    ]


def _data_file(path: str, rows: ParquetRows, columns: Sequence[Column], metadata: TableMetadata) -> DataFile:
    top = children_of(columns, None)
    stats = [
        ColumnStats(top[index].column_id, None, has_nan, low, high, None, values, nulls)
        for index, (values, nulls, low, high, has_nan) in rows.stats.items()
    ]
    stats += [
        ColumnStats(column.column_id, value_count=counts[0], null_count=counts[1])
        for column in columns
        if column.parent_column is not None and (counts := rows.nested.get(path_of(column, columns))) is not None
    ]
    metrics = LakeMetrics(metadata.schema().leaves()).of(stats)
    return DataFile(
        content=FileContent.DATA,
        file_path=path,
        file_format="PARQUET",
        partition=(),
        record_count=rows.record_count,
        file_size_in_bytes=len(rows.data),
        **column_metrics(metrics),
    )
