"""Data files of DuckDB as Iceberg clients must read them: layouts, copies, earlier types."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any, Final, NoReturn, TypeAlias

import duckdb

from duckicelake.bridge.file_schema import add_name_mapping, can_hold
from duckicelake.bridge.native.added_files import DuckDBAddedFile, StoredField
from duckicelake.bridge.native.change_set import ReadableCopy, ServedData, find_partition
from duckicelake.bridge.native.steps import NativeStep
from duckicelake.bridge.snapshots import SnapshotNumbers
from duckicelake.bridge.values.columns import can_read_as, describe_retyped
from duckicelake.bridge.values.types import to_duckdb_type, to_lake_type
from duckicelake.catalog.authz.locations import check_readable
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.derived_files import BackgroundWriter
from duckicelake.errors import (
    DamagedTableError,
    FileMissingError,
    InvalidRequestError,
    StoreDeniedError,
    UnsupportedError,
)
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField, PrimitiveType, StructType
from duckicelake.lake.ducklake import native
from duckicelake.lake.model import LOCAL_ROW_ID, Column, ColumnStats, LakeFile, NameMap
from duckicelake.lake.state import NativeWindow
from duckicelake.lake.types import select_types
from duckicelake.parquet.copy import copy_columns, copy_readable, find_row_ids_end
from duckicelake.parquet.local_copies import open_footer_copies, open_local_copies, open_temporary_folder
from duckicelake.parquet.schema import LayoutField, ParquetField, read_file_fields, read_layout
from duckicelake.storage.threads import run_in_parallel

Layout: TypeAlias = tuple[LayoutField, ...]
_LRU_FIELDS: Final = 200_000
"""Fields of all files whose layouts are kept: a table that can't be served yet is asked for again and again."""
_MISREAD: Final = select_types(lambda row: row.is_misread)
Copy = Callable[[Path, Path], bool]
"""Writes the copy of a file at another path; whether there is need of one."""
_NOT_CAST: Final = frozenset({"timestamptz", "variant", "geometry"})
"""DuckLake's types that no copy has instead of others: which values these have depends on DuckDB, or its session."""
_FRAME_BYTES: Final = 12
"""Of a Parquet file, beside its columns and its footer: two magic numbers, and the length of the footer."""


class _Layouts:
    """The layouts read last, by path and length of the file."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[tuple[str, int], Layout] = OrderedDict()
        self._fields = 0

    def get(self, file: LakeFile) -> Layout | None:
        with self._lock:
            return self._known.get((file.path, file.file_size_bytes))

    def put(self, file: LakeFile, layout: Layout) -> None:
        with self._lock:
            key = file.path, file.file_size_bytes
            self._fields += len(layout) - len(self._known.pop(key, ()))
            self._known[key] = layout
            while self._fields > _LRU_FIELDS:
                self._fields -= len(self._known.popitem(last=False)[1])


_LAYOUTS: Final = _Layouts()


def read_layouts(services: Services, files: Sequence[LakeFile]) -> list[Layout]:
    """Return the layout of each file; InvalidRequestError or duckdb.Error for one that is missing or isn't Parquet."""
    found = {file.file_id: layout for file in files if (layout := _LAYOUTS.get(file)) is not None}
    unknown = [file for file in files if file.file_id not in found]
    with open_footer_copies(services.store, [file.path for file in unknown]) as paths:
        read = run_in_parallel(lambda file: read_layout(paths[file.path], file.path), unknown)
    for file, layout in zip(unknown, read, strict=True):
        _LAYOUTS.put(file, layout)
        found[file.file_id] = layout
    return [found[file.file_id] for file in files]


class DuckDBTable:
    """What DuckLake says of a table whose files are looked at: read once, when it is needed."""

    def __init__(self, services: Services, table_id: int) -> None:
        self.table_id = table_id
        self._database = services.database

    @cached_property
    def columns(self) -> native.ColumnHistory:
        with self._database.reading() as cursor:
            return native.read_column_history(cursor, self.table_id)

    @cached_property
    def folder(self) -> str:
        """Where DuckLake keeps the table's files."""
        with self._database.reading() as cursor:
            return native.read_path_prefix(cursor, self.table_id)


