"""Deletion vectors of a Delta table as delete files of both sides, version by version."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from duckicelake.bridge import positions
from duckicelake.bridge.live_deletes import LiveDeletes
from duckicelake.bridge.numbering import Numbering
from duckicelake.bridge.realise import AnyFile, deleted_positions
from duckicelake.catalog.commits.ids import file_ids
from duckicelake.catalog.commits.moves import write_delete_files
from duckicelake.catalog.commits.workspace import Listed, Workspace
from duckicelake.catalog.deletes.served import NewlyDeleted, serve_deletes
from duckicelake.catalog.files.beside import files_beside
from duckicelake.catalog.services import Services
from duckicelake.delta.actions import DeletionVector
from duckicelake.delta.log import DeltaLog
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.deletes import MAX_POSITIONS, read_bitmap
from duckicelake.iceberg.manifest import ManifestContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.lake.additions import NewDeleteFile, NewDeletion, NewFile
from duckicelake.lake.state import LiveFile, LiveFiles

Positions = AbstractSet[int]


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a version brings and takes of delete files; `idle` are those that delete nothing any more."""

    files: tuple[NewFile, ...] = ()
    deletions: tuple[NewDeletion, ...] = ()
    delete_files: tuple[NewDeleteFile, ...] = ()
    idle: frozenset[int] = frozenset()


class DeltaDeletes:
    """What is deleted of the table's data files, by positions; grows with its versions."""

    def __init__(self, services: Services, space: Workspace, listed: Listed) -> None:
        self._services = services
        self._space = space
        self._live = LiveDeletes(_live_files(space, listed))
        self._ids: Iterator[int] = file_ids(services)

    def of(self, file_id: int) -> Positions:
        """The positions deleted from a data file."""
        return self._live.deleted.get(file_id, frozenset())

    def serve(
        self,
        metadata: TableMetadata,
        numbers: Numbering,
        after: Mapping[int, frozenset[int]],
        targets: Mapping[int, AnyFile],
        left: AbstractSet[int],
    ) -> Deleted:
        """Write the delete files of a version. after: all that is deleted then, of data files that lose rows with it.

        left: data files that leave the table. From format version 3 on a vector takes the place of the one before.
        """
        superseded = after.keys() if metadata.format_version >= ROW_LINEAGE_VERSION else frozenset()
        idle = self._live.leave(left | superseded)
        for file_id in left:
            self._live.deleted.pop(file_id, None)
        if not after:
            return Deleted(idle=idle)
        positions.check(after, targets)
        before = {file_id: frozenset(self.of(file_id)) for file_id in after}
        newly = {file_id: found - before[file_id] for file_id, found in after.items()}
        files, deletions = self._serve(metadata, numbers, NewlyDeleted(newly, before, targets))
        self._live.join(deletions)
        written = write_delete_files(self._services, self._space, after, targets)
        return Deleted(files, deletions, tuple(written), idle)

    def _serve(
        self, metadata: TableMetadata, numbers: Numbering, deleted: NewlyDeleted
    ) -> tuple[tuple[NewFile, ...], tuple[NewDeletion, ...]]:
        """A Puffin file for each vector: of one that it opens PyIceberg applies all, live or not."""
        parts = [deleted]
        if metadata.format_version >= ROW_LINEAGE_VERSION:
            parts = [replace(deleted, positions={file_id: found}) for file_id, found in deleted.positions.items()]
        with files_beside(self._services) as beside:
            served = [serve_deletes(beside, metadata, numbers, part, self._ids) for part in parts]
        return tuple(file for each in served for file in each.files), tuple(
            row for each in served for row in each.deletions
        )


def positions_of(log: DeltaLog, vector: DeletionVector, path: str) -> frozenset[int]:
    """What a vector deletes of the data file at the log's path; DamagedLog, and InvalidRequest for too many rows."""
    try:
        return read_bitmap(log.positions(vector, path), MAX_POSITIONS)
    except InvalidRequest as error:
        raise InvalidRequest(f"the deletion vector of {path} in {log.root} can't be taken over: {error}") from error


def _live_files(space: Workspace, listed: Listed) -> LiveFiles:
    """What is deleted of the table's files before, as far as delete files go."""
    manifests = [each for each in listed if each.content == ManifestContent.DELETES and each.live_count]
    if not manifests:
        return LiveFiles((), {}, {}, {})
    files = space.files(space.live(manifests))
    data_ids = space.targets_of(files)
    deletions = [row for row in space.deletions_of(data_ids) if row.delete_file_id in files]
    targets: dict[int, frozenset[int]] = {}
    for row in deletions:
        targets[row.delete_file_id] = targets.get(row.delete_file_id, frozenset()) | {row.data_file_id}
    live = [
        LiveFile(each.file_id, each.content, each.sequence_number, each.ducklake_id, each.file_format)
        for each in (*space.files(data_ids).values(), *files.values())
    ]
    return LiveFiles(tuple(live), {}, deleted_positions(deletions, files), targets)
