"""Which of DuckDB's data files Iceberg clients get a copy of, because they would misread them.

Of files that DuckDB wrote the types of the table tell (`storage/readable`), of those that it only added their footers
(`bridge/added_files`).
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import duckdb

from duckicelake.bridge.added_files import AddedFile, StoredField
from duckicelake.bridge.caught_up import ReadableCopy, ServedData, placed
from duckicelake.bridge.name_maps import with_names
from duckicelake.bridge.native import NativeStep
from duckicelake.bridge.numbering import Numbering
from duckicelake.catalog.access.confinement import check_readable
from duckicelake.catalog.files.beside import FilesBeside
from duckicelake.catalog.files.layouts import Layout, read_layouts
from duckicelake.catalog.services import Services
from duckicelake.errors import DamagedTable, FileMissing, InvalidRequest, StoreDenied, Unsupported
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.lake import native
from duckicelake.lake.model import LakeFile, NameMap
from duckicelake.lake.state import NativeWindow
from duckicelake.storage.local_copies import local_copies
from duckicelake.storage.readable import copy_columns, copy_readable

_MISREAD: Final = frozenset({"uint8", "uint16", "uint32", "uint64", "timestamp_ms"})
Copy = Callable[[Path, Path], bool]
"""Writes the copy of a file at another path; whether there is need of one."""


class ReadableCopies:
    """Writes the copies that a table's new data files need, beside its metadata."""

    def __init__(self, services: Services, beside: FilesBeside, table_id: int) -> None:
        self._services = services
        self._beside = beside
        self._table_id = table_id
        self._examined: Mapping[int, AddedFile] = {}

    def of(
        self,
        step: NativeStep,
        window: NativeWindow,
        metadata: TableMetadata,
        numbers: Numbering,
        types: Mapping[int, Mapping[int, str]],
    ) -> ServedData:
        """How the files of a step are served. types: by file, other types that its columns get (`copy_readable`).

        Raises:
            DamagedTable: a file is missing or unreadable.
            Unsupported: a file that DuckDB added may not be read by the server, or can't be copied.

        """
        files = [file for _, file in step.data_files]
        if not files:
            return ServedData()
        added = self._added([file for file in files if file.mapping_id is not None], metadata, step)
        plain, names = _plain(files, added, window, metadata)
        copies: dict[int, Copy] = {}
        for file in files:
            if file.file_id in added and file.file_id not in plain:
                self._check_readable(file, metadata, "Iceberg clients would misread it and need a copy")
                copies[file.file_id] = _copy_of(file, added[file.file_id], window)
            elif file.file_id not in added and self._is_odd(file, types) and self._is_readable(file, metadata):
                copies[file.file_id] = partial(copy_readable, types=types.get(file.file_id))
        wanted = [file for file in files if file.file_id in copies]
        return ServedData(dict(self._copied(wanted, copies, metadata, numbers)), added, names)

    def misread(self, step: NativeStep, window: NativeWindow, metadata: TableMetadata) -> frozenset[int]:
        """Those of a step's files, all of which DuckDB added, that clients misread or whose bounds are wrong."""
        files = [file for _, file in step.data_files]
        self._examined = self._added(files, metadata, step)
        plain, _ = _plain(files, self._examined, window, metadata)
        return frozenset(id_ for id_, added in self._examined.items() if id_ not in plain or added.inexact)

    def placed(
        self, file: LakeFile, window: NativeWindow, metadata: TableMetadata
    ) -> tuple[TableMetadata, PartitionSpec, tuple[Any, ...]]:
        """`placed` of a file that was looked at for `misread`."""
        return placed(metadata, metadata.schema(), file, window, self._examined[file.file_id])

    def _is_odd(self, file: LakeFile, types: Mapping[int, Mapping[int, str]]) -> bool:
        return file.file_id in types or self._has_odd_columns

    @cached_property
    def _has_odd_columns(self) -> bool:
        """Whether it had columns of types or names that are misread."""
        with self._services.database.reading() as cursor:
            has_odd_types = bool(native.column_types(cursor, self._table_id) & _MISREAD)
            return has_odd_types or native.had_dotted_names(cursor, self._table_id)

    @cached_property
    def _folder(self) -> str:
        """Where DuckLake keeps the table's files."""
        with self._services.database.reading() as cursor:
            return native.path_prefix(cursor, self._table_id)

    def _is_readable(self, file: LakeFile, metadata: TableMetadata) -> bool:
        try:
            check_readable(self._services, file.path, metadata.location, [self._folder])
        except InvalidRequest:
            return False
        return True

    def _added(self, files: Sequence[LakeFile], metadata: TableMetadata, step: NativeStep) -> dict[int, AddedFile]:
        """What the footers of added files say, by DuckLake's id."""
        if not files:
            return {}
        with self._services.database.reading() as cursor:
            columns = native.columns(cursor, self._table_id, step.change.snapshot_id)
            maps = native.name_maps(cursor, {file.mapping_id for file in files if file.mapping_id is not None})
        layouts = self._layouts(files, metadata)
        return {
            file.file_id: AddedFile([StoredField(*field) for field in layout], maps[file.mapping_id or 0], columns)
            for file, layout in zip(files, layouts, strict=True)
        }

    def _layouts(self, files: Sequence[LakeFile], metadata: TableMetadata) -> list[Layout]:
        """Read footers, wherever files lie: of rows nothing is read.

        DamagedTable for a file that is missing or isn't Parquet, Unsupported where the server can't reach it.
        """
        try:
            return read_layouts(self._services, files)
        except (FileMissing, InvalidRequest, StoreDenied, duckdb.Error) as error:
            for file in files:
                self._check_readable(file, metadata, str(error))
            raise DamagedTable(f"a data file of its that DuckDB added: {error}") from error

    def _check_readable(self, file: LakeFile, metadata: TableMetadata, reason: str) -> None:
        if not self._is_readable(file, metadata):
            raise Unsupported(
                "added-files",
                f"DuckDB added {file.path}, which lies where this server may not read, though {reason}: add its folder "
                "to DUCKICELAKE_ALLOWED_LOCATIONS, or delete its rows in DuckDB and insert them from the file",
            )

    def _copied(
        self, files: Iterable[LakeFile], copies: Mapping[int, Copy], metadata: TableMetadata, numbers: Numbering
    ) -> Iterator[tuple[int, ReadableCopy]]:
        for file in files:
            with local_copies(self._services.store, [file.path]) as paths, tempfile.TemporaryDirectory() as scratch:
                copy = Path(scratch, "copy.parquet")
                if _is_copied(copies[file.file_id], paths[file.path], copy, file.path):
                    data = copy.read_bytes()
                    name = f"{numbers.snapshot_id}-{{}}-readable.parquet"
                    yield file.file_id, ReadableCopy(self._beside.add(metadata, name, data, file.path), len(data))


