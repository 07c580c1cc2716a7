"""Main's file changes of a commit: copies and name maps that DuckLake needs, and appends whose rows are inlined.

Appends of Iceberg clients that are small are inlined, as DuckDB does with inserts of its own. What can't be inlined is
committed as it came: other columns than the table's, values that DuckLake doesn't inline, and files that the server
can't or may not read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import uuid4

import duckdb

from duckicelake.bridge.commit.increments import Absorbed, AbsorbedFile, LakeCopy, MainUpdate
from duckicelake.bridge.file_schema import build_name_map
from duckicelake.bridge.main_diff import LakeFileChanges, diff_main
from duckicelake.catalog.authz.locations import check_readable, write
from duckicelake.catalog.commit.workspace import Listed, Workspace
from duckicelake.catalog.context.hooks import RowCheck, build_row_check
from duckicelake.catalog.context.row_targets import RowTarget
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.row_target import pack_columns, read_row_target
from duckicelake.errors import CatalogError, FileMissingError, InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.name_mapping import NamePath, parse_name_mapping
from duckicelake.lake.additions import InlinedInto, NewDeleteFile
from duckicelake.lake.ducklake import native
from duckicelake.lake.model import NameMap
from duckicelake.lake.side_tables import locations
from duckicelake.lake.side_tables.locations import LocatedFile
from duckicelake.lake.state import FileRow
from duckicelake.parquet.copy import ROW_ID_FIELD_ID, copy_with_row_ids
from duckicelake.parquet.footer import check_footer
from duckicelake.parquet.local_copies import open_local_copies, open_temporary_folder
from duckicelake.parquet.position_deletes import write_position_deletes
from duckicelake.parquet.schema import ParquetName, read_names
from duckicelake.properties import get_absorbed_rows
from duckicelake.rows import row_batch
from duckicelake.rows.arrow_rows import MAX_PARQUET_BYTES, read_parquet
from duckicelake.rows.row_batch import Batch
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.threads import run_in_parallel


@dataclass(frozen=True, slots=True)
class FormerFiles:
    """Copies and maps of files that DuckLake's rows describe, maps by file id; `unknown` are the other files."""

    copies: tuple[LakeCopy, ...]
    name_maps: Mapping[int, NameMap]
    unknown: Sequence[FileRow]


def find_former_files(
    services: Services, table_id: int | None, lake_ids: Mapping[int, int], files: Sequence[FileRow]
) -> FormerFiles:
    """Read copies and name maps of the files from DuckLake's rows; lake_ids: `data_file_id`s by file id."""
    wanted = {lake_ids[file.file_id]: file for file in files if file.file_id in lake_ids}
    if table_id is None or not wanted:
        return FormerFiles((), {}, files)
    with services.database.reading() as cursor:
        there = locations.read_located_files(cursor, table_id, wanted)
        maps = native.read_name_maps(
            cursor, {file.mapping_id for file in there.values() if file.mapping_id is not None}
        )
    return FormerFiles(
        copies=tuple(_copies(wanted, there)),
        name_maps={
            wanted[id_].file_id: maps[row.mapping_id] for id_, row in there.items() if row.mapping_id is not None
        },
        unknown=[file for file in files if lake_ids.get(file.file_id) not in there],
    )


def _copies(files: Mapping[int, FileRow], there: Mapping[int, LocatedFile]) -> Iterator[LakeCopy]:
    for lake_id, row in there.items():
        file = files[lake_id]
        if canonicalize(row.path) != canonicalize(file.path):
            yield LakeCopy(file.file_id, row.path, row.file_size_bytes, path_is_relative=False)


def build_name_maps(
    services: Services, space: Workspace, metadata: TableMetadata, files: Iterable[FileRow]
) -> dict[int, NameMap]:
    """Return the maps of those data files that have no field ids, by file id; a file that isn't there has none.

    InvalidRequestError for one that the server may not read or that isn't Parquet; UnsupportedError.
    """
    ids = parse_name_mapping(metadata.properties)
    found = {} if ids is None else {file.file_id: _map(services, space, metadata, ids, file) for file in files}
    return {file_id: names for file_id, names in found.items() if names is not None}


