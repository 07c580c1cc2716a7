"""Which of DuckDB's data files Iceberg clients get a copy of, because they would misread them (`storage/readable`)."""

import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from duckicelake.bridge.caught_up import ReadableCopy
from duckicelake.bridge.native import NativeStep
from duckicelake.bridge.numbering import Numbering
from duckicelake.catalog.access.confinement import check_readable
from duckicelake.catalog.files.beside import FilesBeside
from duckicelake.catalog.services import Services
from duckicelake.errors import DamagedTable, InvalidRequest
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake import native
from duckicelake.lake.model import LakeFile
from duckicelake.storage.local_copies import local_copies
from duckicelake.storage.readable import copy_readable

_MISREAD: Final = frozenset({"uint8", "uint16", "uint32", "uint64", "timestamp_ms"})


class ReadableCopies:
    """Writes the copies that a table's new data files need, beside its metadata.

    Of files that DuckDB only added (`add_data_files`) nobody knows the types but from the files; where the server may
    not read them, clients get them as they are.
    """

    def __init__(self, services: Services, beside: FilesBeside, table_id: int) -> None:
        self._services = services
        self._beside = beside
        self._table_id = table_id

    def of(self, step: NativeStep, metadata: TableMetadata, numbers: Numbering) -> dict[int, ReadableCopy]:
        """The copies for a step, by DuckLake's file id; DamagedTable for a file that is missing or unreadable."""
        if not step.data_files:
            return {}
        has_odd_types, folder = self._table
        own = [file for _, file in step.data_files if has_odd_types or file.mapping_id is not None]
        readable = [file for file in own if _is_readable(self._services, file, folder, metadata)]
        return dict(_copies(self._services, self._beside, readable, metadata, numbers))

    @cached_property
    def _table(self) -> tuple[bool, str]:
        """Whether it had columns of types that are misread, and where DuckLake keeps its files."""
        with self._services.database.reading() as cursor:
            types = native.column_types(cursor, self._table_id)
            return bool(types & _MISREAD), native.path_prefix(cursor, self._table_id)


def _is_readable(services: Services, file: LakeFile, folder: str, metadata: TableMetadata) -> bool:
    try:
        check_readable(services, file.path, metadata.location, [folder])
    except InvalidRequest:
        return False
    return True


def _copies(
    services: Services, beside: FilesBeside, files: list[LakeFile], metadata: TableMetadata, numbers: Numbering
) -> Iterator[tuple[int, ReadableCopy]]:
    for file in files:
        with local_copies(services.store, [file.path]) as paths, tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch, "copy.parquet")
            if _copy(paths[file.path], copy, file.path):
                data = copy.read_bytes()
                name = f"{numbers.snapshot_id}-{{}}-readable.parquet"
                path = beside.add(metadata, name, data, file.path)
                yield file.file_id, ReadableCopy(path, len(data))


def _copy(file: Path, copy: Path, location: str) -> bool:
    try:
        return copy_readable(file, copy)
    except InvalidRequest as error:
        raise DamagedTable(f"{location}, a data file of its: {error}") from error