class ReadableCopies:
    """Writes the copies that a table's new data files need, beside its metadata."""

    def __init__(self, services: Services, beside: BackgroundWriter, table: DuckDBTable) -> None:
        self._services = services
        self._beside = beside
        self._table = table
        self._examined: Mapping[int, DuckDBAddedFile] = {}

    def find(
        self,
        step: NativeStep,
        window: NativeWindow,
        metadata: TableMetadata,
        numbers: SnapshotNumbers,
        types: Mapping[int, Mapping[int, str]],
    ) -> ServedData:
        """Return how the files of a step are served.

        types: by file, other types that its columns get (`copy_readable`).

        Raises:
            DamagedTableError: a file is missing or unreadable.
            UnsupportedError: a file that DuckDB added may not be read by the server, or can't be copied.

        """
        files = [file for _, file in step.data_files]
        if not files:
            return ServedData()
        added = self._read_added([file for file in files if file.mapping_id is not None], metadata, step)
        plain, names = _plain(files, added, window, metadata)
        local = self._find_local_ids([file for file in files if file.file_id not in added], window, metadata)
        copies: dict[int, Copy] = {}
        for file in files:
            if file.file_id in added and file.file_id not in plain:
                self._check_readable(file, metadata, "Iceberg clients would misread it and need a copy")
                copies[file.file_id] = _copy_of(file, added[file.file_id], window)
            elif file.file_id in local:
                copies[file.file_id] = partial(copy_readable, types=types.get(file.file_id), row_ids_below=LOCAL_ROW_ID)
            elif file.file_id not in added and self._is_odd(file, types) and self._is_readable(file, metadata):
                copies[file.file_id] = partial(copy_readable, types=types.get(file.file_id))
        wanted = [file for file in files if file.file_id in copies]
        return ServedData(dict(self._write_copies(wanted, copies, metadata, numbers)), added, names)

    def misread(self, step: NativeStep, window: NativeWindow, metadata: TableMetadata) -> frozenset[int]:
        """Return those of a step's files, all of which DuckDB added, that clients misread or whose bounds are wrong."""
        files = [file for _, file in step.data_files]
        self._examined = self._read_added(files, metadata, step)
        plain, _ = _plain(files, self._examined, window, metadata)
        return frozenset(id_ for id_, added in self._examined.items() if id_ not in plain or added.inexact)

    def place_file(
        self, file: LakeFile, window: NativeWindow, metadata: TableMetadata
    ) -> tuple[TableMetadata, PartitionSpec, tuple[Any, ...]]:
        """Place a file that was looked at for `misread`."""
        return find_partition(metadata, metadata.schema(), file, window, self._examined[file.file_id])

    def _find_local_ids(
        self, files: Sequence[LakeFile], window: NativeWindow, metadata: TableMetadata
    ) -> frozenset[int]:
        """Find the files that hold row ids which several rows may have; those that can't be read are left as they are.

        Of a file that has nothing but its columns, no footer is read.
        """
        if metadata.format_version < ROW_LINEAGE_VERSION:
            return frozenset()
        doubtful = [
            file
            for file in files
            if _has_other_bytes(file, window.stats.get(file.file_id, ())) and self._is_readable(file, metadata)
        ]
        ends = run_in_parallel(self._find_row_ids_end, doubtful)
        return frozenset(file.file_id for file, end in zip(doubtful, ends, strict=True) if end > LOCAL_ROW_ID)

    def _find_row_ids_end(self, file: LakeFile) -> int:
        with (
            suppress(FileMissingError, InvalidRequestError, StoreDeniedError),
            open_footer_copies(self._services.store, [file.path]) as paths,
        ):
            return find_row_ids_end(paths[file.path])
        return 0

    def _is_odd(self, file: LakeFile, types: Mapping[int, Mapping[int, str]]) -> bool:
        """Return whether the file, or a column that the table had, has a type or a name that is misread."""
        columns = self._table.columns
        return file.file_id in types or not columns.types.isdisjoint(_MISREAD) or columns.has_dotted_names

    def _is_readable(self, file: LakeFile, metadata: TableMetadata) -> bool:
        try:
            check_readable(self._services, file.path, metadata.location, [self._table.folder])
        except InvalidRequestError:
            return False
        return True

    def _read_added(
        self, files: Sequence[LakeFile], metadata: TableMetadata, step: NativeStep
    ) -> dict[int, DuckDBAddedFile]:
        """Return what the footers of added files say, by DuckLake's id."""
        if not files:
            return {}
        with self._services.database.reading() as cursor:
            columns = native.read_columns(cursor, self._table.table_id, step.change.snapshot_id)
            maps = native.read_name_maps(cursor, {file.mapping_id for file in files if file.mapping_id is not None})
        layouts = self._layouts(files, metadata)
        return {
            file.file_id: DuckDBAddedFile(
                [StoredField(*field) for field in layout], maps[file.mapping_id or 0], columns
            )
            for file, layout in zip(files, layouts, strict=True)
        }

    def _layouts(self, files: Sequence[LakeFile], metadata: TableMetadata) -> list[Layout]:
        """Read footers, wherever files lie: of rows nothing is read.

        DamagedTableError for a file that is missing or isn't Parquet, UnsupportedError where the server can't reach it.
        """
        try:
            return read_layouts(self._services, files)
        except (FileMissingError, InvalidRequestError, StoreDeniedError, duckdb.Error) as error:
            for file in files:
                self._check_readable(file, metadata, str(error))
            raise DamagedTableError(f"a data file of its that DuckDB added: {error}") from error

    def _check_readable(self, file: LakeFile, metadata: TableMetadata, reason: str) -> None:
        if not self._is_readable(file, metadata):
            raise UnsupportedError(
                "added-files",
                f"DuckDB added {file.path}, which lies where this server may not read, though {reason}: allow "
                "its folder "
                f"({self._services.policy.advice}), or delete its rows in DuckDB and insert them from the file",
            )

    def _write_copies(
        self, files: Iterable[LakeFile], copies: Mapping[int, Copy], metadata: TableMetadata, numbers: SnapshotNumbers
    ) -> Iterator[tuple[int, ReadableCopy]]:
        for file in files:
            with (
                open_local_copies(self._services.store, [file.path]) as paths,
                open_temporary_folder() as scratch,
            ):
                copy = scratch / "copy.parquet"
                if _is_copied(copies[file.file_id], paths[file.path], copy, file.path):
                    data = copy.read_bytes()
                    name = f"{numbers.snapshot_id}-{{}}-readable.parquet"
                    path = self._beside.add(metadata, name, data, file.path)
                    yield file.file_id, ReadableCopy(path, len(data), file.first_row_id)


