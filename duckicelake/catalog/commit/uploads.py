"""Read manifest lists and manifests that clients uploaded, before any lock."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import BoundedSemaphore
from typing import Final, TypeAlias

from duckicelake.bridge.commit.uploads import (
    ManifestLayout,
    Place,
    Upload,
    check_added,
    check_manifests,
    find_changed_files,
    find_manifest_layout,
    get_place,
)
from duckicelake.bridge.data_files import UploadedFile, pack_entry
from duckicelake.bridge.file_schema import check_field_ids
from duckicelake.bridge.main_diff import DELETION_VECTOR
from duckicelake.catalog.authz.locations import build_read_check, check_may_read, check_readable
from duckicelake.catalog.context.services import Services
from duckicelake.errors import CatalogError, FileMissingError, InvalidRequestError, UnsupportedError
from duckicelake.iceberg.manifest.entry import (
    DataFile,
    EntryStatus,
    FileContent,
    Manifest,
    ManifestContent,
    ManifestFile,
    inherit_all_numbers,
)
from duckicelake.iceberg.manifest.reader import read_manifest, read_manifest_list
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SEQUENCE_NUMBER_VERSION, TableMetadata
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.ducklake import native
from duckicelake.lake.side_tables import reader
from duckicelake.lake.state import FileRow
from duckicelake.storage.policy import check_file
from duckicelake.storage.threads import run_in_parallel, start_within

Expected: TypeAlias = Mapping[str, Callable[[], bytes | None]]
"""Manifests that are being read, by path; None of those that aren't there, or are longer than expected."""
MAX_MANIFESTS: Final = 10_000
MAX_MANIFESTS_BYTES: Final = 256 << 20
"""Manifests of one snapshot, and any one file that a client uploaded; a manifest is about 8 MB at most."""
EXPECTED_BYTES: Final = 1 << 20
"""Of a manifest of unknown length. Longer ones take so long to read that a saved round trip matters little."""
_slots: Final = BoundedSemaphore(32)
USUAL_LIST: Final = re.compile(r"(.+)/snap-[0-9]+-[0-9]+-([0-9A-Fa-f-]{36})\.avro")
ParentList = Mapping[str, int | tuple[FileRow, ...]]
"""The manifests of the snapshot that a client built on, by path: our manifest ids, or the files of the client's own."""
AHEAD_BYTES: Final = 1 << 20
"""A list, and the manifests of a snapshot, that are read ahead: many may wait for their turn with theirs."""


def read_uploaded(
    services: Services, table_location: str, location: str, what: str, at_most: int = MAX_MANIFESTS_BYTES
) -> bytes:
    """Return a file that the client uploaded.

    Raises InvalidRequestError if it isn't there, isn't the table's, or has more bytes.
    """
    check_readable(services, location, table_location)
    try:
        return services.store.read(location, at_most)
    except FileMissingError:
        raise InvalidRequestError(f"The {what} {location} does not exist: upload it before committing") from None


def expect_manifest(services: Services, location: str, snapshot: Snapshot) -> Expected:
    """Begin to read the manifest that the snapshot's list most likely names; none where files are near.

    Nor where many are being read: no request waits for manifests that its list does not name, so they must be bounded.
    """
    named = USUAL_LIST.fullmatch(snapshot.manifest_list or "")
    if named is None or _is_near(services, named[0]):
        return {}
    path = f"{named[1]}/{named[2]}-m0.avro"
    reading = start_within(_slots, partial(_if_readable, services, location, path))
    return {} if reading is None else {path: reading}


def _is_near(services: Services, path: str) -> bool:
    with suppress(InvalidRequestError):
        return services.store.local_path(path) is not None
    return True


def _if_readable(services: Services, location: str, path: str) -> bytes | None:
    with suppress(InvalidRequestError):
        return read_uploaded(services, location, path, "manifest", EXPECTED_BYTES)
    return None


def read_list(
    services: Services, location: str, snapshot: Snapshot, at_most: int = MAX_MANIFESTS_BYTES
) -> tuple[ManifestFile, ...]:
    """Return the lines of a snapshot's manifest list; InvalidRequestError."""
    if snapshot.manifest_list is None:
        return _lines_of(services, location, snapshot.manifests or (), snapshot.snapshot_id)
    data = read_uploaded(services, location, snapshot.manifest_list, "manifest list", at_most)
    try:
        return read_manifest_list(data)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{snapshot.manifest_list}: {error}") from error


