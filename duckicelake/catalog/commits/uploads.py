"""What a client uploaded before it committed: the manifest list and its new manifests, read before any lock.

Reads are confined to the table's own and the allowed locations (design, "A commit walks"); whatever is wrong with the
files is the client's to know, as InvalidRequest.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from duckicelake.bridge.entries import UploadedFile
from duckicelake.bridge.file_schema import check_field_ids
from duckicelake.bridge.manifest_layout import ManifestLayout, layout_of
from duckicelake.bridge.realise import DELETION_VECTOR, AnyFile
from duckicelake.bridge.uploads import Place, Upload, changed_files, check_added, check_manifests, place_of
from duckicelake.catalog.access.ownership import check_may_read
from duckicelake.catalog.commits.uploaded_files import (
    MAX_MANIFESTS,
    MAX_MANIFESTS_BYTES,
    expected_manifest,
    read_list,
    read_manifest_at,
)
from duckicelake.catalog.services import Services
from duckicelake.errors import CatalogError, InvalidRequest, Unsupported
from duckicelake.iceberg.manifest import DataFile, EntryStatus, FileContent, Manifest, ManifestFile
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SEQUENCE_NUMBER_VERSION, TableMetadata
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake import native, reader
from duckicelake.lake.additions import NewFile
from duckicelake.storage.parallel import in_parallel
from duckicelake.storage.policy import check_file

ParentList = Mapping[str, int | tuple[AnyFile, ...]]
"""The manifests of the snapshot that a client built on, by path: our manifest ids, or the files of the client's own."""

AHEAD_BYTES: Final = 1 << 20
"""A list, and the manifests of a snapshot, that are read ahead: many may wait for their turn with theirs."""


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """Files of appends that were read before their turn: manifest lists and the new manifests, by path."""

    lists: Mapping[str, tuple[ManifestFile, ...]] = field(default_factory=dict)
    manifests: Mapping[str, Manifest] = field(default_factory=dict)

    @classmethod
    def all_of(cls, several: Iterable["ReadAhead"]) -> "ReadAhead":
        """What several have read, together."""
        lists, manifests = dict[str, tuple[ManifestFile, ...]](), dict[str, Manifest]()
        for each in several:
            lists |= each.lists
            manifests |= each.manifests
        return cls(lists, manifests)


@dataclass(frozen=True, slots=True)
class ReadUpload:
    """What a proposed snapshot brings, with its manifests: those of the parent, and the new ones by path.

    `missing` are the files of the parent's manifests that it doesn't list; the new ones may hold them still. `borrowed`
    are manifests of other snapshots that it lists as they are. layout: of a snapshot that does nothing but distribute
    its parent's files over manifests anew.
    """

    upload: Upload
    kept: ParentList
    read: Mapping[str, Manifest]
    missing: Sequence[AnyFile]
    borrowed: Mapping[str, int]
    layout: ManifestLayout | None = None

    def as_parent(self, files: Sequence[NewFile]) -> ParentList:
        """The list for a next snapshot of the same request that builds on this one; `files` are the rows it got."""
        known: dict[Place, AnyFile] = {place_of(file): file for file in (*self.missing, *files)}
        own = {
            path: tuple(known[place_of(e.data_file)] for e in manifest.entries if e.status is not EntryStatus.DELETED)
            for path, manifest in self.read.items()
        }
        return {**self.kept, **self.borrowed, **own}


def read_ahead(services: Services, location: str, snapshots: Sequence[Snapshot]) -> ReadAhead:
    """What a request's one append will need if it is small; what can't be read is left for when it is wanted."""
    if len(snapshots) != 1 or snapshots[0].manifest_list is None:
        return ReadAhead()
    (snapshot,), lists, manifests = snapshots, dict[str, tuple[ManifestFile, ...]](), dict[str, Manifest]()
    with suppress(CatalogError), services.meter.phase("upload_read"):
        expected = expected_manifest(services, location, snapshot)
        lists[str(snapshot.manifest_list)] = listed = read_list(services, location, snapshot, AHEAD_BYTES)
        new = [line for line in listed if line.added_snapshot_id == snapshot.snapshot_id]
        if sum(abs(line.manifest_length) for line in new) <= AHEAD_BYTES:  # lengths are what the client says
            manifests.update((line.manifest_path, read_manifest_at(services, location, expected, line)) for line in new)
    return ReadAhead(lists, manifests)


