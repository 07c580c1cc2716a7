"""PURE. A Delta table's schema as Iceberg's, with one field id for both (Delta protocol, "Schema", "Column Mapping").

Fields are known by their paths of physical names, as in the files. With column mapping Delta numbers the fields of
structs itself. Without it a path has the same id for ever, even if a later schema gives it another type. Delta doesn't
number elements, keys and values. These get ids far above, since Delta's own ids grow below.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from duckicelake.delta.import_.values import convert_primitive
from duckicelake.delta.log.actions import Metadata
from duckicelake.delta.log.schema import (
    FIELD_ID,
    DeltaArray,
    DeltaField,
    DeltaMap,
    DeltaStruct,
    DeltaType,
    parse_schema,
)
from duckicelake.errors import DamagedLogError, UnsupportedError
from duckicelake.iceberg.name_mapping import NamePath
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

FREE_ID_START: Final = 1 << 20
"""Ids from here on aren't Delta's."""
_CONTAINERS: Final = (StructType, ListType, MapType)


@dataclass(slots=True)
class ColumnIds:
    """The field ids of all columns that the table ever had, by physical path. New ones are added as they come.

    is_mapped: Delta numbers columns itself in some version.
    """

    by_path: dict[NamePath, int] = field(default_factory=dict)
    is_mapped: bool = False

    @property
    def last(self) -> int:
        """The highest id so far."""
        return max(self.by_path.values(), default=0)

    def learn(self, metadata: Metadata) -> None:
        """Learn Delta's own ids, before new ones are given for versions without any."""
        if metadata.column_mapping == "none":
            return
        self.is_mapped = True
        for path, field_id in _read_given_ids(parse_schema(metadata.schema_string).fields, ()):
            if self.by_path.setdefault(path, field_id) != field_id:
                raise UnsupportedError(
                    "delta-column-ids",
                    f"Column {'.'.join(path)} has the id {field_id} in Delta's column mapping, but the id "
                    f"{self.by_path[path]} here since before the table had one: import the table anew",
                )

    def of(self, path: NamePath, given: int | None = None) -> int:
        """Return the id of a path: Delta's, else one that it keeps for ever."""
        if path not in self.by_path:
            highest = self.last
            self.by_path[path] = given or (max(highest, FREE_ID_START) if self.is_mapped else highest) + 1
        return self.by_path[path]


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A version's columns: Iceberg's schema, and the physical path of each field by id, parents first."""

    schema: Schema
    paths: Mapping[int, NamePath]
    partition_ids: tuple[int, ...]


def read_columns(metadata: Metadata, ids: ColumnIds, schema_id: int) -> TableColumns:
    """Read the columns of a version.

    UnsupportedError: Iceberg lacks a type. DamagedLogError: it is no schema.
    """
    _check_texts(metadata)
    ids.learn(metadata)
    reader = _ColumnReader(metadata.column_mapping != "none", ids)
    fields = reader.fields(parse_schema(metadata.schema_string).fields, ())
    by_name = {column.name: column.id for column in fields}
    missing = [name for name in metadata.partition_columns if name not in by_name]
    if missing:
        raise DamagedLogError(f"the table is partitioned by {missing[0]}, which isn't in its schema")
    schema = Schema(schema_id=schema_id, fields=fields)
    _check_order(schema)
    partitions = tuple(by_name[name] for name in metadata.partition_columns)
    return TableColumns(schema, reader.paths, partitions)


def _check_texts(metadata: Metadata) -> None:
    """Raise DamagedLogError for texts that no catalog can store."""
    said = (metadata.id, metadata.name, metadata.description, *chain(*metadata.configuration.items()))
    for text in said:
        if text is not None and "\0" in text:
            raise DamagedLogError(f"a metaData action has the text {text!r} with a NUL, which Postgres can't store")


class _ColumnReader:
    def __init__(self, is_mapped: bool, ids: ColumnIds) -> None:
        self.paths: dict[int, NamePath] = {}
        self._is_mapped = is_mapped
        self._ids = ids

    def fields(self, fields: Iterable[DeltaField], inside: NamePath) -> tuple[NestedField, ...]:
        return tuple(self._field(column, inside) for column in fields)

    def _field(self, column: DeltaField, inside: NamePath) -> NestedField:
        path = (*inside, column.physical_name if self._is_mapped else column.name)
        return NestedField(
            id=self._id(path, column.id if self._is_mapped else None),
            name=column.name,
            required=not inside and not column.nullable,
            type=self._type(column.type, path, column.name, _NestedIds(self._nested_ids(column), path[-1])),
            doc=column.comment or None,
        )

    def _nested_ids(self, column: DeltaField) -> Mapping[str, int]:
        return column.nested_ids if self._is_mapped else {}

    def _id(self, path: NamePath, given: int | None) -> int:
        field_id = self._ids.of(path, given)
        self.paths[field_id] = path
        return field_id

    def _type(self, type_: DeltaType, path: NamePath, name: str, parts: "_NestedIds") -> IcebergType:
        match type_:
            case DeltaStruct(fields):
                return StructType(fields=self.fields(fields, path))
            case DeltaArray(element):
                of_element, inside = self._part("element", element, path, name, parts)
                return ListType(element_id=of_element, element=inside, element_required=False)
            case DeltaMap(key, value):
                of_key, key_type = self._part("key", key, path, name, parts)
                of_value, value_type = self._part("value", value, path, name, parts)
                return MapType(key_id=of_key, key=key_type, value_id=of_value, value=value_type, value_required=False)
            case _:
                return convert_primitive(type_, name)

    def _part(
        self, part: str, type_: DeltaType, path: NamePath, name: str, parts: "_NestedIds"
    ) -> tuple[int, IcebergType]:
        own = (*path, part)
        return self._id(own, parts.id_of(part)), self._type(type_, own, name, parts.inside(part))


@dataclass(frozen=True, slots=True)
class _NestedIds:
    """Ids of elements, keys and values that Delta gives, by names from the field on, joined by dots."""

    ids: Mapping[str, int]
    name: str

    def id_of(self, part: str) -> int | None:
        return self.ids.get(f"{self.name}.{part}")

    def inside(self, part: str) -> "_NestedIds":
        return _NestedIds(self.ids, f"{self.name}.{part}")


def _read_given_ids(fields: Iterable[DeltaField], inside: NamePath) -> Iterator[tuple[NamePath, int]]:
    """Yield the ids of column mapping, at any depth."""
    for column in fields:
        if column.id is None:
            raise DamagedLogError(f"column {column.name} has no {FIELD_ID}, which the table's column mapping demands")
        path = (*inside, column.physical_name)
        yield path, column.id
        yield from _walk_given_ids(column.type, path)


def _walk_given_ids(type_: DeltaType, path: NamePath) -> Iterator[tuple[NamePath, int]]:
    match type_:
        case DeltaStruct(fields):
            yield from _read_given_ids(fields, path)
        case DeltaArray(element):
            yield from _walk_given_ids(element, (*path, "element"))
        case DeltaMap(key, value):
            yield from _walk_given_ids(key, (*path, "key"))
            yield from _walk_given_ids(value, (*path, "value"))


def _check_order(schema: Schema) -> None:
    """Check the order of ids: DuckDB reads a container only if its id is above its parent's (`bridge/columns`)."""
    parents, names = schema.parents(), schema.full_names()
    for field_id, column in schema.map_fields_by_id().items():
        parent = parents[field_id]
        if parent is not None and field_id < parent and isinstance(column.type, _CONTAINERS):
            raise UnsupportedError(
                "delta-column-ids",
                f"Column {names[field_id]} is a container inside of a list or map, and Delta's column mapping numbers "
                f"it {field_id}, below what it is in, which has no number of Delta's: DuckDB can't load such a table",
            )


def find_leaf_paths(columns: TableColumns) -> dict[int, tuple[NamePath, PrimitiveType]]:
    """Find the leaves that may have statistics, by id: those outside of lists and maps."""
    found: dict[int, tuple[NamePath, PrimitiveType]] = {}

    def walk(fields: tuple[NestedField, ...]) -> None:
        for column in fields:
            if isinstance(column.type, PrimitiveType):
                found[column.id] = columns.paths[column.id], column.type
            elif isinstance(column.type, StructType):
                walk(column.type.fields)

    walk(columns.schema.fields)
    return found
