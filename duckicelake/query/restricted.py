"""PURE. Write what a restricted caller reads in the place of a table: a SELECT of the rows and values that it may see.

Rows are filtered first, then columns are masked, and both happen before anything that the caller's query says. DuckDB
moves no condition of a query below a LIMIT, so that none is computed for a hidden row, and none fails or waits on one.
It does read statistics there, which know hidden rows: `RESTRICTED_SETTINGS` turn off what reads them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from duckicelake.bridge.values.types import quote_identifier, to_lake_type
from duckicelake.errors import CatalogError, ForbiddenError
from duckicelake.iceberg.expressions import parse_predicate
from duckicelake.iceberg.read_restrictions import Mask, Restriction
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import ListType, NestedField, PrimitiveType, StructType, list_children, walk_fields
from duckicelake.lake.ducklake.database import quote_literal
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.filters import FilterColumn, bind_filter, write_condition
from duckicelake.sql_dialects.masks import write_mask
from duckicelake.sql_dialects.placeholders import DUCKDB, format_type_name

_BARRIER: Final = f"LIMIT {2**63 - 1}"
"""More rows than there are."""
RESTRICTED_SETTINGS: Final[Mapping[str, Any]] = {
    "disabled_optimizers": "statistics_propagation,join_filter_pushdown,row_group_pruner,top_n",
}
"""DuckDB's settings in processes of principals with restrictions.

By statistics, a condition that no row of the table meets costs nothing, hidden rows included; joins and ORDER BY with
LIMIT carry conditions of their own below a LIMIT. The time of a query would tell the bounds of hidden rows.
"""


def write_visible_rows(source: str, schema: Schema, restriction: Restriction, salt: bytes) -> str:
    """Write the SELECT of a table's rows and values that are left by a restriction.

    source: what stands behind FROM. schema: its columns. salt: random bytes of the query.
    Raises ForbiddenError for filters that the columns don't take.
    """
    found = restriction.fit(schema)
    columns = ", ".join(_write_column(field, found, salt) for field in schema.fields)
    condition = " AND ".join(_write_filter(filter_, schema) for filter_ in found.filters) or "true"
    return f"SELECT {columns} FROM {source} WHERE {condition} {_BARRIER}"


def take_exact_types(schema: Schema, known: Schema) -> Schema:
    """Return a schema of DuckLake's columns with Iceberg's types of the same columns, where DuckLake's are alike."""
    types = {field.id: field.type for field in known.fields}
    return schema.replace_fields(fields=tuple(_take_exact_type(field, types.get(field.id)) for field in schema.fields))


def _take_exact_type(field: NestedField, known: Any) -> NestedField:
    if not isinstance(known, PrimitiveType) or not isinstance(field.type, PrimitiveType):
        return field
    is_alike = to_lake_type(known) == to_lake_type(field.type)
    return field.replace_fields(type=known) if is_alike else field


def write_masked_value(value: str, field: NestedField, masks: Mapping[int, Mask], salt: bytes) -> str | None:
    """Write the value of a column with its own mask, or with those of the fields in it; None if it has none.

    value: its SQL. What has no mask keeps its type. masks: by field id.
    """
    written = _ValueWriter(masks, salt).write(value, field)
    return None if written == value else written


def _write_column(field: NestedField, restriction: Restriction, salt: bytes) -> str:
    name = quote_identifier(field.name)
    written = _ValueWriter(restriction.masks, salt).write(name, field)
    return name if written == name else f"{written} AS {name}"


@dataclass(slots=True)
class _ValueWriter:
    """Writes the value of a column with its own mask, or with those of the fields in it."""

    masks: Mapping[int, Mask]
    salt: bytes
    variables: int = 0

    def write(self, value: str, field: NestedField) -> str:
        """Write a value. value: its SQL; it is returned as it is if nothing in the field is masked."""
        mask = self.masks.get(field.id)
        if mask is not None:
            return write_mask(mask, value, field.type, self.salt)
        if not any(part.id in self.masks for part, _ in walk_fields(field.type)):
            return value
        match field.type:
            case StructType():
                return f"CASE WHEN {value} IS NOT NULL THEN {self._write_struct(value, field.type)} END"
            case ListType():
                return self._write_list(value, list_children(field.type)[0])
            case _:
                return self._write_map(value, list_children(field.type)[1])

    def _write_struct(self, value: str, kind: StructType) -> str:
        members = (
            f"{quote_identifier(part.name)}: {self.write(f'struct_extract({value}, {quote_literal(part.name)})', part)}"
            for part in kind.fields
        )
        return f"{{{', '.join(members)}}}"

    def _write_list(self, value: str, element: NestedField) -> str:
        name = self._name_variable()
        return f"list_transform({value}, lambda {name}: {self.write(name, element)})"

    def _write_map(self, value: str, of: NestedField) -> str:
        """Write a map; no mask is on its keys, or in them."""
        name = self._name_variable()
        entry = f"{{'key': {name}.key, 'value': {self.write(f'{name}.value', of)}}}"
        entries = f"list_transform(map_entries({value}), lambda {name}: {entry})"
        return f"CASE WHEN {value} IS NOT NULL THEN map_from_entries({entries}) END"

    def _name_variable(self) -> str:
        self.variables += 1
        return f"part_{self.variables}"


def _write_filter(expression: Any, schema: Schema) -> str:
    """Write a filter as a condition. Its constants are no one's business: an error doesn't repeat them."""
    columns = [*list_filter_columns(schema.fields)]
    try:
        bound = bind_filter(parse_predicate(expression), columns)
    except CatalogError:
        raise ForbiddenError("A row filter of the table doesn't fit the columns that it has at this snapshot") from None
    return write_condition(
        bound, {column.field_id: build_filter_column(column, quote_identifier(column.name)) for column in columns}
    )


def cast_to_column(value: str, field: NestedField) -> str:
    """Write SQL that casts a value to the type that DuckDB has for a column."""
    return f"CAST({value} AS {format_type_name(DUCKDB, field.type)})"


def list_filter_columns(fields: Iterable[NestedField]) -> Iterator[RowColumn]:
    """List the columns that filters may name."""
    for field in fields:
        if isinstance(field.type, PrimitiveType) and not field.type.traits.is_opaque:
            yield RowColumn(field.id, field.name, field.type, field.required, to_lake_type(field.type))


def build_filter_column(column: RowColumn, value: str) -> FilterColumn:
    """Build the value of a column as its Iceberg type, as which filters compare it: DuckLake's may be narrower.

    value: its SQL.
    """
    assert isinstance(column.type, PrimitiveType)
    type_name = format_type_name(DUCKDB, column.type)
    return FilterColumn(column.type, f"CAST({value} AS {type_name})", type_name)
