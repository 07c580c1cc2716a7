"""PURE. Check the columns of data files against their table, by metrics, footers and name mappings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import unquote

from duckicelake.bridge.data_files import UploadedFile
from duckicelake.bridge.values.types import find_stored_types
from duckicelake.errors import InvalidRequestError, UnsupportedError, format_count
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.name_mapping import (
    NamePath,
    build_name_mapping,
    collect_schema_names,
    parse_name_mapping,
)
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import ListType, NestedField, PrimitiveType, StructType
from duckicelake.lake.model import MappedName, NameMap
from duckicelake.lake.state import FileRow
from duckicelake.properties import NAME_MAPPING

_RESERVED: Final = 2_147_483_446
"""The field ids of Iceberg's metadata columns are above (table spec, "Reserved Field IDs")."""
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of a file, or a part of a struct in it; `type` is DuckDB's, None for what has parts."""

    path: tuple[str, ...]
    field_id: int | None
    type: str | None


def check_field_ids(file: UploadedFile, last_column_id: int) -> None:
    """Raise InvalidRequestError for a file whose metrics are of a column that the table never had."""
    if last_column_id < file.highest_field <= _RESERVED:
        raise InvalidRequestError(
            f"{file.file_path} has metrics of field {file.highest_field}, but the table's columns end at field "
            f"{last_column_id}: add the column to the table first, or write the file by the table's field ids"
        )


def check_required_metrics(files: Iterable[FileRow], schema: Schema) -> None:
    """Raise InvalidRequestError for a file whose metrics count nulls in a required column.

    Fields inside of others are left out: writers don't agree whether those of a null struct count.
    """
    required = {str(field.id): field.name for field in schema.fields if field.required}
    for file in files if required else ():
        nulls: Mapping[str, int] = file.metrics.get("null_value_counts") or {}
        for key in required.keys() & nulls.keys():
            if nulls[key]:
                raise InvalidRequestError(
                    f"{file.path} has {format_count(nulls[key], 'row')} "
                    f"without a value of {required[key]}, which is required"
                )


def find_schema_problems(schema: Schema, columns: Sequence[StoredColumn]) -> Iterator[str]:
    """Yield what of a file's columns doesn't fit the schema; those without field ids go by their names."""
    by_id = any(column.field_id is not None for column in columns)
    found = {_get_key(column, by_id=by_id): column for column in columns}
    wanted = {_format_path(path, field, by_id=by_id): (path, field) for path, field in _collect_fields(schema)}
    for key, column in found.items():
        if key not in wanted:
            what = f"field {column.field_id}" if by_id else "no field id"
            yield f"its column {'.'.join(column.path)} ({what}) is none of the table's"
            continue
        path, field = wanted[key]
        if column.type is not None and not can_hold(field, column.type):
            yield f"its column {'.'.join(column.path)} is stored as {column.type}, but {'.'.join(path)} is {field.type}"
    for key, (path, field) in wanted.items():
        if len(path) == 1 and field.required and field.initial_default is None and key not in found:
            yield f"it has no column {field.name}, which is required"


def can_hold(field: NestedField, stored: str) -> bool:
    """Return whether values of the field may be stored as what DuckDB calls a type."""
    if not isinstance(field.type, PrimitiveType):
        return False
    if field.type.name == "decimal":
        precision, _, scale = stored.removeprefix("DECIMAL(").removesuffix(")").partition(",")
        is_decimal = stored.startswith("DECIMAL(") and scale.strip() == str(field.type.scale)
        return is_decimal and int(precision) <= (field.type.precision or 0)
    types = find_stored_types(field.type)
    return types is None or stored in types


def _collect_fields(schema: Schema) -> Iterator[tuple[tuple[str, ...], NestedField]]:
    """Yield the fields outside of lists and maps, with their names."""
    waiting: list[tuple[tuple[str, ...], NestedField]] = [((field.name,), field) for field in schema.fields]
    for path, field in waiting:
        yield path, field
        if isinstance(field.type, StructType):
            waiting += [((*path, part.name), part) for part in field.type.fields]


