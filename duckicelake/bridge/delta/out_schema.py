"""PURE. Iceberg schemas as Delta's: column mapping by id, with the names that the columns have in the files.

Refused is what Delta, or one of its readers, would not read as Iceberg reads it.
"""

from collections.abc import Mapping
from typing import Final

from duckicelake.delta.schema import (
    COMMENT,
    FIELD_ID,
    PHYSICAL_NAME,
    DeltaArray,
    DeltaDecimal,
    DeltaField,
    DeltaMap,
    DeltaPrimitive,
    DeltaStruct,
    DeltaType,
)
from duckicelake.errors import Unsupported
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

_TYPES: Final = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}


def delta_schema(schema: Schema, physical: Mapping[int, str]) -> DeltaStruct:
    """The schema as Delta's; physical: names of fields in the files, by id. Unsupported names what can't be."""
    names = schema.full_names()
    for field in schema.fields_by_id().values():
        _check_default(field, names[field.id])
    return DeltaStruct(tuple(_field(field, physical, names) for field in schema.fields))


def _check_default(field: NestedField, name: str) -> None:
    if field.initial_default is not None:
        raise Unsupported(
            "delta-out",
            f"Column {name} reads as {field.initial_default!r} in rows of before it was added, "
            "and as null for Delta's readers, which know no such default",
        )


def _field(field: NestedField, physical: Mapping[int, str], names: Mapping[int, str]) -> DeltaField:
    metadata = {FIELD_ID: field.id, PHYSICAL_NAME: physical.get(field.id, field.name)}
    comment = {} if field.doc is None else {COMMENT: field.doc}
    kind = _type(field.type, names[field.id], physical, names)
    return DeltaField(field.name, kind, not field.required, {**metadata, **comment})


def _type(kind: IcebergType, name: str, physical: Mapping[int, str], names: Mapping[int, str]) -> DeltaType:
    match kind:
        case StructType():
            return DeltaStruct(tuple(_field(each, physical, names) for each in kind.fields))
        case ListType():
            return DeltaArray(_type(kind.element, f"{name}.element", physical, names), not kind.element_required)
        case MapType():
            key = _type(kind.key, f"{name}.key", physical, names)
            return DeltaMap(key, _type(kind.value, f"{name}.value", physical, names), not kind.value_required)
    return _primitive(kind, name)


def _primitive(kind: PrimitiveType, name: str) -> DeltaType:
    if kind.name == "decimal":
        return DeltaDecimal(kind.precision or 0, kind.scale or 0)
    if kind.name not in _TYPES:
        raise Unsupported("delta-out", f"Column {name} is of type {kind}, and Delta has none like it")
    return DeltaPrimitive(_TYPES[kind.name])
