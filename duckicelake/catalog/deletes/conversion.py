"""Deletes that are listed in another form than a client wrote them, so that every reader understands them.

Equality deletes become positions, which PyIceberg and DuckDB read, too; on tables of format version 3, which have
deletion vectors only, position deletes of clients that don't know those become vectors.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from duckicelake.bridge import positions
from duckicelake.bridge.numbering import Numbering
from duckicelake.bridge.realise import DELETION_VECTOR, AnyFile, deleted_positions
from duckicelake.bridge.summary import Totals, summarise
from duckicelake.catalog.deletes.equality import positions_deleted_by_equality
from duckicelake.catalog.deletes.served import NewlyDeleted, serve_deletes
from duckicelake.catalog.deletes.uploaded import Targets, read_deletions
from duckicelake.catalog.files.beside import files_beside
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.additions import NewDeletion, NewFile


@dataclass(frozen=True, slots=True)
class ListedFiles:
    """What a snapshot lists as added, with its deletions, and what of its parent's leaves."""

    snapshot: Snapshot
    files: tuple[NewFile, ...]
    deletions: tuple[NewDeletion, ...]
    removed: frozenset[int]


def listed_files(
    services: Services,
    metadata: TableMetadata,
    snapshot: Snapshot,
    added: Sequence[NewFile],
    targets: Targets,
    ids: Iterator[int],
) -> ListedFiles:
    """What becomes of the files that a client added; reads its delete files, and writes those that take their place."""
    deletions = read_deletions(services, metadata.location, added, targets)
    deletions += _late_deletions(services, metadata, added, targets)
    _check_single_vectors(targets, added, deletions)
    converted = {file.file_id for file in added if _is_converted(file, metadata)}
    if not converted:
        return ListedFiles(snapshot, tuple(added), tuple(deletions), targets.removed)
    newly = _newly_deleted(services, metadata, added, targets, [d for d in deletions if d.delete_file_id in converted])
    own = ListedFiles(
        snapshot,
        tuple(file for file in added if file.file_id not in converted),
        tuple(row for row in deletions if row.delete_file_id not in converted),
        targets.removed,
    )
    return _deleting(services, metadata, own, newly, targets, ids)


def deleting_files(
    services: Services,
    metadata: TableMetadata,
    snapshot: Snapshot,
    found: Mapping[int, frozenset[int]],
    targets: Targets,
    ids: Iterator[int],
) -> ListedFiles:
    """What a snapshot lists that does nothing but delete these positions of data files."""
    return _deleting(services, metadata, ListedFiles(snapshot, (), (), targets.removed), found, targets, ids)


def _deleting(
    services: Services,
    metadata: TableMetadata,
    own: ListedFiles,
    newly: Mapping[int, frozenset[int]],
    targets: Targets,
    ids: Iterator[int],
) -> ListedFiles:
    """What a snapshot lists as its own, with the files that the server writes for positions that it deletes."""
    snapshot, deleted = own.snapshot, _without_known(targets, newly)
    numbers = Numbering(snapshot.snapshot_id, snapshot.sequence_number)
    with files_beside(services) as beside:
        served = serve_deletes(beside, metadata, numbers, deleted, ids)
    files = (*own.files, *served.files)
    superseded = _vectors(targets, deleted.positions) if metadata.format_version >= ROW_LINEAGE_VERSION else {}
    removed = targets.removed | superseded.keys()
    return ListedFiles(
        _summarised(metadata, snapshot, files, [*targets.space.files(targets.removed).values(), *superseded.values()]),
        files,
        (*own.deletions, *served.deletions),
        frozenset(removed),
    )


def _late_deletions(
    services: Services, metadata: TableMetadata, added: Sequence[NewFile], targets: Targets
) -> list[NewDeletion]:
    """What equality deletes that the table was registered with delete from files that are added as older ones."""
    late = [f for f in added if f.content == FileContent.DATA and f.sequence_number < f.file_sequence_number]
    equality = targets.equality_of_parent() if late else []
    if not equality:
        return []
    found = positions_deleted_by_equality(services, metadata, targets.space.folders(), equality, late)
    return deletions_of(found)


