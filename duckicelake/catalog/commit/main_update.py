"""Main's file changes of a commit, with the copies and name maps that DuckLake needs."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import duckdb

from duckicelake.bridge.commit.increments import LakeCopy, MainUpdate
from duckicelake.bridge.file_schema import build_name_map
from duckicelake.bridge.main_diff import FileSetDifference, LakeFileChanges, collect_deleted_positions, diff_main
from duckicelake.catalog.authz.locations import check_readable, write
from duckicelake.catalog.commit.workspace import Listed, Workspace
from duckicelake.catalog.context.services import Services
from duckicelake.errors import FileMissingError, InvalidRequestError
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.name_mapping import NamePath, parse_name_mapping
from duckicelake.lake.additions import AnyFile, NewDeleteFile
from duckicelake.lake.ducklake import column_names
from duckicelake.lake.model import NameMap
from duckicelake.lake.side_tables import locations
from duckicelake.lake.side_tables.locations import LocatedFile
from duckicelake.lake.state import DeletionRow
from duckicelake.parquet.copy import ROW_ID_FIELD_ID, copy_with_row_ids
from duckicelake.parquet.local_copies import open_local_copies
from duckicelake.parquet.position_deletes import write_position_deletes
from duckicelake.parquet.schema import ParquetName, read_names
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.threads import run_in_parallel


@dataclass(frozen=True, slots=True)
class FormerFiles:
    """Copies and maps of files that DuckLake's rows describe, maps by file id; `unknown` are the other files."""

    copies: tuple[LakeCopy, ...]
    name_maps: Mapping[int, NameMap]
    unknown: Sequence[AnyFile]


def find_former_files(
    services: Services, table_id: int | None, lake_ids: Mapping[int, int], files: Sequence[AnyFile]
) -> FormerFiles:
    """Read copies and name maps of the files from DuckLake's rows; lake_ids: `data_file_id`s by file id."""
    wanted = {lake_ids[file.file_id]: file for file in files if file.file_id in lake_ids}
    if table_id is None or not wanted:
        return FormerFiles((), {}, files)
    with services.database.reading() as cursor:
        there = locations.read_located_files(cursor, table_id, wanted)
        maps = column_names.read_name_maps(
            cursor, {file.mapping_id for file in there.values() if file.mapping_id is not None}
        )
    return FormerFiles(
        copies=tuple(_copies(wanted, there)),
        name_maps={
            wanted[id_].file_id: maps[row.mapping_id] for id_, row in there.items() if row.mapping_id is not None
        },
        unknown=[file for file in files if lake_ids.get(file.file_id) not in there],
    )


def _copies(files: Mapping[int, AnyFile], there: Mapping[int, LocatedFile]) -> Iterator[LakeCopy]:
    for lake_id, row in there.items():
        file = files[lake_id]
        if canonicalize(row.path) != canonicalize(file.path):
            yield LakeCopy(file.file_id, row.path, row.file_size_bytes, path_is_relative=False)


def build_name_maps(
    services: Services, space: Workspace, metadata: TableMetadata, files: Iterable[AnyFile]
) -> dict[int, NameMap]:
    """Return the maps of those data files that have no field ids, by file id; a file that isn't there has none.

    InvalidRequestError for one that the server may not read or that isn't Parquet; UnsupportedError.
    """
    ids = parse_name_mapping(metadata.properties)
    found = {} if ids is None else {file.file_id: _map(services, space, metadata, ids, file) for file in files}
    return {file_id: names for file_id, names in found.items() if names is not None}


def _map(
    services: Services, space: Workspace, metadata: TableMetadata, ids: dict[NamePath, int], file: AnyFile
) -> NameMap | None:
    check_readable(services, file.path, metadata.location, [space.folder()])
    try:
        names = _read(services, file.path)
    except FileMissingError:
        return None
    if any(name.field_id is not None for name in names):
        return None
    return build_name_map(file, [(name.path, name.source) for name in names], ids, metadata)


def _read(services: Services, location: str) -> tuple[ParquetName, ...]:
    with open_local_copies(services.store, [location]) as paths:
        if not paths[location].exists():
            raise FileMissingError(f"{location} does not exist")
        try:
            return read_names(paths[location], location)
        except duckdb.Error as error:
            raise InvalidRequestError(f"{location} can't be read as Parquet: {error}") from error