def _get_key(column: StoredColumn, *, by_id: bool) -> object:
    return column.field_id if by_id else tuple(name.lower() for name in column.path)


def _format_path(path: tuple[str, ...], field: NestedField, *, by_id: bool) -> object:
    return field.id if by_id else tuple(name.lower() for name in path)


def build_name_map(
    file: FileRow, names: Iterable[tuple[NamePath, str]], ids: Mapping[NamePath, int], table: TableMetadata
) -> NameMap:
    """Return the map of a file with these fields, depth first, each with DuckDB's name for it.

    `ids` are the name mapping's.

    UnsupportedError if DuckLake can't know the value of a partition column.
    """
    mapped = _map_names(names, ids)
    present = {name.field_id for name in mapped if name.parent is None}
    return NameMap((*mapped, *_map_folders(file, present, ids, table)))


def _map_names(names: Iterable[tuple[NamePath, str]], ids: Mapping[NamePath, int]) -> list[MappedName]:
    """Return fields that the mapping doesn't name don't exist, nor does what is in them."""
    rows: list[MappedName] = []
    places: dict[NamePath, int] = {}
    for path, source in names:
        field_id, parent = ids.get(path), places.get(path[:-1])
        if field_id is not None and (len(path) == 1 or parent is not None):
            places[path] = len(rows)
            rows.append(MappedName(source, field_id, parent))
    return rows


def _map_folders(
    file: FileRow, present: set[int], ids: Mapping[NamePath, int], table: TableMetadata
) -> Iterator[MappedName]:
    """Yield the partition columns that the file lacks."""
    folders = dict(_parse_hive_values(file.path))
    for field, value in zip(table.spec(file.spec_id).fields, file.partition, strict=True):
        if field.transform.name != "identity" or field.source_id in present:
            continue
        key = next((key for key in folders if ids.get((key,)) == field.source_id), None)
        if key is not None and _is_same_value(folders[key], value):
            yield MappedName(key, field.source_id, is_partition=True)
        elif key is not None or value is not None:
            raise UnsupportedError(
                "partition-columns",
                f"{file.path} has no column {field.name}, and DuckLake can't store that it is {value!r} there: "
                f"a folder {field.name}=... of that value would say so, or rewrite the file with the column",
            )


def _parse_hive_values(path: str) -> Iterator[tuple[str, str]]:
    for segment in path.split("/")[:-1]:
        key, equals, value = segment.partition("=")
        if equals:
            yield unquote(key), unquote(value)


def _is_same_value(text: str, value: Any) -> bool:
    """Return whether a folder's name says the JSON single value of a partition."""
    if value is None or text == _NULL:
        return value is None and text == _NULL
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if isinstance(value, str):
        return text == value
    try:
        return Decimal(text) == Decimal(str(value))
    except InvalidOperation:
        return False


def add_name_mapping(metadata: TableMetadata, names: NameMap) -> TableMetadata | None:
    """Add a name mapping to the metadata, with the columns' names in DuckDB's files without field ids.

    None if other files mean different columns by these names: Iceberg has one name mapping for a table.
    """
    known = parse_name_mapping(metadata.properties)
    ids = dict(collect_schema_names(metadata.schema()) if known is None else known)
    if any(ids.setdefault(path, field_id) != field_id for path, field_id in _collect_paths(names, metadata)):
        return None
    if ids == known:
        return metadata
    return metadata.replace_fields(properties={**metadata.properties, NAME_MAPPING: build_name_mapping(ids)})


def _collect_paths(names: NameMap, metadata: TableMetadata) -> Iterator[tuple[NamePath, int]]:
    types = {field_id: field.type for field_id, field in metadata.schema().map_fields_by_id().items()}
    paths: list[NamePath] = []
    for name in names.names:
        parent = None if name.parent is None else types.get(names.names[name.parent].field_id)
        own = "element" if isinstance(parent, ListType) else name.source_name
        paths.append((own,) if name.parent is None else (*paths[name.parent], own))
        yield paths[-1], name.field_id
