"""Reads what a client uploaded before it committed: the manifest list and its new manifests, before any lock.

Reads are confined to the table's own and the allowed locations (design, "A commit walks"); whatever is wrong with the
files is the client's to know, as InvalidRequest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from duckicelake.bridge.manifests import ListedManifest
from duckicelake.bridge.uploads import Upload, changed_files, check_added, check_manifests
from duckicelake.catalog.services import Services
from duckicelake.errors import FileMissing, InvalidRequest, Unsupported
from duckicelake.iceberg.manifest import (
    DataFile,
    EntryStatus,
    FileContent,
    Manifest,
    ManifestFile,
    inherit_all,
    read_manifest,
    read_manifest_list,
)
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake import reader
from duckicelake.lake.changes import NewFile
from duckicelake.lake.state import FileRow

ParentList = Mapping[str, int | tuple[FileRow | NewFile, ...]]
"""The manifests of the snapshot that a client built on, by path: our manifest ids, or the files of the client's own."""


@dataclass(frozen=True, slots=True)
class ReadUpload:
    """What a proposed snapshot brings, with its manifests: those of the parent, and the new ones by path.

    `missing` are the files of the parent's manifests that it doesn't list; the new ones may hold them still.
    """

    upload: Upload
    kept: ParentList
    read: Mapping[str, Manifest]
    missing: Sequence[FileRow | NewFile]

    def as_parent(self, files: Sequence[NewFile]) -> ParentList:
        """The list for a next snapshot of the same request that builds on this one; `files` are the rows it got."""
        by_path: dict[str, FileRow | NewFile] = {file.path: file for file in (*self.missing, *files)}
        own = {
            path: tuple(by_path[e.data_file.file_path] for e in manifest.entries if e.status is not EntryStatus.DELETED)
            for path, manifest in self.read.items()
        }
        return {**self.kept, **own}


def main_list(services: Services, prior: Sequence[ListedManifest]) -> ParentList:
    """The manifests of main as clients know them."""
    with services.database.reading() as cursor:
        rows = reader.manifests(cursor, [manifest.manifest_id for manifest in prior])
    return {row.path: row.manifest_id for row in rows.values() if row.path is not None}


def read_upload(
    services: Services, target: TableMetadata, snapshot: Snapshot, proposed_id: int, parent: ParentList
) -> ReadUpload:
    """What the snapshot adds to and removes from its parent."""
    listed = _read_list(services, target.location, snapshot)
    paths = {line.manifest_path for line in listed}
    read = {
        line.manifest_path: _read_manifest(services, target.location, line)
        for line in listed
        if line.manifest_path not in parent
    }
    check_manifests(listed, read, {spec.spec_id: spec for spec in target.partition_specs})
    missing = _files_of(services, [parent[path] for path in parent.keys() - paths])
    upload = changed_files(listed, read, missing, snapshot, proposed_id)
    check_added(file for file, _, _ in upload.added)
    for file, _, _ in upload.added:
        _check_supported(file)
    return ReadUpload(upload, {path: parent[path] for path in parent.keys() & paths}, read, missing)


def read_uploaded(services: Services, table_location: str, location: str, what: str) -> bytes:
    """A file that the client uploaded; InvalidRequest if it isn't there or isn't the table's."""
    services.policy.check_readable(location, table_location)
    try:
        return services.store.read(location)
    except FileMissing:
        raise InvalidRequest(f"The {what} {location} does not exist: upload it before committing") from None


def _check_supported(file: DataFile) -> None:
    if file.content is FileContent.EQUALITY_DELETES:
        raise Unsupported("equality-deletes", f"{file.file_path} holds equality deletes, which are refused yet")
    if file.file_format.upper() != "PARQUET":
        raise Unsupported("file-formats", f"{file.file_path} is {file.file_format}, and DuckLake reads Parquet only")


def _files_of(services: Services, sources: Sequence[int | tuple[FileRow | NewFile, ...]]) -> list[FileRow | NewFile]:
    """The live files of manifests."""
    files: list[FileRow | NewFile] = [f for source in sources if isinstance(source, tuple) for f in source]
    ids = sorted(source for source in sources if isinstance(source, int))
    if ids:
        with services.database.reading() as cursor:
            entries = reader.entries(cursor, ids)
        files += [row for rows in entries.values() for row in rows if row.status != EntryStatus.DELETED]
    return files


def _read_list(services: Services, location: str, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    if snapshot.manifest_list is None:
        raise InvalidRequest(f"Snapshot {snapshot.snapshot_id} names no manifest-list")
    data = read_uploaded(services, location, snapshot.manifest_list, "manifest list")
    try:
        return read_manifest_list(data)
    except InvalidRequest as error:
        raise InvalidRequest(f"{snapshot.manifest_list}: {error}") from error


def _read_manifest(services: Services, location: str, line: ManifestFile) -> Manifest:
    data = read_uploaded(services, location, line.manifest_path, "manifest")
    if len(data) != line.manifest_length:
        raise InvalidRequest(
            f"Manifest {line.manifest_path} has {len(data)} bytes, but its manifest list says {line.manifest_length}"
        )
    try:
        manifest = read_manifest(data)
        return replace(manifest, entries=tuple(inherit_all(manifest, line)))
    except InvalidRequest as error:
        raise InvalidRequest(f"{line.manifest_path}: {error}") from error
