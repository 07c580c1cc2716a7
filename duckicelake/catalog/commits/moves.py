"""Main's moves: which files main gains and loses, and DuckLake's delete files for it, written before any lock."""

from collections.abc import Mapping, Sequence
from uuid import uuid4

from duckicelake.bridge.increments import Move
from duckicelake.bridge.realise import AnyFile, Difference, Realisation, deleted_positions, realise
from duckicelake.catalog.access.confinement import write
from duckicelake.catalog.commits.workspace import Listed, Workspace
from duckicelake.catalog.files.former_files import former_files
from duckicelake.catalog.files.name_maps import name_maps
from duckicelake.catalog.files.row_ids import copies_with_row_ids
from duckicelake.catalog.services import Services
from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.additions import NewDeleteFile
from duckicelake.lake.state import DeletionRow
from duckicelake.storage.parallel import in_parallel
from duckicelake.storage.position_deletes import write_position_deletes


def move_main(
    services: Services,
    space: Workspace,
    metadata: TableMetadata,
    before: Listed,
    after: Listed,
    operation: str | None = None,
) -> Move:
    """What DuckLake must do for main to go from one manifest list to another; `operation` is the new snapshot's.

    `metadata` is the table's after the commit.
    """
    changed = difference(space, before, after)
    realisation = realise(changed)
    files = {file.file_id: file for file in (*changed.joined, *changed.kept)}
    lake_ids = {file.file_id: file.ducklake_id for file in realisation.registered if file.ducklake_id is not None}
    known = former_files(services, space.table_id, lake_ids, realisation.registered)
    return Move(
        ended_files=tuple(realisation.ended_files),
        ended_rows=tuple(realisation.ended_rows),
        registered=tuple(realisation.registered),
        copies=(*known.copies, *copies_with_row_ids(services, space, metadata, known.unknown)),
        name_maps={**known.name_maps, **name_maps(services, space, metadata, known.unknown)},
        delete_files=tuple(write_delete_files(services, space, realisation.delete_files, files)),
        rewrites=operation == "replace" and not _adds_rows(space, realisation),
    )


def difference(space: Workspace, before: Listed, after: Listed) -> Difference:
    """What main has before and after, as far as it differs: rows that come and go, by file."""
    gone, come = changed_files(space, before, after)
    files = space.files(gone | come)
    deletes = {file_id for file_id, file in files.items() if file.content != FileContent.DATA}
    left, joined = sorted(gone - deletes), sorted(come - deletes)
    kept = space.among(after, space.targets_of(deletes)) - come
    touched = {*left, *joined, *kept}
    if not touched:
        return Difference()
    known = space.files(kept)
    deletions = space.deletions_of(touched)
    return Difference(
        left=left,
        joined=[files[file_id] for file_id in joined],
        kept=[known[file_id] for file_id in sorted(kept)],
        deleted_before=_deleted(space, before, deletions),
        deleted_after=_deleted(space, after, deletions),
        virtual=space.virtual(touched),
        inlined=space.inlined_deletes(known.values()),
    )


def changed_files(space: Workspace, before: Listed, after: Listed) -> tuple[set[int], set[int]]:
    """(files that only the first list has, files that only the second has); manifests of both aren't read."""
    shared = {m.manifest_id for m in before} & {m.manifest_id for m in after}
    old = space.live(manifest for manifest in before if manifest.manifest_id not in shared)
    new = space.live(manifest for manifest in after if manifest.manifest_id not in shared)
    return old - new, new - old


def _deleted(space: Workspace, listed: Listed, deletions: Sequence[DeletionRow]) -> dict[int, frozenset[int]]:
    live = space.among(listed, {row.delete_file_id for row in deletions})
    return deleted_positions(deletions, space.files(live))


def _adds_rows(space: Workspace, realisation: Realisation) -> bool:
    """Whether more rows come than go, so that it can't be the rewrite that the client calls it."""
    ended = sum(file.record_count for file in space.files(realisation.ended_files).values())
    return sum(file.record_count for file in realisation.registered) > ended + len(realisation.ended_rows)


def write_delete_files(
    services: Services, space: Workspace, wanted: Mapping[int, frozenset[int]], files: Mapping[int, AnyFile]
) -> list[NewDeleteFile]:
    """Write DuckLake's delete files; no position may be in one and inlined as well, or DuckDB misreads both."""
    folder = space.folder() if wanted else ""

    def written(file_id: int) -> NewDeleteFile:
        name, found = f"ducklake-{uuid4()}-delete.parquet", wanted[file_id]
        data = write_position_deletes([(files[file_id].path, position) for position in found])
        write(services, folder + name, data)
        return NewDeleteFile(file_id, name, len(found), len(data))

    return in_parallel(written, wanted)
