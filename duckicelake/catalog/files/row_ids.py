"""Which files DuckLake gets a copy of, because it couldn't tell their rows apart (`storage/row_ids`)."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from duckicelake.bridge.increments import LakeCopy
from duckicelake.bridge.realise import AnyFile
from duckicelake.catalog.access.confinement import check_readable, write
from duckicelake.catalog.commits.workspace import Workspace
from duckicelake.catalog.services import Services
from duckicelake.errors import FileMissing, InvalidRequest
from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.storage.local_copies import local_copies
from duckicelake.storage.row_ids import ROW_ID, copy_with_row_ids


def copies_with_row_ids(
    services: Services, space: Workspace, metadata: TableMetadata, files: Iterable[AnyFile]
) -> Iterator[LakeCopy]:
    """Write copies, where DuckLake keeps its own files, of those data files that have rows without row ids.

    Files that the server may not read, or that aren't there, are DuckLake's as they are.
    """
    if metadata.format_version < ROW_LINEAGE_VERSION:
        return
    leaves = {str(field_id) for field_id in metadata.schema().leaves()}
    for file in files:
        if file.content == FileContent.DATA and _may_lack_row_ids(file, leaves):
            with suppress(FileMissing, InvalidRequest):
                yield from _copy(services, space, metadata, file)


def _may_lack_row_ids(file: AnyFile, leaves: set[str]) -> bool:
    """By its metrics; where they don't tell, it may."""
    counts, nulls = file.metrics.get("value_counts", {}), file.metrics.get("null_value_counts", {})
    if str(ROW_ID) in counts and str(ROW_ID) in nulls:
        return bool(nulls[str(ROW_ID)])
    return not leaves <= counts.keys()


def _copy(services: Services, space: Workspace, metadata: TableMetadata, file: AnyFile) -> Iterator[LakeCopy]:
    folder = space.folder()
    check_readable(services, file.path, metadata.location, [folder])
    with local_copies(services.store, [file.path]) as paths, tempfile.TemporaryDirectory() as scratch:
        source, copy = paths[file.path], Path(scratch, "copy.parquet")
        if not source.exists():
            raise FileMissing(f"{file.path} does not exist")
        if copy_with_row_ids(source, copy, file.first_row_id or 0, file.sequence_number):
            name, data = f"ducklake-{uuid4()}.parquet", copy.read_bytes()
            write(services, folder + name, data)
            yield LakeCopy(file.file_id, name, len(data))