def _is_copied(copied: Copy, file: Path, copy: Path, location: str) -> bool:
    try:
        return copied(file, copy)
    except InvalidRequest as error:
        raise DamagedTable(f"{location}, a data file of its: {error}") from error


def _copy_of(file: LakeFile, added: AddedFile, window: NativeWindow) -> Copy:
    stats = {row.column_id: row for row in window.stats.get(file.file_id, ())}
    columns = [(each.name, each.expression, each.field_ids) for each in added.copied(file.path, stats)]

    def copied(source: Path, copy: Path) -> bool:
        copy_columns(source, copy, columns)
        return True

    return copied


def _plain(
    files: Iterable[LakeFile], added: Mapping[int, AddedFile], window: NativeWindow, metadata: TableMetadata
) -> tuple[frozenset[int], tuple[NameMap, ...]]:
    """(the added files that clients read as they are, the maps that the table's name mapping must know for that)."""
    plain: set[int] = set()
    known: dict[NameMap, bool] = {}
    for file in files:
        own = added.get(file.file_id)
        if own is None or file.mapping_id is None or not own.is_plain or not _is_placed(file, own, window, metadata):
            continue
        names = window.name_maps[file.mapping_id]
        if not own.has_ids and names not in known:
            changed = with_names(metadata, names)
            known[names] = changed is not None
            metadata = changed or metadata
        if own.has_ids or known[names]:
            plain.add(file.file_id)
    return frozenset(plain), tuple(names for names, fits in known.items() if fits)


def _is_placed(file: LakeFile, added: AddedFile, window: NativeWindow, metadata: TableMetadata) -> bool:
    """Whether the partition of the file says what DuckDB reads in its folder's name."""
    if not added.in_folder:
        return True
    _, spec, _ = placed(metadata, metadata.schema(), file, window, added)
    return added.in_folder <= {field.source_id for field in spec.fields if field.transform.name == "identity"}