def _has_other_bytes(file: LakeFile, stats: Iterable[ColumnStats]) -> bool:
    """Return whether a file has more than its columns: row ids, or Bloom filters."""
    columns = sum(row.column_size_bytes or 0 for row in stats)
    return file.footer_size is None or file.file_size_bytes != columns + file.footer_size + _FRAME_BYTES


def _is_copied(copy_file: Copy, file: Path, copy: Path, location: str) -> bool:
    try:
        return copy_file(file, copy)
    except InvalidRequestError as error:
        raise DamagedTableError(f"{location}, a data file of its: {error}") from error


def _copy_of(file: LakeFile, added: DuckDBAddedFile, window: NativeWindow) -> Copy:
    stats = {row.column_id: row for row in window.stats.get(file.file_id, ())}
    columns = [(item.name, item.expression, item.field_ids) for item in added.copy_columns(file.path, stats)]

    def copy_file(source: Path, copy: Path) -> bool:
        copy_columns(source, copy, columns)
        return True

    return copy_file


def _plain(
    files: Iterable[LakeFile], added: Mapping[int, DuckDBAddedFile], window: NativeWindow, metadata: TableMetadata
) -> tuple[frozenset[int], tuple[NameMap, ...]]:
    """Return the added files that clients read as they are, and the maps that the name mapping needs for them."""
    plain: set[int] = set()
    known: dict[NameMap, bool] = {}
    for file in files:
        own = added.get(file.file_id)
        if own is None or file.mapping_id is None or not own.is_plain or not _is_placed(file, own, window, metadata):
            continue
        names = window.name_maps[file.mapping_id]
        if not own.has_ids and names not in known:
            changed = add_name_mapping(metadata, names)
            known[names] = changed is not None
            metadata = changed or metadata
        if own.has_ids or known[names]:
            plain.add(file.file_id)
    return frozenset(plain), tuple(names for names, fits in known.items() if fits)


