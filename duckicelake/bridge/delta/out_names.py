"""PURE. What columns are called in files, which Delta has one name for (protocol, "Column Mapping")."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from duckicelake.delta.file_names import NamesInFile
from duckicelake.delta.schema import DeltaArray, DeltaField, DeltaMap, DeltaStruct, DeltaType
from duckicelake.errors import Unsupported
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, StructType

_PLAIN: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


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


def names_told(columns: DeltaStruct, schemas: Iterable[Schema]) -> NamesInFile:
    """The names that a log told of, which its files all have; schemas: all that the table had."""
    parents = {field_id: parent for schema in schemas for field_id, parent in schema.parents().items()}
    ids = ((field.physical_name, field.id) for field in _fields(columns))
    return {(parents.get(field_id), name): field_id for name, field_id in ids if field_id is not None}


def ids_of_names(schema: Schema) -> set[int]:
    """The ids of what has a name: columns, and fields of structs."""
    return {field_id for field_id, _, _ in _named(schema)}


def _fields(kind: DeltaType) -> Iterator[DeltaField]:
    match kind:
        case DeltaStruct():
            for field in kind.fields:
                yield field
                yield from _fields(field.type)
        case DeltaArray():
            yield from _fields(kind.element)
        case DeltaMap():
            yield from _fields(kind.key)
            yield from _fields(kind.value)