def _lines_of(services: Services, location: str, paths: Sequence[str], snapshot_id: int) -> tuple[ManifestFile, ...]:
    """Return the lines of the manifests that a version 1 snapshot lists itself, without a manifest list."""
    if len(paths) > MAX_MANIFESTS or len(set(paths)) < len(paths):
        raise InvalidRequestError(
            f"Snapshot {snapshot_id} lists {len(paths)} manifests: name each once, and up to {MAX_MANIFESTS}"
        )
    lines: list[ManifestFile] = []
    left = MAX_MANIFESTS_BYTES
    for path in paths:
        data = read_uploaded(services, location, path, "manifest", left)
        left -= len(data)
        found = read_manifest(data)
        spec_id, content = found.spec_id or 0, found.content or ManifestContent.DATA
        lines.append(ManifestFile(path, len(data), spec_id, content, 0, 0, snapshot_id, *[None] * 6))
    return tuple(lines)


def read_manifest_at(services: Services, location: str, expected: Expected, line: ManifestFile) -> Manifest:
    """Return the manifest of a line, its entries with what they inherit; InvalidRequestError."""
    path = line.manifest_path
    data = expected[path]() if path in expected else None
    if data is None:
        data = read_uploaded(services, location, path, "manifest", line.manifest_length)
    if len(data) != line.manifest_length:
        raise InvalidRequestError(
            f"Manifest {path} has {len(data)} bytes, but its manifest list says {line.manifest_length}"
        )
    try:
        return read_manifest(data, lambda entries: inherit_all_numbers(map(pack_entry, entries), line))
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """Files of appends that were read before their turn: manifest lists and the new manifests, by path."""

    lists: Mapping[str, tuple[ManifestFile, ...]] = field(default_factory=dict)
    manifests: Mapping[str, Manifest] = field(default_factory=dict)

    @classmethod
    def all_of(cls, several: Iterable["ReadAhead"]) -> "ReadAhead":
        """Return what several have read, together."""
        lists, manifests = dict[str, tuple[ManifestFile, ...]](), dict[str, Manifest]()
        for read in several:
            lists |= read.lists
            manifests |= read.manifests
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
    missing: Sequence[FileRow]
    borrowed: Mapping[str, int]
    layout: ManifestLayout | None = None

    def as_parent(self, files: Sequence[FileRow]) -> ParentList:
        """Return the list for a next snapshot of the same request that builds on this one.

        `files` are the rows it got.
        """
        known: dict[Place, FileRow] = {get_place(file): file for file in (*self.missing, *files)}
        own = {
            path: tuple(known[get_place(e.data_file)] for e in manifest.entries if e.status is not EntryStatus.DELETED)
            for path, manifest in self.read.items()
        }
        return {**self.kept, **self.borrowed, **own}


def read_ahead(services: Services, location: str, snapshots: Sequence[Snapshot]) -> ReadAhead:
    """Return what a request's one append will need if it is small; what can't be read is left for when it is wanted."""
    if len(snapshots) != 1 or snapshots[0].manifest_list is None:
        return ReadAhead()
    (snapshot,), lists, manifests = snapshots, dict[str, tuple[ManifestFile, ...]](), dict[str, Manifest]()
    with suppress(CatalogError), services.meter.phase("upload_read"):
        expected = expect_manifest(services, location, snapshot)
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
    """Return what the snapshot adds to and removes from its parent."""
    check = build_read_check(services, partial(_folders, services, table_id, target), table_id)
    check(read_snapshot_files(snapshot))
    listed = ahead.lists.get(snapshot.manifest_list or "")
    expected = expect_manifest(services, target.location, snapshot) if listed is None else {}
    listed = listed or read_list(services, target.location, snapshot)
    paths = {line.manifest_path for line in listed}
    foreign = {line.manifest_path for line in listed if line.added_snapshot_id != proposed_id}
    borrowed = _find_borrowed(services, table_id, foreign - parent.keys())
    check(paths - parent.keys() - borrowed.keys())
    check_sizes(line for line in listed if line.manifest_path not in parent and line.manifest_path not in borrowed)
    new = [line for line in listed if line.manifest_path not in parent and line.manifest_path not in borrowed]
    unread = [line for line in new if line.manifest_path not in ahead.manifests]
    manifests = run_in_parallel(partial(read_manifest_at, services, target.location, expected), unread)
    found = {
        **ahead.manifests,
        **{line.manifest_path: manifest for line, manifest in zip(unread, manifests, strict=True)},
    }
    read = {line.manifest_path: found[line.manifest_path] for line in new}
    check_manifests(listed, read, {spec.spec_id: spec for spec in target.partition_specs})
    missing = _list_files(services, [parent[path] for path in parent.keys() - paths])
    upload = find_changed_files(listed, read, missing, snapshot, proposed_id)
    check_added(file for file, _, _ in upload.added)
    for file, _, _ in upload.added:
        check_supported(file, target.format_version)
        if isinstance(file, UploadedFile):
            check_field_ids(file, target.last_column_id)
    check(file.file_path for file, _, _ in upload.added)
    kept = {path: parent[path] for path in parent.keys() & paths}
    is_move = not (upload.added or upload.removed or borrowed)
    layout = find_manifest_layout(listed, read, kept, missing) if is_move else None
    return ReadUpload(upload, kept, read, missing, borrowed, layout)