def _is_placed(file: LakeFile, added: DuckDBAddedFile, window: NativeWindow, metadata: TableMetadata) -> bool:
    """Return whether the partition of the file says what DuckDB reads in its folder's name."""
    if not added.in_folder:
        return True
    _, spec, _ = find_partition(metadata, metadata.schema(), file, window, added)
    return added.in_folder <= {field.source_id for field in spec.fields if field.transform.name == "identity"}


class WrittenTypes:
    """Looks at a table's new files, if a column's type ever changed in a way that Iceberg's readers don't follow.

    Files without field ids are left out: what is in those is for their name maps to say.
    """

    def __init__(self, services: Services, table: DuckDBTable) -> None:
        self._services = services
        self._table = table
        self._known: dict[str, tuple[ParquetField, ...]] = {}

    def find(self, step: NativeStep, metadata: TableMetadata) -> dict[int, dict[int, str]]:
        """Return DuckDB's types of the columns that have other ones in a new file, by DuckLake's file id and field id.

        UnsupportedError if that is so of a field in a column, or of timestamps with a zone.
        """
        changed = dict(self._find_changed(metadata.schema())) if step.data_files else {}
        if not changed:
            return {}
        files = [file for _, file in step.data_files if file.mapping_id is None]
        found = {file.file_id: dict(self._other_types(file, changed, metadata)) for file in files}
        return {file_id: types for file_id, types in found.items() if types}

    def _find_changed(self, schema: Schema) -> Iterator[tuple[int, NestedField]]:
        """Yield the fields that once had a type which can't be read as the one that they have."""
        for field_id, field in schema.map_fields_by_id().items():
            if isinstance(field.type, PrimitiveType):
                types = self._table.columns.types_by_id.get(field_id, ())
                if not all(can_read_as(text, field.type) for text in types):
                    yield field_id, field

    def _fields(self, path: str, location: str) -> tuple[ParquetField, ...]:
        """Read the fields in a file's footer; once, as a step that is refused comes again with the next."""
        if path not in self._known:
            check_readable(self._services, path, location, [self._table.folder])
            with open_local_copies(self._services.store, [path]) as paths:
                self._known[path] = read_file_fields(paths[path])
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
            if kind is not None and field_id not in columns and can_hold(field, kind):
                continue  # a date that a client promoted: not all readers follow, but no copy has it otherwise
            if field_id not in columns or _lake_type(field) in _NOT_CAST:
                _refuse(schema, field, kind or "other type", file.path)
            yield (
                field_id,
                to_duckdb_type(Column(field_id, None, field.name, _lake_type(field), nulls_allowed=True), ()),
            )


def _is_held(field: NestedField, stored: str | None) -> bool:
    """Return whether a file's field has the type; that of a struct is None, and so is that of a variant."""
    if stored is None or _lake_type(field) == "variant":
        return stored is None and _lake_type(field) == "variant"
    return can_hold(field, stored) and (stored == "DATE") == (_lake_type(field) == "date")


def _lake_type(field: NestedField) -> str:
    assert isinstance(field.type, PrimitiveType)
    return to_lake_type(field.type)


def _is_in_structs(schema: Schema, field_id: int) -> bool:
    """Return whether a field is a column or in structs only: footers are read outside of lists and maps."""
    fields, parents = schema.map_fields_by_id(), schema.parents()
    parent = parents[field_id]
    while parent is not None and isinstance(fields[parent].type, StructType):
        parent = parents[parent]
    return parent is None


def _refuse(schema: Schema, field: NestedField, stored: str, where: str) -> NoReturn:
    raise UnsupportedError("ducklake-types", describe_retyped(schema, field, stored, where))
