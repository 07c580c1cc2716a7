"""Convert deletes of a commit to the forms that every reader understands."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from duckicelake.bridge import main_diff
from duckicelake.bridge.main_diff import DELETION_VECTOR, collect_deleted_positions
from duckicelake.bridge.snapshots import SnapshotNumbers, SnapshotTotals, summarize_snapshot
from duckicelake.catalog.commit.equality_deletes import find_equality_deletes
from duckicelake.catalog.commit.uploads import read_uploaded
from duckicelake.catalog.commit.workspace import Listed, Workspace
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.derived_files import NewlyDeleted, open_background_writer, write_deletes
from duckicelake.errors import InvalidRequestError, format_count
from duckicelake.iceberg.manifest.entry import FileContent, ManifestContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.puffin import read_deletion_vector
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.additions import NewDeletion
from duckicelake.lake.state import FileRow
from duckicelake.parquet.inlined_rows import read_position_deletes
from duckicelake.storage.threads import run_in_parallel

Positions = Mapping[str, Sequence[int]]
"""Deleted positions by the path of their data file."""


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Positions in the live data files of a snapshot, by file id; they hold while it lists these manifests."""

    manifest_ids: tuple[int, ...]
    positions: Mapping[int, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Targets:
    """Data files that a snapshot's delete files may delete from: its parent's without those removed, and its own."""

    space: Workspace
    parent: Listed
    removed: frozenset[int]
    own: Sequence[FileRow]

    def at(self, paths: set[str]) -> dict[str, list[FileRow]]:
        """Return live data files by path; a path may have been added more than once."""
        found: defaultdict[str, list[FileRow]] = defaultdict(list)
        for file in (*self.space.at_paths(self.parent, paths), *self.own):
            is_target = file.content == FileContent.DATA and file.path in paths
            if is_target and file.file_id not in self.removed:
                found[file.path].append(file)
        return found

    def of_parent(self) -> list[FileRow]:
        """Return all live data files of the parent."""
        return self._live(ManifestContent.DATA)

    def equality_of_parent(self) -> list[FileRow]:
        """Return all live equality delete files of the parent."""
        return [file for file in self._live(ManifestContent.DELETES) if file.content == FileContent.EQUALITY_DELETES]

    def _live(self, content: ManifestContent) -> list[FileRow]:
        manifests = [manifest for manifest in self.parent if manifest.content == content]
        return list(self.space.files(self.space.live(manifests) - self.removed).values())


def read_deletions(services: Services, location: str, added: Sequence[FileRow], targets: Targets) -> list[NewDeletion]:
    """Return the deletions of added position delete files and vectors; positions in files that have left mean nothing.

    InvalidRequestError where readers wouldn't agree on what is deleted.
    """
    rows = _match_targets(services, location, added, targets)
    for delete, target, _ in rows:
        _check_applies(delete, target)
    return [_build_deletion(*row) for row in rows]


def read_all_deletions(
    services: Services, location: str, files: Sequence[FileRow], targets: Targets
) -> list[NewDeletion]:
    """Return the deletions of all delete files of a table's history.

    Some of its data files are newer than some deletes.
    """
    rows = _match_targets(services, location, files, targets)
    return [_build_deletion(*row) for row in rows if row[1].sequence_number <= row[0].sequence_number]


def _match_targets(
    services: Services, location: str, files: Sequence[FileRow], targets: Targets
) -> list[tuple[FileRow, FileRow, Sequence[int]]]:
    """Return each delete file with each data file that it names, and the positions there."""
    deletes = [file for file in files if file.content == FileContent.POSITION_DELETES]
    if not deletes:
        return []
    paths = list(dict.fromkeys(file.path for file in deletes))  # vectors share files
    read = run_in_parallel(partial(read_uploaded, services, location, what="delete file"), paths)
    data = dict(zip(paths, read, strict=True))
    found = {file.file_id: _read_positions(file, data[file.path]) for file in deletes}
    by_path = targets.at({path for rows in found.values() for path in rows})
    return [
        (delete, target, rows)
        for delete in deletes
        for path, rows in found[delete.file_id].items()
        for target in by_path.get(path, ())
    ]


def _build_deletion(delete: FileRow, target: FileRow, rows: Sequence[int]) -> NewDeletion:
    main_diff.check_positions({target.file_id: frozenset(rows)}, {target.file_id: target})
    return NewDeletion(delete.file_id, target.file_id, main_diff.encode_positions(rows))


def _check_applies(delete: FileRow, target: FileRow) -> None:
    if target.sequence_number > delete.sequence_number:
        raise InvalidRequestError(
            f"A delete file with sequence number {delete.sequence_number} deletes from {target.path}, which is newer: "
            "readers don't agree on whether it does"
        )
    if (target.spec_id, target.partition) != (delete.spec_id, delete.partition):
        raise InvalidRequestError(
            f"{delete.path} deletes from {target.path}, which is in another partition: "
            "readers don't agree on whether it does"
        )


def _read_positions(file: FileRow, data: bytes) -> Positions:
    if file.file_format == DELETION_VECTOR:
        return _read_vector(file, data)
    found = read_position_deletes(data, file.path)
    for path, rows in found.items():
        if rows[0] < 0:
            raise InvalidRequestError(f"{file.path} deletes position {rows[0]} of {path}: positions are 0 or more")
    return found


def _read_vector(file: FileRow, data: bytes) -> Positions:
    path, offset, size = (
        file.metrics.get(key) for key in ("referenced_data_file", "content_offset", "content_size_in_bytes")
    )
    if path is None or offset is None or size is None:
        raise InvalidRequestError(
            f"The deletion vector in {file.path} needs referenced_data_file, content_offset and content_size_in_bytes"
        )
    try:
        rows = read_deletion_vector(data, path, offset, size)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{file.path} at {offset}: {error}") from error
    if len(rows) != file.record_count:
        raise InvalidRequestError(
            f"The deletion vector of {path} has {format_count(len(rows), 'position')}, not {file.record_count}"
        )
    return {path: sorted(rows)} if rows else {}


@dataclass(frozen=True, slots=True)
class ListedFiles:
    """What a snapshot lists as added, with its deletions, and what of its parent's leaves."""

    snapshot: Snapshot
    files: tuple[FileRow, ...]
    deletions: tuple[NewDeletion, ...]
    removed: frozenset[int]


def list_files(
    services: Services,
    metadata: TableMetadata,
    snapshot: Snapshot,
    added: Sequence[FileRow],
    targets: Targets,
    ids: Iterator[int],
) -> ListedFiles:
    """Return what becomes of the files that a client added.

    Reads its delete files, and writes those that take their place.
    """
    deletions = read_deletions(services, metadata.location, added, targets)
    deletions += _find_late_deletions(services, metadata, added, targets)
    _check_single_vectors(targets, added, deletions)
    converted = {file.file_id for file in added if _is_converted(file, metadata)}
    if not converted:
        return ListedFiles(snapshot, tuple(added), tuple(deletions), targets.removed)
    newly = _find_newly_deleted(
        services, metadata, added, targets, [d for d in deletions if d.delete_file_id in converted]
    )
    own = ListedFiles(
        snapshot,
        tuple(file for file in added if file.file_id not in converted),
        tuple(row for row in deletions if row.delete_file_id not in converted),
        targets.removed,
    )
    return build_deleting_list(services, metadata, own, newly, targets, ids)


def build_deleting_files(
    services: Services,
    metadata: TableMetadata,
    snapshot: Snapshot,
    found: Mapping[int, frozenset[int]],
    targets: Targets,
    ids: Iterator[int],
) -> ListedFiles:
    """Return what a snapshot lists that does nothing but delete these positions of data files."""
    return build_deleting_list(services, metadata, ListedFiles(snapshot, (), (), targets.removed), found, targets, ids)


def build_deleting_list(
    services: Services,
    metadata: TableMetadata,
    own: ListedFiles,
    newly: Mapping[int, frozenset[int]],
    targets: Targets,
    ids: Iterator[int],
) -> ListedFiles:
    """Return what a snapshot lists as its own, with the files that the server writes for positions that it deletes."""
    snapshot, deleted = own.snapshot, _drop_known(targets, newly)
    numbers = SnapshotNumbers(snapshot.snapshot_id, snapshot.sequence_number)
    with open_background_writer(services) as beside:
        served = write_deletes(beside, metadata, numbers, deleted, ids)
    files = (*own.files, *served.files)
    superseded = _find_vectors(targets, deleted.positions) if metadata.format_version >= ROW_LINEAGE_VERSION else {}
    removed = targets.removed | superseded.keys()
    return ListedFiles(
        _summarize(metadata, snapshot, files, [*targets.space.files(targets.removed).values(), *superseded.values()]),
        files,
        (*own.deletions, *served.deletions),
        frozenset(removed),
    )


def _find_late_deletions(
    services: Services, metadata: TableMetadata, added: Sequence[FileRow], targets: Targets
) -> list[NewDeletion]:
    """Find what registered equality deletes delete from files that are added as older ones."""
    late = [f for f in added if f.content == FileContent.DATA and f.sequence_number < f.file_sequence_number]
    equality = targets.equality_of_parent() if late else []
    if not equality:
        return []
    found = find_equality_deletes(services, metadata, targets.space.folders(), equality, late)
    return find_deletions(found)


def find_deletions(found: Mapping[int, Mapping[int, frozenset[int]]]) -> list[NewDeletion]:
    """Return positions by delete file and data file as rows."""
    return [
        NewDeletion(delete_id, data_id, main_diff.encode_positions(rows))
        for delete_id, by_file in found.items()
        for data_id, rows in by_file.items()
    ]


def _check_single_vectors(targets: Targets, added: Sequence[FileRow], deletions: Sequence[NewDeletion]) -> None:
    """Raise InvalidRequestError if a data file would have two deletion vectors."""
    vectors = {file.file_id for file in added if file.file_format == DELETION_VECTOR}
    if not vectors:
        return
    seen: set[int] = set()
    for row in deletions:
        if row.delete_file_id in vectors and row.data_file_id in seen:
            raise InvalidRequestError(f"The snapshot adds two deletion vectors of one data file: {_path(targets, row)}")
        seen |= {row.data_file_id} if row.delete_file_id in vectors else set()
    if _find_vectors(targets, dict.fromkeys(seen)):
        raise InvalidRequestError(
            "The snapshot adds a deletion vector of a data file that has one: remove the old one, too"
        )


def _path(targets: Targets, row: NewDeletion) -> str:
    return targets.space.files([row.data_file_id])[row.data_file_id].path


def _is_converted(file: FileRow, metadata: TableMetadata) -> bool:
    is_old = metadata.format_version >= ROW_LINEAGE_VERSION and file.file_format != DELETION_VECTOR
    return file.content == FileContent.EQUALITY_DELETES or (file.content == FileContent.POSITION_DELETES and is_old)


def _find_newly_deleted(
    services: Services,
    metadata: TableMetadata,
    added: Sequence[FileRow],
    targets: Targets,
    by_position: Sequence[NewDeletion],
) -> dict[int, frozenset[int]]:
    """Return the positions that the converted delete files delete, by data file."""
    found: defaultdict[int, frozenset[int]] = defaultdict(frozenset)
    for row in by_position:
        found[row.data_file_id] |= main_diff.decode_positions(row.positions)
    equality = [file for file in added if file.content == FileContent.EQUALITY_DELETES]
    if equality:
        folders, data_files = targets.space.folders(), targets.of_parent()
        by_delete = find_equality_deletes(services, metadata, folders, equality, data_files)
        for by_file in by_delete.values():
            for file_id, rows in by_file.items():
                found[file_id] |= rows
    return dict(found)


def _drop_known(targets: Targets, newly: Mapping[int, frozenset[int]]) -> NewlyDeleted:
    """Return the positions that weren't deleted before."""
    deletions = targets.space.deletions_of(newly)
    live = targets.space.find_among(targets.parent, {row.delete_file_id for row in deletions}) - targets.removed
    before = collect_deleted_positions(deletions, targets.space.files(live))
    fresh = {file_id: rows - before.get(file_id, frozenset()) for file_id, rows in newly.items()}
    found = {file_id: rows for file_id, rows in fresh.items() if rows}
    own: dict[int, FileRow] = {file.file_id: file for file in targets.own}
    known = targets.space.files(found.keys() - own.keys())
    return NewlyDeleted(found, before, {file_id: own.get(file_id) or known[file_id] for file_id in found})


def _find_vectors(targets: Targets, data_files: Mapping[int, object]) -> dict[int, FileRow]:
    """Return the vectors that the parent has for the data files, which new ones take the place of."""
    deletes = {row.delete_file_id for row in targets.space.deletions_of(data_files)}
    live = targets.space.files(targets.space.find_among(targets.parent, deletes) - targets.removed)
    return {file_id: file for file_id, file in live.items() if file.file_format == DELETION_VECTOR}


def _summarize(
    metadata: TableMetadata, snapshot: Snapshot, added: Sequence[FileRow], removed: Sequence[FileRow]
) -> Snapshot:
    """Return the snapshot with a summary of what it lists; the client counted what it wrote."""
    parent = None if snapshot.parent_snapshot_id is None else metadata.snapshot(snapshot.parent_snapshot_id)
    counts = summarize_snapshot(snapshot.operation or "overwrite", added, removed, SnapshotTotals.from_parent(parent))
    theirs = {
        key: text for key, text in snapshot.summary.items() if not key.startswith(("added-", "removed-", "total-"))
    }
    return snapshot.replace_fields(summary={**theirs, **counts})
