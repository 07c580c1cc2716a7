"""What DuckDB wrote of columns that had other types before, beside the types that they have now.

DuckDB reads an int as a double, and leaves it one in the files that it rewrites: only the files say what they hold.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final, NoReturn

from duckicelake.bridge.columns import reads_as, retyped
from duckicelake.bridge.file_schema import holds
from duckicelake.bridge.native import NativeStep
from duckicelake.bridge.parquet_types import duckdb_type
from duckicelake.bridge.types import lake_type
from duckicelake.catalog.access.confinement import check_readable
from duckicelake.catalog.services import Services
from duckicelake.errors import Unsupported
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, PrimitiveType, StructType
from duckicelake.lake import native
from duckicelake.lake.model import Column, LakeFile
from duckicelake.storage.local_copies import local_copies
from duckicelake.storage.parquet_fields import ParquetField, fields_of

_NOT_CAST: Final = frozenset({"timestamptz", "variant", "geometry"})
"""DuckLake's types that no copy has instead of others: which values these have depends on DuckDB, or its session."""


class WrittenTypes:
    """Looks at a table's new files, if a column's type ever changed in a way that Iceberg's readers don't follow.

    Files without field ids are left out: what is in those is for their name maps to say.
    """

    def __init__(self, services: Services, table_id: int) -> None:
        self._services = services
        self._table_id = table_id
        self._known: dict[str, tuple[ParquetField, ...]] = {}

    def of(self, step: NativeStep, metadata: TableMetadata) -> dict[int, dict[int, str]]:
        """DuckDB's types of the columns that have other ones in a new file, by DuckLake's file id and field id.

        Unsupported if that is so of a field in a column, or of timestamps with a zone.
        """
        changed = dict(self._changed(metadata.schema())) if step.data_files else {}
        if not changed:
            return {}
        files = [file for _, file in step.data_files if file.mapping_id is None]
        found = {file.file_id: dict(self._other_types(file, changed, metadata)) for file in files}
        return {file_id: types for file_id, types in found.items() if types}

    def _changed(self, schema: Schema) -> Iterator[tuple[int, NestedField]]:
        """The fields that once had a type which can't be read as the one that they have."""
        for field_id, field in schema.fields_by_id().items():
            if isinstance(field.type, PrimitiveType):
                types = self._types.get(field_id, ())
                if not all(reads_as(text, field.type) for text in types):
                    yield field_id, field

    @cached_property
    def _types(self) -> Mapping[int, frozenset[str]]:
        with self._services.database.reading() as cursor:
            return native.column_types_by_id(cursor, self._table_id)

    @cached_property
    def _folder(self) -> str:
        with self._services.database.reading() as cursor:
            return native.path_prefix(cursor, self._table_id)

    def _fields(self, path: str, location: str) -> tuple[ParquetField, ...]:
        """Read the fields in a file's footer; once, as a step that is refused comes again with the next."""
        if path not in self._known:
            check_readable(self._services, path, location, [self._folder])
            with local_copies(self._services.store, [path]) as paths:
                self._known[path] = fields_of(paths[path])
        return self._known[path]

    def _other_types(
        self, file: LakeFile, changed: Mapping[int, NestedField], metadata: TableMetadata
    ) -> Iterator[tuple[int, str]]:
        schema = metadata.schema()
        columns = {field.id for field in schema.fields}
        stored = {field.field_id: field for field in self._fields(file.path, metadata.location)}
        for field_id, field in changed.items():
            kind = stored[field_id].type if field_id in stored else None
            if _is_held(field, kind) if field_id in stored else _is_in_structs(schema, field_id):
                continue
            if kind is not None and field_id not in columns and holds(field, kind):
                continue  # a date that a client promoted: not all readers follow, but no copy has it otherwise
            if field_id not in columns or _lake_type(field) in _NOT_CAST:
                _refuse(schema, field, kind or "other type", file.path)
            yield field_id, duckdb_type(Column(field_id, None, field.name, _lake_type(field), nulls_allowed=True), ())


def _is_held(field: NestedField, stored: str | None) -> bool:
    """Whether a file's field has the type; that of a struct is None, and so is that of a variant."""
    if stored is None or _lake_type(field) == "variant":
        return stored is None and _lake_type(field) == "variant"
    return holds(field, stored) and (stored == "DATE") == (_lake_type(field) == "date")


def _lake_type(field: NestedField) -> str:
    assert isinstance(field.type, PrimitiveType)
    return lake_type(field.type)


def _is_in_structs(schema: Schema, field_id: int) -> bool:
    """Whether a field is a column or in structs only: footers are read outside of lists and maps."""
    fields, parents = schema.fields_by_id(), schema.parents()
    parent = parents[field_id]
    while parent is not None and isinstance(fields[parent].type, StructType):
        parent = parents[parent]
    return parent is None


def _refuse(schema: Schema, field: NestedField, stored: str, where: str) -> NoReturn:
    raise Unsupported("ducklake-types", retyped(schema, field, stored, where))
