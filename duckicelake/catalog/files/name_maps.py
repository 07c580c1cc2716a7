"""Which data files have no field ids, so that DuckLake must be told what they call its columns (`bridge/name_maps`).

Only tables with a name mapping may have such files, so only their new files are looked into.
"""

from collections.abc import Iterable

import duckdb

from duckicelake.bridge.name_maps import name_map
from duckicelake.bridge.realise import AnyFile
from duckicelake.catalog.access.confinement import check_readable
from duckicelake.catalog.commits.workspace import Workspace
from duckicelake.catalog.services import Services
from duckicelake.errors import FileMissing, InvalidRequest
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.name_mapping import NamePath, mapped_names
from duckicelake.lake.model import NameMap
from duckicelake.storage.local_copies import local_copies
from duckicelake.storage.parquet_names import ParquetName, read_names


def name_maps(
    services: Services, space: Workspace, metadata: TableMetadata, files: Iterable[AnyFile]
) -> dict[int, NameMap]:
    """The maps of those data files that have no field ids, by file id; a file that isn't there has none.

    InvalidRequest for one that the server may not read or that isn't Parquet; Unsupported.
    """
    ids = mapped_names(metadata.properties)
    found = {} if ids is None else {file.file_id: _map(services, space, metadata, ids, file) for file in files}
    return {file_id: names for file_id, names in found.items() if names is not None}


def _map(
    services: Services, space: Workspace, metadata: TableMetadata, ids: dict[NamePath, int], file: AnyFile
) -> NameMap | None:
    check_readable(services, file.path, metadata.location, [space.folder()])
    try:
        names = _read(services, file.path)
    except FileMissing:
        return None
    if any(name.field_id is not None for name in names):
        return None
    return name_map(file, [(name.path, name.source) for name in names], ids, metadata)


def _read(services: Services, location: str) -> tuple[ParquetName, ...]:
    with local_copies(services.store, [location]) as paths:
        if not paths[location].exists():
            raise FileMissing(f"{location} does not exist")
        try:
            return read_names(paths[location], location)
        except duckdb.Error as error:
            raise InvalidRequest(f"{location} can't be read as Parquet: {error}") from error
