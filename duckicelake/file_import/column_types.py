"""Translate types between DuckDB and Iceberg, and decide which columns a table gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from duckicelake.client.schema_text import parse_columns
from duckicelake.errors import BadColumnError, BadInputError

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

_TO_DUCKDB: Final[Mapping[type, str]] = {
    BooleanType: "BOOLEAN",
    IntegerType: "INTEGER",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    DateType: "DATE",
    TimeType: "TIME",
    TimestampType: "TIMESTAMP",
    TimestamptzType: "TIMESTAMP WITH TIME ZONE",
    StringType: "VARCHAR",
    UUIDType: "UUID",
    BinaryType: "BLOB",
    FixedType: "BLOB",
}
_NARROWER: Final[Mapping[type, tuple[type, ...]]] = {
    LongType: (IntegerType,),
    DoubleType: (FloatType, IntegerType),
    TimestampType: (DateType,),
}
"""Types whose values, as a load writes them, are values of another. Decimals are compared by their digits."""
_INTEGER_DIGITS: Final[Mapping[type, int]] = {IntegerType: 10, LongType: 19}
_FROM_DUCKDB: Final[Mapping[str, IcebergType]] = {
    "boolean": BooleanType(),
    "tinyint": IntegerType(),
    "smallint": IntegerType(),
    "integer": IntegerType(),
    "utinyint": IntegerType(),
    "usmallint": IntegerType(),
    "uinteger": LongType(),
    "bigint": LongType(),
    "ubigint": DecimalType(20, 0),
    "hugeint": DecimalType(38, 0),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "time": TimeType(),
    "timestamp": TimestampType(),
    **{f"timestamp_{unit}": TimestampType() for unit in ("s", "ms", "ns")},
    "timestamp with time zone": TimestamptzType(),
    "varchar": StringType(),
    "enum": StringType(),
    "uuid": UUIDType(),
    "blob": BinaryType(),
}
_MAX_PRECISION: Final = 38


def to_duckdb_type(type_: IcebergType) -> str:
    """Return the type in DuckDB's SQL. Raises BadColumnError for one that files can't be loaded into."""
    if isinstance(type_, DecimalType):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if isinstance(type_, ListType):
        return f"{to_duckdb_type(type_.element_type)}[]"
    if isinstance(type_, MapType):
        return f"MAP({to_duckdb_type(type_.key_type)}, {to_duckdb_type(type_.value_type)})"
    if isinstance(type_, StructType):
        fields = ", ".join(f"{quote_name(one.name)} {to_duckdb_type(one.field_type)}" for one in type_.fields)
        return f"STRUCT({fields})"
    found = _TO_DUCKDB.get(type(type_))
    if found is None:
        raise BadColumnError(f"Columns of type {type_} can't be loaded from files: use duckicelake pipeline ingest")
    return found


def from_duckdb_type(type_: DuckDBPyType, name: str, ids: Iterator[int]) -> IcebergType:
    """Return Iceberg's type for one of DuckDB's. Raises BadColumnError, which names the column."""
    kind = type_.id
    children: Any = type_.children if kind in {"decimal", "list", "array", "map", "struct"} else ()
    if kind == "decimal":
        sizes = dict(children)
        return DecimalType(sizes["precision"], sizes["scale"])
    if kind in {"list", "array"}:
        inner = next(child for label, child in children if label == "child")
        return ListType(next(ids), from_duckdb_type(inner, f"{name}.element", ids), element_required=False)
    if kind == "map":
        parts = dict(children)
        key, value = (from_duckdb_type(parts[part], f"{name}.{part}", ids) for part in ("key", "value"))
        return MapType(next(ids), key, next(ids), value, value_required=False)
    if kind == "struct":
        fields = [
            NestedField(next(ids), part, from_duckdb_type(child, f"{name}.{part}", ids), required=False)
            for part, child in children
        ]
        return StructType(*fields)
    found = _FROM_DUCKDB.get(kind)
    if found is None:
        raise BadColumnError(f"Column {name} is of type {type_}, which Iceberg doesn't have: write the file without it")
    return found


def parse_schema(text: str) -> Schema:
    """Parse --schema. Raises BadInputError."""
    try:
        return Schema.model_validate(parse_columns(text))
    except ValueError as error:
        raise BadInputError(f"Invalid --schema {text!r}: {' '.join(str(error).split())[:300]}") from error


def build_schema(columns: Mapping[str, IcebergType]) -> Schema:
    """Build the schema of a new table. The catalog numbers the fields anew."""
    ids = count(1)
    return Schema(*(NestedField(next(ids), name, type_, required=False) for name, type_ in columns.items()))


def widen_type(here: IcebergType, come: IcebergType) -> IcebergType | None:
    """Return the type to which the table's column must be widened for values of another; None if it stays.

    Only as Iceberg widens: int to long, float to double, decimals of more digits.
    """
    if isinstance(here, IntegerType) and isinstance(come, LongType):
        return LongType()
    if isinstance(here, FloatType) and isinstance(come, DoubleType):
        return DoubleType()
    if isinstance(here, DecimalType) and isinstance(come, DecimalType) and come.scale <= here.scale:
        precision = min(_MAX_PRECISION, come.precision - come.scale + here.scale)
        return DecimalType(precision, here.scale) if precision > here.precision else None
    return None


def join_types(here: IcebergType, come: IcebergType) -> IcebergType:
    """Return a type for the values of both: a number as wide as needed, structs with the fields of both, else text."""
    if isinstance(here, StructType) and isinstance(come, StructType):
        fields = {field.name.lower(): field for field in here.fields}
        for field in come.fields:
            before = fields.setdefault(field.name.lower(), field)
            fields[field.name.lower()] = replace_type(before, join_types(before.field_type, field.field_type))
        return StructType(*fields.values())
    if isinstance(here, ListType) and isinstance(come, ListType):
        return ListType(here.element_id, join_types(here.element_type, come.element_type), element_required=False)
    if isinstance(here, MapType) and isinstance(come, MapType):
        key, value = join_types(here.key_type, come.key_type), join_types(here.value_type, come.value_type)
        return MapType(here.key_id, key, here.value_id, value, value_required=False)
    types = {str(here), str(come)}
    if len(types) == 1:
        return here
    if types <= {"int", "long", "float", "double"}:
        return DoubleType() if types & {"float", "double"} else LongType()
    return StringType()


def replace_type(field: NestedField, type_: IcebergType) -> NestedField:
    """Return a field of another type."""
    return NestedField(field.field_id, field.name, type_, required=field.required)


def check_nesting(name: str, here: IcebergType, come: IcebergType) -> None:
    """Raise BadColumnError if only one of a table's column and the files' has parts. Text may be JSON."""
    if here.is_primitive != come.is_primitive and not isinstance(come, StringType):
        raise BadColumnError(f"Column {name} is {here} in the table, but {come} in the files")


def holds_type(column: IcebergType, wanted: IcebergType) -> bool:
    """Return whether a column has all values of a type, whatever the ids of fields and their order.

    Fields of structs that only the column has don't count. A part that may be NULL isn't one that is NOT NULL.
    """
    if isinstance(column, StructType) and isinstance(wanted, StructType):
        fields = {field.name.lower(): field for field in column.fields}
        return all(
            (here := fields.get(field.name.lower())) is not None
            and _holds_part(here.field_type, field.field_type, here.required, field.required)
            for field in wanted.fields
        )
    if isinstance(column, ListType) and isinstance(wanted, ListType):
        return _holds_part(column.element_type, wanted.element_type, column.element_required, wanted.element_required)
    if isinstance(column, MapType) and isinstance(wanted, MapType):
        return holds_type(column.key_type, wanted.key_type) and _holds_part(
            column.value_type, wanted.value_type, column.value_required, wanted.value_required
        )
    return column == wanted or _holds_primitive(column, wanted)


def _holds_part(column: IcebergType, wanted: IcebergType, is_required: bool, is_required_wanted: bool) -> bool:
    return (is_required or not is_required_wanted) and holds_type(column, wanted)


def _holds_primitive(column: IcebergType, wanted: IcebergType) -> bool:
    if isinstance(column, DecimalType):
        digits, scale = _count_digits(wanted)
        return digits <= column.precision - column.scale and scale <= column.scale
    return type(wanted) in _NARROWER.get(type(column), ())


def _count_digits(wanted: IcebergType) -> tuple[float, int]:
    """Count a type's digits before and behind the point. Endless: it isn't exact, or no number."""
    if isinstance(wanted, DecimalType):
        return wanted.precision - wanted.scale, wanted.scale
    return _INTEGER_DIGITS.get(type(wanted), inf), 0


def build_field_ids(fields: Sequence[NestedField]) -> str:
    """Build the FIELD_IDS of DuckDB's COPY."""
    return "{" + ", ".join(f"{quote_name(one.name)}: {_field_id(one.field_id, one.field_type)}" for one in fields) + "}"


def _field_id(field_id: int, type_: IcebergType) -> str:
    if isinstance(type_, StructType):
        inner = [f"{quote_name(one.name)}: {_field_id(one.field_id, one.field_type)}" for one in type_.fields]
    elif isinstance(type_, ListType):
        inner = [f"element: {_field_id(type_.element_id, type_.element_type)}"]
    elif isinstance(type_, MapType):
        inner = [
            f"key: {_field_id(type_.key_id, type_.key_type)}",
            f"value: {_field_id(type_.value_id, type_.value_type)}",
        ]
    else:
        return str(field_id)
    return "{" + ", ".join([f"__duckdb_field_id: {field_id}", *inner]) + "}"


def quote_name(name: str) -> str:
    """Quote a name for DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Quote a text for DuckDB's SQL."""
    return "'" + text.replace("'", "''") + "'"
