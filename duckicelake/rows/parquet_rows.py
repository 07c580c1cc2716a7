"""PURE. Rows of a small Parquet file that has exactly a table's columns, each under its field id."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from duckicelake.errors import InvalidRequest
from duckicelake.rows.arrow_rows import read_arrow
from duckicelake.rows.batch import Batch
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.kinds import stored
from duckicelake.rows.layout import Layout

MAX_BYTES: Final = 16 << 20
"""Of a file, and of its values; a dictionary can make many large values of few bytes, so few rows are read at once."""
_STEP: Final = 16
_FIELD_ID: Final = b"PARQUET:field_id"


def read_parquet(path: Path, layout: Layout, row_count: int) -> Batch:
    """The rows; InvalidRequest if they are others, too much, of other columns, or don't fit the table."""
    try:
        with pq.ParquetFile(path) as file:
            _check_size(file.metadata, row_count)
            table = _read(file)
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequest(f"The file can't be read as Parquet: {error}") from error
    return read_arrow(_named(table, layout), layout, "reject")


def _check_size(metadata: pq.FileMetaData, row_count: int) -> None:
    if metadata.num_rows != row_count:
        raise InvalidRequest(f"The file has {metadata.num_rows} rows, not {row_count}")
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    if sum(group.total_byte_size for group in groups) > MAX_BYTES:
        raise InvalidRequest(f"The file unpacks to more than {MAX_BYTES} bytes")


def _read(file: pq.ParquetFile) -> pa.Table:
    batches, size = [], 0
    for batch in file.iter_batches(batch_size=_STEP):
        size += batch.nbytes
        if size > MAX_BYTES:
            raise InvalidRequest(f"The file has more than {MAX_BYTES} bytes of values")
        batches.append(batch)
    table = pa.Table.from_batches(batches, file.schema_arrow)
    table.validate(full=True)
    return table


def _named(table: pa.Table, layout: Layout) -> pa.Table:
    """The table with the columns' names of now."""
    by_id = {column.field_id: column for column in layout.stored}
    found = [_field_id(field) for field in table.schema]
    if sorted(found) != sorted(by_id):
        raise InvalidRequest("The file has other columns than the table")
    for field, field_id in zip(table.schema, found, strict=True):
        _check_parts(field.type, by_id[field_id])
    return table.rename_columns([by_id[field_id].name for field_id in found])


def _check_parts(kind: pa.DataType, column: RowColumn) -> None:
    """That what is inside has the ids that it has now, and fields their names."""
    children = stored(column.children)
    parts = _parts(kind)
    if [_field_id(part) for part in parts] != [child.field_id for child in children]:
        raise InvalidRequest(f"The file has other fields in {column.name} than the table")
    for part, child in zip(parts, children, strict=True):
        if pa.types.is_struct(kind) and part.name != child.name:
            raise InvalidRequest(f"The file calls {child.name} in {column.name} {part.name}")
        _check_parts(part.type, child)


def _parts(kind: pa.DataType) -> Sequence[pa.Field]:
    if pa.types.is_struct(kind):
        return [kind.field(index) for index in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if pa.types.is_list(kind) or pa.types.is_large_list(kind) else []


def _field_id(field: pa.Field) -> int:
    return int((field.metadata or {}).get(_FIELD_ID, b"-1"))
