"""PURE. Data files without field ids: what they call which column (table spec, "Column Projection").

Iceberg has one name mapping for a table, DuckLake one for each file. Without one DuckDB takes columns by their place.
Of a partition column that isn't in the file, DuckLake reads the value in the name of its folder, as Hive does.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import unquote

from duckicelake.bridge.realise import AnyFile
from duckicelake.errors import Unsupported
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.name_mapping import NAME_MAPPING, NamePath, mapped_names, name_mapping, schema_names
from duckicelake.iceberg.types import ListType
from duckicelake.lake.model import MappedName, NameMap

_NULL = "__HIVE_DEFAULT_PARTITION__"


def name_map(
    file: AnyFile, names: Iterable[tuple[NamePath, str]], ids: Mapping[NamePath, int], table: TableMetadata
) -> NameMap:
    """The map of a file with these fields, depth first, each with DuckDB's name for it; `ids` are the name mapping's.

    Unsupported if DuckLake can't know the value of a partition column.
    """
    mapped = _mapped(names, ids)
    present = {name.field_id for name in mapped if name.parent is None}
    return NameMap((*mapped, *_folders(file, present, ids, table)))


def _mapped(names: Iterable[tuple[NamePath, str]], ids: Mapping[NamePath, int]) -> list[MappedName]:
    """Fields that the mapping doesn't name don't exist, nor does what is in them."""
    rows: list[MappedName] = []
    places: dict[NamePath, int] = {}
    for path, source in names:
        field_id, parent = ids.get(path), places.get(path[:-1])
        if field_id is not None and (len(path) == 1 or parent is not None):
            places[path] = len(rows)
            rows.append(MappedName(source, field_id, parent))
    return rows


def _folders(
    file: AnyFile, present: set[int], ids: Mapping[NamePath, int], table: TableMetadata
) -> Iterator[MappedName]:
    """The partition columns that the file lacks."""
    folders = dict(_hive_values(file.path))
    for field, value in zip(table.spec(file.spec_id).fields, file.partition, strict=True):
        if field.transform.name != "identity" or field.source_id in present:
            continue
        key = next((key for key in folders if ids.get((key,)) == field.source_id), None)
        if key is not None and _is_same(folders[key], value):
            yield MappedName(key, field.source_id, is_partition=True)
        elif key is not None or value is not None:
            raise Unsupported(
                "partition-columns",
                f"{file.path} has no column {field.name}, and DuckLake can't be told that it is {value!r} there: "
                f"a folder {field.name}=... of that value would say so, or rewrite the file with the column",
            )


def _hive_values(path: str) -> Iterator[tuple[str, str]]:
    for segment in path.split("/")[:-1]:
        key, equals, value = segment.partition("=")
        if equals:
            yield unquote(key), unquote(value)


def _is_same(text: str, value: Any) -> bool:
    """Whether a folder's name says the JSON single value of a partition."""
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


def with_names(metadata: TableMetadata, names: NameMap) -> TableMetadata | None:
    """The metadata with a name mapping that knows what such files of DuckDB's, without field ids, call the columns.

    None if other files mean different columns by these names: Iceberg has one name mapping for a table.
    """
    known = mapped_names(metadata.properties)
    ids = dict(schema_names(metadata.schema()) if known is None else known)
    if any(ids.setdefault(path, field_id) != field_id for path, field_id in _paths(names, metadata)):
        return None
    if ids == known:
        return metadata
    return metadata.replaced(properties={**metadata.properties, NAME_MAPPING: name_mapping(ids)})


def _paths(names: NameMap, metadata: TableMetadata) -> Iterator[tuple[NamePath, int]]:
    types = {field_id: field.type for field_id, field in metadata.schema().fields_by_id().items()}
    paths: list[NamePath] = []
    for name in names.names:
        parent = None if name.parent is None else types.get(names.names[name.parent].field_id)
        own = "element" if isinstance(parent, ListType) else name.source_name
        paths.append((own,) if name.parent is None else (*paths[name.parent], own))
        yield paths[-1], name.field_id