def check_statistics(
    services: Services, table_id: int | None, base: TableMetadata | None, target: TableMetadata
) -> None:
    """Check the statistics files that the base doesn't name.

    Raises InvalidRequestError, or ForbiddenError where the caller may not use one.
    """
    known = set(find_statistics(base)) if base is not None else set()
    new = [path for path in find_statistics(target) if path not in known]
    for path in new:
        check_file(path)
    if new:
        check_may_read(services, new, partial(_folders, services, table_id, target), table_id)


def find_statistics(metadata: TableMetadata) -> list[str]:
    """Return the statistics files of a table, partitions' included."""
    files = [file.statistics_path for file in metadata.statistics]
    return files + [file.statistics_path for file in metadata.partition_statistics]


def _folders(services: Services, table_id: int | None, target: TableMetadata) -> list[str]:
    """Return where files of the table are its own."""
    if table_id is None:
        return [target.location]
    with services.database.reading() as cursor:
        return [target.location, native.read_path_prefix(cursor, table_id)]


def read_snapshot_files(snapshot: Snapshot) -> Sequence[str]:
    """Return the files that a snapshot itself names: its manifest list, or in old ones the manifests."""
    return (snapshot.manifests or ()) if snapshot.manifest_list is None else (snapshot.manifest_list,)


def check_sizes(lines: Iterable[ManifestFile]) -> None:
    """Raise InvalidRequestError for more than a server should read for one snapshot.

    Manifests must be as long as they say.
    """
    found = sorted(lines, key=lambda line: line.manifest_length)
    if len(found) > MAX_MANIFESTS:
        raise InvalidRequestError(
            f"The snapshot brings {len(found)} manifests; this server reads up to {MAX_MANIFESTS} for one: merge them"
        )
    total = sum(line.manifest_length for line in found)
    if total > MAX_MANIFESTS_BYTES:
        raise InvalidRequestError(
            f"The snapshot brings manifests of {total} bytes, {found[-1].manifest_path} the longest of them; "
            f"this server reads up to {MAX_MANIFESTS_BYTES} for one snapshot"
        )


def _find_borrowed(services: Services, table_id: int | None, paths: AbstractSet[str]) -> dict[str, int]:
    if table_id is None or not paths:
        return {}
    with services.database.reading() as cursor:
        return reader.find_manifests_at(cursor, table_id, paths)


def check_supported(file: DataFile, format_version: int) -> None:
    """Raise UnsupportedError for what DuckLake can't read, InvalidRequestError for what the format version lacks."""
    check_file(file.file_path)
    is_vector = file.content is FileContent.POSITION_DELETES and file.file_format == DELETION_VECTOR
    if file.content is not FileContent.DATA and format_version < SEQUENCE_NUMBER_VERSION:
        raise InvalidRequestError(f"{file.file_path} holds deletes, which need format version 2: upgrade the table")
    if is_vector and format_version < ROW_LINEAGE_VERSION:
        raise InvalidRequestError(
            f"{file.file_path} holds deletion vectors, which need format version 3: upgrade the table"
        )
    if file.file_format != "PARQUET" and not is_vector:
        raise UnsupportedError(
            "file-formats", f"{file.file_path} is {file.file_format}, and DuckLake reads Parquet only"
        )


def _list_files(services: Services, sources: Sequence[int | tuple[FileRow, ...]]) -> list[FileRow]:
    """Return the live files of manifests."""
    files: list[FileRow] = [f for source in sources if isinstance(source, tuple) for f in source]
    ids = sorted(source for source in sources if isinstance(source, int))
    if ids:
        with services.database.reading() as cursor:
            entries = reader.read_manifest_entries(cursor, ids)
        files += [row for rows in entries.values() for status, row in rows if status != EntryStatus.DELETED]
    return files