def write_row_id_copies(
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
            with suppress(FileMissingError, InvalidRequestError):
                yield from _copy(services, space, metadata, file)


def _may_lack_row_ids(file: AnyFile, leaves: set[str]) -> bool:
    """Return whether the file may hold rows without row ids, by its metrics; True where they don't say."""
    counts, nulls = file.metrics.get("value_counts", {}), file.metrics.get("null_value_counts", {})
    if str(ROW_ID_FIELD_ID) in counts and str(ROW_ID_FIELD_ID) in nulls:
        return bool(nulls[str(ROW_ID_FIELD_ID)])
    return not leaves <= counts.keys()


def _copy(services: Services, space: Workspace, metadata: TableMetadata, file: AnyFile) -> Iterator[LakeCopy]:
    folder = space.folder()
    check_readable(services, file.path, metadata.location, [folder])
    with open_local_copies(services.store, [file.path]) as paths, tempfile.TemporaryDirectory() as scratch:
        source, copy = paths[file.path], Path(scratch, "copy.parquet")
        if not source.exists():
            raise FileMissingError(f"{file.path} does not exist")
        if copy_with_row_ids(source, copy, file.first_row_id or 0, file.sequence_number):
            name, data = f"ducklake-{uuid4()}.parquet", copy.read_bytes()
            write(services, folder + name, data)
            yield LakeCopy(file.file_id, name, len(data))


def move_main(
    services: Services,
    space: Workspace,
    metadata: TableMetadata,
    before: Listed,
    after: Listed,
    operation: str | None = None,
) -> MainUpdate:
    """Return what DuckLake must do for main to go from one manifest list to another; `operation` is the new snapshot's.

    `metadata` is the table's after the commit.
    """
    changed = build_difference(space, before, after)
    realisation = diff_main(changed)
    files = {file.file_id: file for file in (*changed.joined, *changed.kept)}
    lake_ids = {file.file_id: file.ducklake_id for file in realisation.registered if file.ducklake_id is not None}
    known = find_former_files(services, space.table_id, lake_ids, realisation.registered)
    return MainUpdate(
        ended_files=tuple(realisation.ended_files),
        ended_rows=tuple(realisation.ended_rows),
        registered=tuple(realisation.registered),
        copies=(*known.copies, *write_row_id_copies(services, space, metadata, known.unknown)),
        name_maps={**known.name_maps, **build_name_maps(services, space, metadata, known.unknown)},
        delete_files=tuple(write_delete_files(services, space, realisation.delete_files, files)),
        rewrites=operation == "replace" and not _adds_rows(space, realisation),
    )


def build_difference(space: Workspace, before: Listed, after: Listed) -> FileSetDifference:
    """Return what main has before and after, as far as it differs: rows that come and go, by file."""
    gone, come = find_changed_files(space, before, after)
    files = space.files(gone | come)
    deletes = {file_id for file_id, file in files.items() if file.content != FileContent.DATA}
    left, joined = sorted(gone - deletes), sorted(come - deletes)
    kept = space.find_among(after, space.targets_of(deletes)) - come
    touched = {*left, *joined, *kept}
    if not touched:
        return FileSetDifference()
    known = space.files(kept)
    deletions = space.deletions_of(touched)
    return FileSetDifference(
        left=left,
        joined=[files[file_id] for file_id in joined],
        kept=[known[file_id] for file_id in sorted(kept)],
        deleted_before=_find_deleted(space, before, deletions),
        deleted_after=_find_deleted(space, after, deletions),
        virtual=space.read_virtual_files(touched),
        inlined=space.read_inlined_deletes(known.values()),
    )


def find_changed_files(space: Workspace, before: Listed, after: Listed) -> tuple[set[int], set[int]]:
    """Return (files that only the first list has, files that only the second has); manifests of both aren't read."""
    shared = {m.manifest_id for m in before} & {m.manifest_id for m in after}
    old = space.live(manifest for manifest in before if manifest.manifest_id not in shared)
    new = space.live(manifest for manifest in after if manifest.manifest_id not in shared)
    return old - new, new - old


def _find_deleted(space: Workspace, listed: Listed, deletions: Sequence[DeletionRow]) -> dict[int, frozenset[int]]:
    if not deletions:
        return {}
    live = space.find_among(listed, {row.delete_file_id for row in deletions})
    return collect_deleted_positions(deletions, space.files(live))


def _adds_rows(space: Workspace, realisation: LakeFileChanges) -> bool:
    """Return whether more rows come than go, so that it can't be the rewrite that the client calls it."""
    ended = sum(file.record_count for file in space.files(realisation.ended_files).values())
    return sum(file.record_count for file in realisation.registered) > ended + len(realisation.ended_rows)


def write_delete_files(
    services: Services, space: Workspace, wanted: Mapping[int, frozenset[int]], files: Mapping[int, AnyFile]
) -> list[NewDeleteFile]:
    """Write DuckLake's delete files; no position may be in one and inlined as well, or DuckDB misreads both."""
    if not wanted:
        return []
    folder = space.folder()

    def written(file_id: int) -> NewDeleteFile:
        name, found = f"ducklake-{uuid4()}-delete.parquet", wanted[file_id]
        data = write_position_deletes([(files[file_id].path, position) for position in found])
        write(services, folder + name, data)
        return NewDeleteFile(file_id, name, len(found), len(data))

    return run_in_parallel(written, wanted)
