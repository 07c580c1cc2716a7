"""What a data file of version 3 stores: default values, row lineage, and nothing for columns of unknown type."""

from collections.abc import Callable, Iterable
from itertools import chain, count
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.io.pyarrow
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField, UnknownType

from duckicelake.pyiceberg_v3.lineage import FIELDS, ROW_ID, with_fields
from duckicelake.pyiceberg_v3.patching import Patch, patch
from duckicelake.pyiceberg_v3.records import V3
from duckicelake.pyiceberg_v3.upserting import with_kept_row_ids


@patch(pyiceberg.io.pyarrow, "_dataframe_to_data_files")
def _dataframe_to_data_files(original: Callable[..., Iterable[DataFile]]) -> Any:
    """PyIceberg stores the columns of the table's schema, all of them and no others, null for those that rows lack."""

    def dataframe_to_data_files(
        table_metadata: TableMetadata,
        df: pa.Table | pa.RecordBatchReader,
        io: FileIO,
        write_uuid: UUID | None = None,
        counter: "count[int] | None" = None,
    ) -> Iterable[DataFile]:
        if table_metadata.format_version < V3:
            return original(table_metadata, df, io, write_uuid, counter)
        counter = count(0) if counter is None else counter
        parts = stored_parts(df, table_metadata.schema())
        written = (original(storing(table_metadata, part.schema), part, io, write_uuid, counter) for part in parts)
        return chain.from_iterable(written)

    return dataframe_to_data_files


def stored_parts(
    df: pa.Table | pa.RecordBatchReader, schema: Schema
) -> Iterable[pa.Table] | Iterable[pa.RecordBatchReader]:
    """What is stored of rows, those that have row ids apart from those that have none.

    In one file they would be right as well, but DuckLake takes a missing id of such a file for null.
    """
    if not isinstance(df, pa.Table):
        return [stored_stream(df, schema)]
    rows = stored(with_kept_row_ids(df), schema)
    if ROW_ID not in lineage_fields(rows.schema, schema):
        return [rows]
    is_known = pc.is_valid(rows[ROW_ID.name])
    parts = rows.filter(is_known), rows.filter(pc.invert(is_known)).drop_columns([ROW_ID.name])
    return [part for part in parts if len(part)]


def stored(rows: pa.Table, schema: Schema) -> pa.Table:
    """Rows with the `write-default` of each column that they lack (spec, Default values), without unknown ones."""
    unknown = [field.name for field in schema.fields if is_unknown(field) and field.name in rows.column_names]
    rows = rows.drop_columns(unknown)
    for field in schema.fields:
        if field.write_default is not None and field.name not in rows.column_names:
            rows = rows.append_column(field.name, repeated(field, len(rows)))
    return rows


def stored_stream(reader: pa.RecordBatchReader, schema: Schema) -> pa.RecordBatchReader:
    tables = (stored(pa.Table.from_batches([batch]), schema) for batch in reader)
    batches = (batch for table in tables for batch in table.to_batches())
    return pa.RecordBatchReader.from_batches(stored(reader.schema.empty_table(), schema).schema, batches)


def storing(metadata: TableMetadata, columns: pa.Schema) -> TableMetadata:
    """Metadata by whose current schema PyIceberg stores these columns."""
    schema = metadata.schema()
    known = [field for field in schema.fields if not is_unknown(field)]
    current = with_fields(schema, known + lineage_fields(columns, schema))
    schemas = [current if each.schema_id == current.schema_id else each for each in metadata.schemas]
    return metadata.model_copy(update={"schemas": schemas})


def lineage_fields(columns: pa.Schema, schema: Schema) -> list[NestedField]:
    """Those that the columns are; a table's own column of such a name is none."""
    return [field for field in FIELDS if field.name in columns.names and field.name not in schema.column_names]


def is_unknown(field: NestedField) -> bool:
    return isinstance(field.field_type, UnknownType)


def repeated(field: NestedField, times: int) -> pa.Array:
    kind = schema_to_pyarrow(field.field_type, include_field_ids=False)
    return pa.repeat(pa.scalar(field.write_default, kind), times)


PATCHES: tuple[Patch, ...] = (_dataframe_to_data_files,)
