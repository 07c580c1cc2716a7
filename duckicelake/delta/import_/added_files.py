"""Write what an import adds: delete files for deletion vectors, and links whose folders name the partition."""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path

from duckicelake.bridge import main_diff
from duckicelake.bridge.commit.increments import LakeCopy
from duckicelake.bridge.main_diff import collect_deleted_positions
from duckicelake.bridge.native.steps import LiveDeletes
from duckicelake.bridge.snapshots import SnapshotNumbers
from duckicelake.catalog.authz.locations import write
from duckicelake.catalog.commit.main_update import write_delete_files
from duckicelake.catalog.commit.workspace import Listed, Workspace
from duckicelake.catalog.context.services import Services, take_file_ids
from duckicelake.catalog.table.derived_files import NewlyDeleted, open_background_writer, write_deletes
from duckicelake.delta.import_.files import PartitionColumn, TranslatedFile, format_linked_folder
from duckicelake.delta.log.actions import DeletionVector
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.errors import FileMissingError, InvalidRequestError, UnavailableError, UnsupportedError
from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.puffin import MAX_POSITIONS, read_bitmap
from duckicelake.lake.additions import NewDeleteFile, NewDeletion
from duckicelake.lake.state import FileRow, LiveFile, LiveFiles
from duckicelake.storage.threads import run_in_parallel

Positions = AbstractSet[int]


@dataclass(frozen=True, slots=True)
class VersionDeletes:
    """The delete files that a version adds and removes. idle: those that delete nothing any more."""

    files: tuple[FileRow, ...] = ()
    deletions: tuple[NewDeletion, ...] = ()
    delete_files: tuple[NewDeleteFile, ...] = ()
    idle: frozenset[int] = frozenset()


class DeltaDeletes:
    """The deleted positions of the table's data files, version by version."""

    def __init__(self, services: Services, space: Workspace, listed: Listed) -> None:
        self._services = services
        self._space = space
        self._live = LiveDeletes(_load_live_deletes(space, listed))
        self._ids: Iterator[int] = take_file_ids(services)

    def of(self, file_id: int) -> Positions:
        """Return the positions deleted from a data file."""
        return self._live.deleted.get(file_id, frozenset())

    def serve(
        self,
        metadata: TableMetadata,
        numbers: SnapshotNumbers,
        after: Mapping[int, frozenset[int]],
        targets: Mapping[int, FileRow],
        left: AbstractSet[int],
    ) -> VersionDeletes:
        """Write the delete files of a version. after: all deleted positions then, of data files that lose rows with it.

        left: data files that leave the table. From format version 3 on a vector replaces the one before.
        """
        superseded = after.keys() if metadata.format_version >= ROW_LINEAGE_VERSION else frozenset()
        idle = self._live.leave(left | superseded)
        for file_id in left:
            self._live.deleted.pop(file_id, None)
        if not after:
            return VersionDeletes(idle=idle)
        main_diff.check_positions(after, targets)
        before = {file_id: frozenset(self.of(file_id)) for file_id in after}
        newly = {file_id: found - before[file_id] for file_id, found in after.items()}
        files, deletions = self._serve(metadata, numbers, NewlyDeleted(newly, before, targets))
        self._live.join(deletions)
        written = write_delete_files(self._services, self._space, after, targets)
        return VersionDeletes(files, deletions, tuple(written), idle)

    def _serve(
        self, metadata: TableMetadata, numbers: SnapshotNumbers, deleted: NewlyDeleted
    ) -> tuple[tuple[FileRow, ...], tuple[NewDeletion, ...]]:
        """Write a Puffin file for each vector: PyIceberg applies all vectors of a file that it opens, live or not."""
        parts = [deleted]
        if metadata.format_version >= ROW_LINEAGE_VERSION:
            parts = [replace(deleted, positions={file_id: found}) for file_id, found in deleted.positions.items()]
        with open_background_writer(self._services) as beside:
            served = [write_deletes(beside, metadata, numbers, part, self._ids) for part in parts]
        return tuple(file for part in served for file in part.files), tuple(
            row for part in served for row in part.deletions
        )


def read_positions(log: DeltaLog, vector: DeletionVector, path: str) -> frozenset[int]:
    """Read the positions that a vector deletes from the data file at the log's path.

    Raises DamagedLogError, and InvalidRequestError for too many rows.
    """
    try:
        return read_bitmap(log.positions(vector, path), MAX_POSITIONS)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"the deletion vector of {path} in {log.root} can't be taken over: {error}"
        ) from error


def _load_live_deletes(space: Workspace, listed: Listed) -> LiveFiles:
    """Load the deleted positions of the table's files before, as far as delete files have them."""
    manifests = [manifest for manifest in listed if manifest.content == ManifestContent.DELETES and manifest.live_count]
    if not manifests:
        return LiveFiles((), {}, {}, {})
    files = space.files(space.live(manifests))
    data_ids = space.targets_of(files)
    deletions = [row for row in space.deletions_of(data_ids) if row.delete_file_id in files]
    targets: dict[int, frozenset[int]] = {}
    for row in deletions:
        targets[row.delete_file_id] = targets.get(row.delete_file_id, frozenset()) | {row.data_file_id}
    live = [
        LiveFile(file.file_id, file.content, file.sequence_number, file.ducklake_id, file.file_format)
        for file in (*space.files(data_ids).values(), *files.values())
    ]
    return LiveFiles(tuple(live), {}, collect_deleted_positions(deletions, files), targets)


class HiveLinker:
    """Makes links in the table's DuckLake folder. copies: make copies if the store has no links."""

    def __init__(self, services: Services, space: Workspace, *, copies: bool) -> None:
        self._services = services
        self._space = space
        self._copies = copies

    def of(self, columns: tuple[PartitionColumn, ...], files: Iterable[TranslatedFile]) -> tuple[LakeCopy, ...]:
        """Return a place for each file; UnsupportedError: there can't be one."""
        wanted = list(files)
        folder = self._space.folder() if wanted else ""
        if wanted and self._services.store.local_path(wanted[0].file.path) is None and not self._copies:
            raise UnsupportedError(
                "partition-columns",
                f"{wanted[0].file.path} has no column {columns[0].names[-1]}, nor do its folders say the value: "
                "DuckLake needs a copy in folders that do; --copy-for-duckdb makes one of each such file, in the store",
            )
        return tuple(run_in_parallel(lambda source: self._make_copy(folder, columns, source), wanted))

    def _make_copy(self, folder: str, columns: tuple[PartitionColumn, ...], translated: TranslatedFile) -> LakeCopy:
        file = translated.file
        name = f"{format_linked_folder(columns, translated.values)}{file.file_id}-{file.path.rpartition('/')[2]}"
        source, place = (self._services.store.local_path(location) for location in (file.path, folder + name))
        if source is None or place is None:
            write(self._services, folder + name, self._services.store.read(file.path))
        else:
            _make_link(source, place)
        return LakeCopy(file.file_id, name, file.file_size_in_bytes)


def _make_link(source: Path, place: Path) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(source)
    except FileNotFoundError as error:
        raise FileMissingError(f"{place} can't be made: {error.strerror}") from error
    except OSError as error:
        raise UnavailableError(f"{place} can't be made a link to {source}: {error.strerror}") from error