def read_upload(
    services: Services,
    table_id: int | None,
    target: TableMetadata,
    snapshot: Snapshot,
    proposed_id: int,
    parent: ParentList,
    ahead: ReadAhead,
) -> ReadUpload:
    """What the snapshot adds to and removes from its parent."""
    own = partial(_folders, services, table_id, target)
    check_may_read(services, files_of_snapshot(snapshot), own, table_id)
    listed = ahead.lists.get(snapshot.manifest_list or "")
    expected = expected_manifest(services, target.location, snapshot) if listed is None else {}
    listed = listed or read_list(services, target.location, snapshot)
    paths = {line.manifest_path for line in listed}
    foreign = {line.manifest_path for line in listed if line.added_snapshot_id != proposed_id}
    borrowed = _borrowed(services, table_id, foreign - parent.keys())
    check_may_read(services, paths - parent.keys() - borrowed.keys(), own, table_id)
    check_sizes(line for line in listed if line.manifest_path not in parent and line.manifest_path not in borrowed)
    new = [line for line in listed if line.manifest_path not in parent and line.manifest_path not in borrowed]
    unread = [line for line in new if line.manifest_path not in ahead.manifests]
    manifests = in_parallel(partial(read_manifest_at, services, target.location, expected), unread)
    found = {**ahead.manifests, **{line.manifest_path: each for line, each in zip(unread, manifests, strict=True)}}
    read = {line.manifest_path: found[line.manifest_path] for line in new}
    check_manifests(listed, read, {spec.spec_id: spec for spec in target.partition_specs})
    missing = _files_of(services, [parent[path] for path in parent.keys() - paths])
    upload = changed_files(listed, read, missing, snapshot, proposed_id)
    check_added(file for file, _, _ in upload.added)
    for file, _, _ in upload.added:
        check_supported(file, target.format_version)
        if isinstance(file, UploadedFile):
            check_field_ids(file, target.last_column_id)
    check_may_read(services, (file.file_path for file, _, _ in upload.added), own, table_id)
    kept = {path: parent[path] for path in parent.keys() & paths}
    is_move = not (upload.added or upload.removed or borrowed)
    layout = layout_of(listed, read, kept, missing) if is_move else None
    return ReadUpload(upload, kept, read, missing, borrowed, layout)


def check_statistics(
    services: Services, table_id: int | None, base: TableMetadata | None, target: TableMetadata
) -> None:
    """InvalidRequest or Forbidden for a statistics file that the base doesn't name and the caller may not use."""
    known = set(statistics_of(base)) if base is not None else set()
    new = [path for path in statistics_of(target) if path not in known]
    for path in new:
        check_file(path)
    check_may_read(services, new, partial(_folders, services, table_id, target), table_id)


def statistics_of(metadata: TableMetadata) -> list[str]:
    """The statistics files of a table, partitions' included."""
    files = [file.statistics_path for file in metadata.statistics]
    return files + [file.statistics_path for file in metadata.partition_statistics]


def _folders(services: Services, table_id: int | None, target: TableMetadata) -> list[str]:
    """Where files of the table are its own."""
    if table_id is None:
        return [target.location]
    with services.database.reading() as cursor:
        return [target.location, native.path_prefix(cursor, table_id)]


def files_of_snapshot(snapshot: Snapshot) -> Sequence[str]:
    """The files that a snapshot itself names: its manifest list, or in old ones the manifests."""
    return (snapshot.manifests or ()) if snapshot.manifest_list is None else (snapshot.manifest_list,)


def check_sizes(lines: Iterable[ManifestFile]) -> None:
    """InvalidRequest for more than a server should read for one snapshot; manifests must be as long as they say."""
    found = sorted(lines, key=lambda line: line.manifest_length)
    if len(found) > MAX_MANIFESTS:
        raise InvalidRequest(
            f"The snapshot brings {len(found)} manifests; this server reads up to {MAX_MANIFESTS} for one: merge them"
        )
    total = sum(line.manifest_length for line in found)
    if total > MAX_MANIFESTS_BYTES:
        raise InvalidRequest(
            f"The snapshot brings manifests of {total} bytes, {found[-1].manifest_path} the longest of them; "
            f"this server reads up to {MAX_MANIFESTS_BYTES} for one snapshot"
        )


def _borrowed(services: Services, table_id: int | None, paths: AbstractSet[str]) -> dict[str, int]:
    if table_id is None or not paths:
        return {}
    with services.database.reading() as cursor:
        return reader.manifests_at(cursor, table_id, paths)


def check_supported(file: DataFile, format_version: int) -> None:
    """Unsupported for what DuckLake can't read, InvalidRequest for what the format version doesn't have."""
    check_file(file.file_path)
    is_vector = file.content is FileContent.POSITION_DELETES and file.file_format == DELETION_VECTOR
    if file.content is not FileContent.DATA and format_version < SEQUENCE_NUMBER_VERSION:
        raise InvalidRequest(f"{file.file_path} holds deletes, which need format version 2: upgrade the table")
    if is_vector and format_version < ROW_LINEAGE_VERSION:
        raise InvalidRequest(f"{file.file_path} holds deletion vectors, which need format version 3: upgrade the table")
    if file.file_format != "PARQUET" and not is_vector:
        raise Unsupported("file-formats", f"{file.file_path} is {file.file_format}, and DuckLake reads Parquet only")


def _files_of(services: Services, sources: Sequence[int | tuple[AnyFile, ...]]) -> list[AnyFile]:
    """The live files of manifests."""
    files: list[AnyFile] = [f for source in sources if isinstance(source, tuple) for f in source]
    ids = sorted(source for source in sources if isinstance(source, int))
    if ids:
        with services.database.reading() as cursor:
            entries = reader.entries(cursor, ids)
        files += [row for rows in entries.values() for status, row in rows if status != EntryStatus.DELETED]
    return files
