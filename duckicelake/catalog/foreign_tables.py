"""Reads a table that another catalog kept: its metadata.json, the manifests of all its snapshots, its delete files.

All of it may lie anywhere in the warehouse or the allowed locations: a table leaves files in each location it ever had.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from duckicelake.bridge.increments import Increment, NewList
from duckicelake.bridge.manifests import ListedManifest
from duckicelake.bridge.registration import Registration
from duckicelake.bridge.table_properties import DUCKLAKE_ID
from duckicelake.bridge.uploads import check_manifests
from duckicelake.catalog.access.confinement import check_readable
from duckicelake.catalog.access.ownership import check_may_read
from duckicelake.catalog.commits.ids import file_ids, manifest_ids
from duckicelake.catalog.commits.moves import move_main
from duckicelake.catalog.commits.uploaded_files import read_list, read_manifest_at
from duckicelake.catalog.commits.uploads import check_sizes, check_statistics, check_supported, files_of_snapshot
from duckicelake.catalog.commits.workspace import Workspace
from duckicelake.catalog.deletes.conversion import deletions_of
from duckicelake.catalog.deletes.equality import positions_deleted_by_equality
from duckicelake.catalog.deletes.uploaded import Targets, read_all_deletions
from duckicelake.catalog.services import Services
from duckicelake.errors import FileMissing
from duckicelake.iceberg.manifest import EntryStatus, FileContent, Manifest, ManifestFile
from duckicelake.iceberg.metadata import TableMetadata, parse_table_metadata
from duckicelake.iceberg.metadata_file import MAX_BYTES, read_document
from duckicelake.lake.additions import NewDeletion, NewFile, SideFiles
from duckicelake.lake.changes import Creation
from duckicelake.storage.parallel import in_parallel


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A table with all its snapshots as one step of a commit that creates it."""

    metadata: TableMetadata
    increment: Increment

    @property
    def paths(self) -> tuple[str, ...]:
        """Every data and delete file."""
        return tuple(file.path for file in self.increment.side.files)


def read_metadata(services: Services, location: str) -> TableMetadata:
    """The metadata of a file, gzipped or not; FileMissing, or InvalidRequest if it isn't any or may not be read."""
    check_readable(services, location, services.policy.data_zone)
    check_may_read(services, [location])
    try:
        data = services.store.read(location, MAX_BYTES)
    except FileMissing:
        raise FileMissing(f"There is no metadata file at {location}") from None
    metadata = parse_table_metadata(read_document(data, location))
    others = {key: value for key, value in metadata.properties.items() if key != DUCKLAKE_ID}
    return metadata.replaced(location=metadata.location.rstrip("/"), properties=others)


def read_foreign_table(services: Services, metadata: TableMetadata, creation: Creation) -> ForeignTable:
    """Everything that the metadata leads to; InvalidRequest, Unsupported."""
    zone, snapshots = services.policy.data_zone, metadata.snapshots
    check_may_read(services, (path for each in snapshots for path in files_of_snapshot(each)))
    check_statistics(services, None, None, metadata)
    read = in_parallel(partial(read_list, services, zone), snapshots)
    lines = {snapshot.snapshot_id: listed for snapshot, listed in zip(snapshots, read, strict=True)}
    registration = Registration(metadata, file_ids(services), manifest_ids(services))
    _read_manifests(services, registration, lines)
    metadata = registration.number_rows()
    lists = registration.lists(lines)
    space = Workspace(services, creation)
    space.learn(registration.files, ())
    deletions = _read_deletions(services, registration, space)
    space.learn((), deletions)
    main = lists.get(metadata.current_snapshot_id, ()) if metadata.current_snapshot_id is not None else ()
    side = SideFiles(registration.files, deletions, (), tuple(registration.manifests))
    increment = Increment(_rows(metadata, lists), side, move_main(services, space, metadata, (), main))
    return ForeignTable(metadata, increment)


def _rows(metadata: TableMetadata, lists: Mapping[int, Sequence[ListedManifest]]) -> tuple[NewList, ...]:
    return tuple(
        NewList(each, tuple(manifest.manifest_id for manifest in lists[each.snapshot_id]))
        for each in metadata.snapshots
    )


def _read_manifests(
    services: Services, registration: Registration, lists: Mapping[int, Sequence[ManifestFile]]
) -> None:
    """Take in each manifest once, with the line that says most of it: lists of before version 3 say no row ids."""
    metadata, zone = registration.metadata, services.policy.data_zone
    specs = {spec.spec_id: spec for spec in metadata.partition_specs}
    lines = {line.manifest_path: line for lines in lists.values() for line in lines}
    lines |= {line.manifest_path: line for each in lists.values() for line in each if line.first_row_id is not None}
    check_may_read(services, lines)
    check_sizes(lines.values())
    read = in_parallel(partial(read_manifest_at, services, zone, {}), lines.values())
    manifests: dict[str, Manifest] = dict(zip(lines, read, strict=True))
    for manifest in read:
        for entry in manifest.entries:
            if entry.status is not EntryStatus.DELETED:
                check_supported(entry.data_file, metadata.format_version)
    check_may_read(services, {e.data_file.file_path for each in manifests.values() for e in each.entries})
    for found in lists.values():
        check_manifests(found, manifests, specs)
    for path, line in lines.items():
        registration.add(line, manifests[path])


def _read_deletions(services: Services, registration: Registration, space: Workspace) -> tuple[NewDeletion, ...]:
    """What all live delete files of the history delete."""
    zone, live = services.policy.data_zone, registration.live
    targets = Targets(space, tuple(registration.listed.values()), frozenset(), ())
    found = read_all_deletions(services, zone, live, targets)
    equality = [file for file in live if file.content == FileContent.EQUALITY_DELETES]
    return (*found, *_read_equality_deletions(services, registration.metadata, space, live, equality))


def _read_equality_deletions(
    services: Services,
    metadata: TableMetadata,
    space: Workspace,
    live: Sequence[NewFile],
    equality: Sequence[NewFile],
) -> list[NewDeletion]:
    if not equality:
        return []
    data_files = [file for file in live if file.content == FileContent.DATA]
    folders = (space.folder(), services.policy.data_zone)
    return deletions_of(positions_deleted_by_equality(services, metadata, folders, equality, data_files))
