"""PURE. Columns of posted rows: Iceberg fields with DuckLake's types, and their Arrow types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from duckicelake.extras import DeferredModule
from duckicelake.iceberg.primitives import TRAITS, PrimitiveTypeTraits, TypeFamily, select_names
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, ListType, NestedField, PrimitiveType, StructType, list_children
from duckicelake.iceberg.values import Json
from duckicelake.lake.model import Column, find_children

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = DeferredModule("pyarrow")


_NO_DEFAULTS = {None, "NULL"}
_INT32_BYTES: Final = 4
_UUID_BYTES: Final = 16
_UUIDS: Final = select_names("uuid")
_UNKNOWN = Column(0, None, "", "unknown", nulls_allowed=True)
TICKS: Final = {
    name: "int32" if traits.size == _INT32_BYTES else "int64" for name, traits in TRAITS.items() if traits.is_counted
}
"""Types that Arrow keeps as integers under another name."""
_UNITS: Final = {6: "us", 9: "ns"}
"""Arrow's units of time by decimals of a second."""
_ARROW_TYPES: Final[Mapping[TypeFamily, Callable[[PrimitiveType, PrimitiveTypeTraits], pa.DataType]]] = {
    "boolean": lambda _kind, _traits: pa.bool_(),
    "integer": lambda _kind, traits: pa.int32() if traits.size == _INT32_BYTES else pa.int64(),
    "float": lambda _kind, traits: pa.float32() if traits.size == _INT32_BYTES else pa.float64(),
    "decimal": lambda kind, _traits: pa.decimal128(kind.precision, kind.scale),
    "date": lambda _kind, _traits: pa.date32(),
    "time": lambda _kind, traits: pa.time64(_UNITS[traits.digits]),
    "timestamp": lambda _kind, traits: pa.timestamp(_UNITS[traits.digits], "UTC" if traits.has_zone else None),
    "string": lambda _kind, _traits: pa.string(),
    "uuid": lambda _kind, _traits: pa.binary(_UUID_BYTES),
    "bytes": lambda kind, _traits: pa.binary() if kind.length is None else pa.binary(kind.length),
}


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column or a field in one: a struct's children are its fields, a list's its element, a map's key and value.

    declared: DuckLake's type, which may be narrower than Iceberg's `type`. default: the JSON value for rows that don't
    name the column. computed_default: an expression for the same, which only DuckDB evaluates.
    """

    field_id: int
    name: str
    type: IcebergType
    required: bool
    declared: str
    default: Json = None
    computed_default: str | None = None
    children: tuple[RowColumn, ...] = ()


def build_row_columns(schema: Schema, columns: Sequence[Column]) -> tuple[RowColumn, ...]:
    """Build the columns of a table in DuckLake's order, then those of type unknown, which DuckLake doesn't have."""
    return _build_children(schema.struct, None, columns)


def _build_children(kind: IcebergType, parent: int | None, columns: Sequence[Column]) -> tuple[RowColumn, ...]:
    fields = {field.id: field for field in list_children(kind)}
    known = {column.column_id: column for column in find_children(columns, parent)}
    ids = [*known, *(field_id for field_id in fields if field_id not in known)]
    return tuple(_build_row_column(fields[field_id], known.get(field_id, _UNKNOWN), columns) for field_id in ids)


def _build_row_column(field: NestedField, column: Column, columns: Sequence[Column]) -> RowColumn:
    is_computed = field.write_default is None and column.default_value not in _NO_DEFAULTS
    return RowColumn(
        field_id=field.id,
        name=field.name,
        type=field.type,
        required=field.required,
        declared=column.column_type,
        default=field.write_default,
        computed_default=column.default_value if is_computed else None,
        children=_build_children(field.type, field.id, columns),
    )


def is_storable(column: RowColumn) -> bool:
    """Return whether the column can hold values: a list of variants can't, a struct can if one of its fields can.

    The server writes no values of opaque types, neither inlined nor in files. Such a column can only be null.
    """
    if isinstance(column.type, PrimitiveType):
        return not column.type.traits.is_opaque
    check = any if isinstance(column.type, StructType) else all
    return bool(column.children) and check(map(is_storable, column.children))


def select_stored(columns: Sequence[RowColumn]) -> tuple[RowColumn, ...]:
    """Select the columns that can hold values."""
    return tuple(filter(is_storable, columns))


def to_arrow_type(column: RowColumn) -> pa.DataType:
    """Return the Arrow type of a storable column's values, nullable throughout."""
    kind = column.type
    if isinstance(kind, PrimitiveType):
        return _ARROW_TYPES[kind.traits.family](kind, kind.traits)
    parts = [pa.field(child.name, to_arrow_type(child)) for child in select_stored(column.children)]
    if isinstance(kind, StructType):
        return pa.struct(parts)
    if isinstance(kind, ListType):
        return pa.list_(parts[0])
    return pa.map_(parts[0].type, parts[1].type)


def to_single_value(kind: PrimitiveType, value: Any) -> Any:
    """Convert a value in memory to the form of `iceberg.values`."""
    return UUID(bytes=value) if kind.name in _UUIDS else value


def to_python_values(array: pa.Array, column: RowColumn) -> list[Any]:
    """Convert an array of the column's Arrow type to values in memory."""
    kind = column.type
    if isinstance(kind, PrimitiveType):
        ticks = TICKS.get(kind.name)
        values: list[Any] = (array if ticks is None else array.view(ticks)).to_pylist()
        return values
    if isinstance(kind, StructType):
        fields = [
            to_python_values(array.field(index), child) for index, child in enumerate(select_stored(column.children))
        ]
        return _mask_invalid(array, list(zip(*fields, strict=True)))
    if isinstance(kind, ListType):
        (element,) = column.children
        return _slice_values(array, to_python_values(array.values, element))
    key, value = column.children
    pairs = zip(to_python_values(array.keys, key), to_python_values(array.items, value), strict=True)
    return _slice_values(array, list(pairs))


def _slice_values(array: pa.Array, values: list[Any]) -> list[Any]:
    offsets = array.offsets.to_pylist()
    return _mask_invalid(array, [values[start:end] for start, end in pairwise(offsets)])


def _mask_invalid(array: pa.Array, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]