def deletions_of(found: Mapping[int, Mapping[int, frozenset[int]]]) -> list[NewDeletion]:
    """Positions by delete file and data file as rows."""
    return [
        NewDeletion(delete_id, data_id, positions.encode(rows))
        for delete_id, by_file in found.items()
        for data_id, rows in by_file.items()
    ]


def _check_single_vectors(targets: Targets, added: Sequence[NewFile], deletions: Sequence[NewDeletion]) -> None:
    """InvalidRequest if a data file would have two deletion vectors."""
    vectors = {file.file_id for file in added if file.file_format == DELETION_VECTOR}
    seen: set[int] = set()
    for row in deletions:
        if row.delete_file_id in vectors and row.data_file_id in seen:
            raise InvalidRequest(f"The snapshot adds two deletion vectors of one data file: {_path(targets, row)}")
        seen |= {row.data_file_id} if row.delete_file_id in vectors else set()
    if _vectors(targets, dict.fromkeys(seen)):
        raise InvalidRequest("The snapshot adds a deletion vector of a data file that has one: remove the old one, too")


def _path(targets: Targets, row: NewDeletion) -> str:
    return targets.space.files([row.data_file_id])[row.data_file_id].path


def _is_converted(file: NewFile, metadata: TableMetadata) -> bool:
    is_old = metadata.format_version >= ROW_LINEAGE_VERSION and file.file_format != DELETION_VECTOR
    return file.content == FileContent.EQUALITY_DELETES or (file.content == FileContent.POSITION_DELETES and is_old)


def _newly_deleted(
    services: Services,
    metadata: TableMetadata,
    added: Sequence[NewFile],
    targets: Targets,
    by_position: Sequence[NewDeletion],
) -> dict[int, frozenset[int]]:
    """The positions that the converted delete files delete, by data file."""
    found: defaultdict[int, frozenset[int]] = defaultdict(frozenset)
    for row in by_position:
        found[row.data_file_id] |= positions.decode(row.positions)
    equality = [file for file in added if file.content == FileContent.EQUALITY_DELETES]
    if equality:
        folders, data_files = targets.space.folders(), targets.of_parent()
        by_delete = positions_deleted_by_equality(services, metadata, folders, equality, data_files)
        for by_file in by_delete.values():
            for file_id, rows in by_file.items():
                found[file_id] |= rows
    return dict(found)


def _without_known(targets: Targets, newly: Mapping[int, frozenset[int]]) -> NewlyDeleted:
    """The positions that weren't deleted before."""
    deletions = targets.space.deletions_of(newly)
    live = targets.space.among(targets.parent, {row.delete_file_id for row in deletions}) - targets.removed
    before = deleted_positions(deletions, targets.space.files(live))
    fresh = {file_id: rows - before.get(file_id, frozenset()) for file_id, rows in newly.items()}
    found = {file_id: rows for file_id, rows in fresh.items() if rows}
    own: dict[int, AnyFile] = {file.file_id: file for file in targets.own}
    known = targets.space.files(found.keys() - own.keys())
    return NewlyDeleted(found, before, {file_id: own.get(file_id) or known[file_id] for file_id in found})


def _vectors(targets: Targets, data_files: Mapping[int, object]) -> dict[int, AnyFile]:
    """The vectors that the parent has for the data files, which new ones take the place of."""
    deletes = {row.delete_file_id for row in targets.space.deletions_of(data_files)}
    live = targets.space.files(targets.space.among(targets.parent, deletes) - targets.removed)
    return {file_id: file for file_id, file in live.items() if file.file_format == DELETION_VECTOR}


def _summarised(
    metadata: TableMetadata, snapshot: Snapshot, added: Sequence[NewFile], removed: Sequence[AnyFile]
) -> Snapshot:
    """The snapshot with a summary of what it lists; the client counted what it wrote."""
    parent = None if snapshot.parent_snapshot_id is None else metadata.snapshot(snapshot.parent_snapshot_id)
    counts = summarise(snapshot.operation or "overwrite", added, removed, Totals.of(parent.summary if parent else {}))
    theirs = {
        key: text for key, text in snapshot.summary.items() if not key.startswith(("added-", "removed-", "total-"))
    }
    return snapshot.replaced(summary={**theirs, **counts})