def _map(
    services: Services, space: Workspace, metadata: TableMetadata, ids: dict[NamePath, int], file: FileRow
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
    services: Services, space: Workspace, metadata: TableMetadata, files: Iterable[FileRow]
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


def _may_lack_row_ids(file: FileRow, leaves: set[str]) -> bool:
    """Return whether the file may hold rows without row ids, by its metrics; True where they don't say."""
    counts, nulls = file.metrics.get("value_counts", {}), file.metrics.get("null_value_counts", {})
    if str(ROW_ID_FIELD_ID) in counts and str(ROW_ID_FIELD_ID) in nulls:
        return bool(nulls[str(ROW_ID_FIELD_ID)])
    return not leaves <= counts.keys()


def _copy(services: Services, space: Workspace, metadata: TableMetadata, file: FileRow) -> Iterator[LakeCopy]:
    folder = space.folder()
    check_readable(services, file.path, metadata.location, [folder])
    with open_local_copies(services.store, [file.path]) as paths, open_temporary_folder() as scratch:
        source, copy = paths[file.path], scratch / "copy.parquet"
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
    changed, table_id = space.build_difference(before, after), space.table_id
    changes = diff_main(changed)
    files = {file.file_id: file for file in (*changed.joined, *changed.kept)}
    lake_ids = {file.file_id: file.ducklake_id for file in changes.registered if file.ducklake_id is not None}
    known = find_former_files(services, table_id, lake_ids, changes.registered)
    return MainUpdate(
        ended_files=tuple(changes.ended_files),
        ended_rows=tuple(changes.ended_rows),
        registered=tuple(changes.registered),
        copies=(*known.copies, *write_row_id_copies(services, space, metadata, known.unknown)),
        name_maps={**known.name_maps, **build_name_maps(services, space, metadata, known.unknown)},
        delete_files=tuple(write_delete_files(services, space, changes.delete_files, files)),
        rewrites=operation == "replace" and not _adds_rows(space, changes),
    )


def _adds_rows(space: Workspace, changes: LakeFileChanges) -> bool:
    """Return whether more rows come than go, so that it can't be the rewrite that the client calls it."""
    ended = sum(file.record_count for file in space.files(changes.ended_files).values())
    return sum(file.record_count for file in changes.registered) > ended + len(changes.ended_rows)


def write_delete_files(
    services: Services, space: Workspace, wanted: Mapping[int, frozenset[int]], files: Mapping[int, FileRow]
) -> list[NewDeleteFile]:
    """Write DuckLake's delete files; no position may be in one and inlined as well, or DuckDB misreads both."""
    if not wanted:
        return []
    folder = space.folder()

    def write_file(file_id: int) -> NewDeleteFile:
        name, found = f"ducklake-{uuid4()}-delete.parquet", wanted[file_id]
        data = write_position_deletes([(files[file_id].path, position) for position in found])
        write(services, folder + name, data)
        return NewDeleteFile(file_id, name, len(found), len(data))

    return run_in_parallel(write_file, wanted)


Absorber = Callable[[MainUpdate, Sequence[FileRow]], MainUpdate]
"""Inlines the rows of an update of main, given the files that its snapshot brings, where they are few."""


class _ViolatedError(Exception):
    """Rows violate a constraint of the table, so that they can't be committed as they came either."""


def build_absorber(services: Services, namespace: Namespace, table: str, metadata: TableMetadata) -> Absorber | None:
    """Return what inlines the rows of appends to a table as it will be, one after the other.

    None if it wants none inlined.
    """
    most = get_absorbed_rows(metadata.properties)
    if not most:
        return None
    made: set[str] = set()

    def absorb(move: MainUpdate, new: Sequence[FileRow]) -> MainUpdate:
        if not _is_small(move, new, most):
            return move
        target = read_row_target(services, namespace, table, services.rows.find(namespace, table))
        try:
            absorbed = _absorb(services, metadata, target, move)
        except _ViolatedError as error:
            raise InvalidRequestError(str(error)) from error
        except CatalogError:
            return move
        if absorbed is None:
            return move
        if absorbed.into.name in made:
            absorbed = replace(absorbed, into=replace(absorbed.into, version=None))
        made.add(absorbed.into.name)
        return replace(move, registered=(), absorbed=absorbed)

    return absorb


def _is_small(move: MainUpdate, new: Sequence[FileRow], most: int) -> bool:
    """Return whether main gains rows of new files and nothing else, as few as may be inlined, in a moderate size."""
    is_append = not (move.ended_files or move.ended_rows or move.delete_files or move.copies or move.name_maps)
    is_append &= {file.file_id for file in move.registered} <= {file.file_id for file in new}
    count = sum(file.record_count for file in move.registered)
    return (
        is_append
        and 0 < count <= most
        and sum(file.file_size_in_bytes for file in move.registered) <= MAX_PARQUET_BYTES
    )


def _absorb(services: Services, metadata: TableMetadata, target: RowTarget, move: MainUpdate) -> Absorbed | None:
    into = _into(target)
    if into is None or target.metadata.schema().leaves() != metadata.schema().leaves():
        return None
    check = build_row_check(metadata.properties, metadata.schema())
    for file in move.registered:
        check_readable(services, file.path, metadata.location)
    with open_local_copies(services.store, (file.path for file in move.registered)) as paths:
        files = []
        for file in move.registered:
            check_footer(paths[file.path], file.path)
            batch = read_parquet(paths[file.path], target.layout, file.record_count)
            _check_rows(check, file, batch)
            if row_batch.find_inlining_obstacle(batch) is not None:
                return None
            files.append(AbsorbedFile(file, tuple(pack_columns(target, batch)), row_batch.build_column_stats(batch)))
    return Absorbed(into, tuple(files))


def _check_rows(check: RowCheck, file: FileRow, batch: Batch) -> None:
    try:
        check(batch)
    except InvalidRequestError as error:
        raise _ViolatedError(f"{file.path}: {error}") from error


def _into(target: RowTarget) -> InlinedInto | None:
    """Return the inlined table to use; None where inlining isn't safe, as DuckDB's flush forgets some deletes."""
    inlined, columns = target.lake.inlined, target.lake.definition.columns
    if inlined is None or target.lake.definition.partition_keys:
        return None
    version = None if inlined.name == inlined.registered else inlined.version
    return InlinedInto(inlined.name, inlined.types, version, columns)
