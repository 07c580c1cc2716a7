"""PURE. A table's columns as rows come into them: Iceberg's fields with DuckLake's types and order."""

from collections.abc import Sequence
from dataclasses import dataclass

from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, NestedField, children
from duckicelake.iceberg.values import Json
from duckicelake.lake.model import Column, children_of

_NO_DEFAULTS = {None, "NULL"}
_UNKNOWN = Column(0, None, "", "unknown", nulls_allowed=True)


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column or a field in one: a struct's children are its fields, a list's its element, a map's key and value.

    `declared` is DuckLake's type, which may be narrower than Iceberg's `type`. `default` is what rows get that don't
    name the column, as JSON; `computed_default` an expression that does the same, and that only DuckDB evaluates.
    """

    field_id: int
    name: str
    type: IcebergType
    required: bool
    declared: str
    default: Json = None
    computed_default: str | None = None
    children: tuple["RowColumn", ...] = ()


def row_columns(schema: Schema, columns: Sequence[Column]) -> tuple[RowColumn, ...]:
    """The columns of a table in DuckLake's order, then those of type unknown, which DuckLake doesn't have."""
    return _inside(schema.struct, None, columns)


def _inside(kind: IcebergType, parent: int | None, columns: Sequence[Column]) -> tuple[RowColumn, ...]:
    fields = {field.id: field for field in children(kind)}
    known = {column.column_id: column for column in children_of(columns, parent)}
    ids = [*known, *(field_id for field_id in fields if field_id not in known)]
    return tuple(_row_column(fields[field_id], known.get(field_id, _UNKNOWN), columns) for field_id in ids)


def _row_column(field: NestedField, column: Column, columns: Sequence[Column]) -> RowColumn:
    is_computed = field.write_default is None and column.default_value not in _NO_DEFAULTS
    return RowColumn(
        field_id=field.id,
        name=field.name,
        type=field.type,
        required=field.required,
        declared=column.column_type,
        default=field.write_default,
        computed_default=column.default_value if is_computed else None,
        children=_inside(field.type, field.id, columns),
    )
