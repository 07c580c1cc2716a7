"""Field names in Parquet files, which a Delta log must have one of for each column (protocol, "Column Mapping")."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from duckicelake.delta.log.schema import DeltaArray, DeltaField, DeltaMap, DeltaStruct, DeltaType
from duckicelake.errors import DamagedTableError, UnsupportedError
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, StructType

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa = DeferredModule("pyarrow")
    pq = DeferredModule("pyarrow.parquet")


NamesInFile = Mapping[tuple[int | None, str], int | None]
"""Ids of fields by their parent's id (None: the file) and their name."""
_ID: Final = b"PARQUET:field_id"
_RESERVED: Final = 2147483447
"""Ids above this one are of row lineage and the like, not of columns."""
_PLAIN: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def read_field_names(location: str, file: Path | bytes) -> NamesInFile:
    """Read the field names in a file, given as its path or its bytes; DamagedTableError: it isn't Parquet."""
    try:
        schema = pq.read_schema(io.BytesIO(file) if isinstance(file, bytes) else file)
    except (pa.ArrowException, OSError) as error:
        raise DamagedTableError(f"the data file {location} can't be read as Parquet: {error}") from error
    return {(parent, name): field_id for parent, name, field_id in _iterate_file_fields(None, list(schema))}


def _iterate_file_fields(parent: int | None, fields: list[pa.Field]) -> Iterator[tuple[int | None, str, int | None]]:
    for field in fields:
        field_id = _read_id(field)
        if field_id is None or field_id <= _RESERVED:
            yield parent, field.name, field_id
            yield from _iterate_nested(field)


def _iterate_nested(field: pa.Field) -> Iterator[tuple[int | None, str, int | None]]:
    """Yield the fields of structs in a field, also those in lists and maps."""
    kind = field.type
    if pa.types.is_struct(kind):
        yield from _iterate_file_fields(_read_id(field), [kind.field(index) for index in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        yield from _iterate_nested(kind.key_field)
        yield from _iterate_nested(kind.item_field)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _iterate_nested(kind.value_field)


def _read_id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(_ID)
    return None if text is None else int(text)


def has_plain_names(schemas: Sequence[Schema]) -> bool:
    """Return whether files must agree: in all schemas each field has one name, and each name one field.

    That requires all former schemas, and names that all writers leave as they are: letters, digits and underscores.
    """
    if {schema.schema_id for schema in schemas} != set(range(len(schemas))):
        return False
    by_id: dict[int, str] = {}
    by_name: dict[tuple[int | None, str], int] = {}
    for schema in schemas:
        for field_id, parent, name in _iterate_named(schema):
            if not _PLAIN.fullmatch(name):
                return False
            if by_id.setdefault(field_id, name) != name or by_name.setdefault((parent, name), field_id) != field_id:
                return False
    return True


def _iterate_named(schema: Schema) -> Iterator[tuple[int, int | None, str]]:
    """Yield each field of a struct: its id, its parent's id, and its name for comparison."""
    parents = schema.parents()
    fields = schema.map_fields_by_id()
    return ((id_, parents[id_], fields[id_].name) for id_ in fields if _has_names(fields, parents[id_]))


def _has_names(fields: Mapping[int, NestedField], parent: int | None) -> bool:
    return parent is None or isinstance(fields[parent].type, StructType)


def find_physical_names(schema: Schema, files: Iterable[tuple[str, NamesInFile]]) -> dict[int, str]:
    """Find the names that all files have for the fields; UnsupportedError: they don't agree.

    Delta has one name for all files. delta-rs and DuckDB read by it, even if columns are mapped by id.
    """
    found: dict[int, str] = {}
    taken: dict[tuple[int | None, str], int] = {}
    for path, names in files:
        for (parent, name), field_id in names.items():
            if field_id is None:
                raise UnsupportedError(
                    "delta-out", f"{path} has a column {name} without a field id, though Delta maps columns by id"
                )
            if found.setdefault(field_id, name) != name or taken.setdefault((parent, name), field_id) != field_id:
                raise UnsupportedError("delta-out", _describe_disagreement(path, name, found[field_id]))
    names_of = schema.full_names()
    for field_id, parent, name in _iterate_named(schema):
        if field_id not in found and taken.get((parent, name), field_id) != field_id:
            found[field_id] = f"{name}-{field_id}"
    return {field_id: name for field_id, name in found.items() if field_id in names_of}


def _describe_disagreement(path: str, name: str, other: str) -> str:
    return (
        f"{path} has a column {name!r} that means what other files call {other!r}, or files mean different columns by "
        "that name, as one was renamed, or dropped and added: most of Delta's readers go by one name for all files. "
        "When all data files have been rewritten, by a compaction, they agree"
    )


def read_logged_names(columns: DeltaStruct, schemas: Iterable[Schema]) -> NamesInFile:
    """Read the names in a log, which all its files have. schemas: all that the table ever had."""
    parents = {field_id: parent for schema in schemas for field_id, parent in schema.parents().items()}
    ids = ((field.physical_name, field.id) for field in _iterate_delta_fields(columns))
    return {(parents.get(field_id), name): field_id for name, field_id in ids if field_id is not None}


def collect_named_ids(schema: Schema) -> set[int]:
    """Collect the ids of columns, and of fields of structs."""
    return {field_id for field_id, _, _ in _iterate_named(schema)}


def _iterate_delta_fields(kind: DeltaType) -> Iterator[DeltaField]:
    match kind:
        case DeltaStruct():
            for field in kind.fields:
                yield field
                yield from _iterate_delta_fields(field.type)
        case DeltaArray():
            yield from _iterate_delta_fields(kind.element)
        case DeltaMap():
            yield from _iterate_delta_fields(kind.key)
            yield from _iterate_delta_fields(kind.value)
