"""PURE. Iceberg schemas as Delta's: column mapping by id, with the names that the columns have in the files.

Refused is what Delta, or one of its readers, would not read as Iceberg reads it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from duckicelake.delta.file_names import NamesInFile
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
_PLAIN: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


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


def are_names_plain(schemas: Sequence[Schema]) -> bool:
    """Whether files can't disagree: in all schemas every field has one name, and every name one field.

    No schema of before is missing, and names are such that all writers put them into files as they are: Iceberg's spell
    others in letters, digits and underscores.
    """
    if {schema.schema_id for schema in schemas} != set(range(len(schemas))):
        return False
    by_id: dict[int, str] = {}
    by_name: dict[tuple[int | None, str], int] = {}
    for schema in schemas:
        for field_id, parent, name in _named(schema):
            if not _PLAIN.fullmatch(name):
                return False
            if by_id.setdefault(field_id, name) != name or by_name.setdefault((parent, name), field_id) != field_id:
                return False
    return True


def _named(schema: Schema) -> Iterator[tuple[int, int | None, str]]:
    """Every field of a struct: its id, that of what it is in, its name as it compares to others."""
    parents = schema.parents()
    fields = schema.fields_by_id()
    return ((id_, parents[id_], fields[id_].name) for id_ in fields if _is_named(fields, parents[id_]))


def _is_named(fields: Mapping[int, NestedField], parent: int | None) -> bool:
    return parent is None or isinstance(fields[parent].type, StructType)


def physical_names(schema: Schema, files: Iterable[tuple[str, NamesInFile]]) -> dict[int, str]:
    """What the files, given with their paths, all call the fields; Unsupported where they don't agree.

    Delta has one name for all files, by which delta-rs and DuckDB go even where columns are mapped by id.
    """
    found: dict[int, str] = {}
    taken: dict[tuple[int | None, str], int] = {}
    for path, names in files:
        for (parent, name), field_id in names.items():
            if field_id is None:
                raise Unsupported(
                    "delta-out", f"{path} has a column {name} without a field id, by which Delta maps columns"
                )
            if found.setdefault(field_id, name) != name or taken.setdefault((parent, name), field_id) != field_id:
                raise Unsupported("delta-out", _disagreement(path, name, found[field_id]))
    names_of = schema.full_names()
    for field_id, parent, name in _named(schema):
        if field_id not in found and taken.get((parent, name), field_id) != field_id:
            found[field_id] = f"{name}-{field_id}"
    return {field_id: name for field_id, name in found.items() if field_id in names_of}


def _disagreement(path: str, name: str, other: str) -> str:
    return (
        f"{path} has a column {name!r} that means what other files call {other!r}, or files mean different columns by "
        "that name, as one was renamed, or dropped and added: most of Delta's readers go by one name for all files. "
        "When all data files have been rewritten, by a compaction, they agree"
    )
