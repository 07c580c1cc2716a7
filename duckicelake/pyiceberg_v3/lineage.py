"""The fields of row lineage, and their values for the rows of a data file."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

ROW_ID: Final = NestedField(2147483540, "_row_id", LongType(), required=False)
LAST_UPDATED: Final = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)
FIELDS: Final = (ROW_ID, LAST_UPDATED)


def with_fields(schema: Schema, fields: Sequence[NestedField]) -> Schema:
    """A schema of other fields, with the same id."""
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def inherit(rows: pa.Table, positions: pa.Array, first_row_id: int | None, sequence_number: int | None) -> pa.Table:
    """Fill what the file doesn't say (spec, Row Lineage Assignment); columns that stay without a value are dropped.

    `positions` are the rows' places in their file, which has no first row id if that isn't assigned yet.
    """
    if first_row_id is not None:
        rows = filled(rows, ROW_ID.name, pc.add(positions, first_row_id))
        rows = filled(rows, LAST_UPDATED.name, pa.scalar(sequence_number, pa.int64()))
    return rows.drop_columns([field.name for field in FIELDS if rows[field.name].null_count == len(rows)])


def filled(rows: pa.Table, name: str, values: pa.Array | pa.Scalar) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, pc.coalesce(rows[name], values))
