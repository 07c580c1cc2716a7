"""Write the files that a table's metadata names: manifests, lists and metadata.json (design D4)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from duckicelake.bridge.artifacts import (
    Artifact,
    Encoded,
    Entries,
    Lines,
    ManifestDefinitions,
    encode_manifest,
    encode_manifest_list,
    encode_metadata,
    get_definitions,
)
from duckicelake.bridge.commit.change_set import build_next_lake
from duckicelake.bridge.project import apply_definitions, build_next_state, project_metadata, to_pending_manifest_row
from duckicelake.catalog.authz.locations import write_derived
from duckicelake.catalog.context.cache import ManifestCache, TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.errors import FileMissingError, InvalidRequestError, NoSuchTableError
from duckicelake.iceberg.manifest.entry import EntryStatus
from duckicelake.iceberg.metadata import TableMetadata, parse_table_metadata
from duckicelake.iceberg.metadata_file import MAX_METADATA_BYTES, read_document
from duckicelake.lake.additions import NewManifest
from duckicelake.lake.changes import ChangeSet, WrittenCommit
from duckicelake.lake.ducklake.snapshots import retry_transaction
from duckicelake.lake.side_tables import reader
from duckicelake.lake.state import FileRow, ManifestRow, SnapshotRow, TableRow, TableState
from duckicelake.properties import DELETE_AFTER_COMMIT, get_max_previous_versions
from duckicelake.storage.threads import run_in_parallel

_ENCODERS: Final = 2
"""Threads that encode manifests: while one deflates, which needs no interpreter, another goes on."""


@dataclass(frozen=True, slots=True)
class PendingVersion:
    """A version with snapshots whose lists aren't written.

    Attributes:
        snapshots: The snapshots whose lists aren't written.
        manifests: The manifests that these snapshots list.
        entries: The entries of unwritten manifests.

    """

    state: TableState
    snapshots: tuple[SnapshotRow, ...]
    manifests: Mapping[int, ManifestRow]
    entries: Mapping[int, Entries]


def read_pending(services: Services, table_id: int, before: TableState | None) -> PendingVersion:
    """Read the newest version; NoSuchTableError. before: an older state with all files written."""
    with services.database.reading() as cursor:
        row = reader.read_table_row(cursor, table_id)
        if row is None:
            raise NoSuchTableError(f"Table {table_id} does not exist any more")
        state = reader.read_table_state(cursor, row, before)
        unlisted = _find_without_list(state)
        manifests = reader.read_manifests(cursor, sorted(_list_manifests(unlisted)))
        bare = sorted(manifest.manifest_id for manifest in manifests.values() if manifest.path is None)
        return PendingVersion(state, unlisted, manifests, reader.read_manifest_entries(cursor, bare) if bare else {})


def build_next_pending(
    services: Services, before: TableState, known: ManifestCache, change: ChangeSet, written: WrittenCommit
) -> PendingVersion | None:
    """Build the version that the change makes of the one before; of files only those in rewritten manifests are read.

    None if the metadata log gets longer than the known one, or if files of the version before got lost. None, too, if
    that version's metadata.json isn't recorded: another server may record it meanwhile, and then the log has it.
    """
    if before.metadata_location is None:
        return None
    state = build_next_state(before, change, written)
    logged, logged_before = (
        get_max_previous_versions(row.metadata.get("properties", {})) for row in (state.row, before.row)
    )
    if logged > logged_before <= len(before.metadata_log):
        return None
    state = replace(state, metadata_log=state.metadata_log[-logged:])
    unlisted = _find_without_list(state)
    wanted = _list_manifests(unlisted)
    new = {m.manifest_id: m for step in change.steps for m in step.side.manifests if m.manifest_id in wanted}
    files: dict[int, FileRow] = dict(_list_new_files(change))
    older = {file_id for manifest in new.values() for _, file_id in _list_entries(manifest) if file_id not in files}
    if older:
        with services.database.statement(only_reads=True) as cursor:
            files |= reader.read_files(cursor, older)
    entries = {key: [(status, files[id_]) for status, id_ in _list_entries(item)] for key, item in new.items()}
    manifests = known.manifests_of(services.database, wanted - new.keys())
    if any(manifest.path is None for manifest in manifests.values()):
        return None
    manifests |= {key: to_pending_manifest_row(item) for key, item in new.items()}
    return PendingVersion(state, unlisted, manifests, entries)


def _find_without_list(state: TableState) -> tuple[SnapshotRow, ...]:
    return tuple(snapshot for snapshot in state.snapshots if snapshot.manifest_list is None)


def _list_manifests(snapshots: Sequence[SnapshotRow]) -> set[int]:
    return {manifest_id for snapshot in snapshots for manifest_id in snapshot.manifest_ids}


def _list_new_files(change: ChangeSet) -> Iterator[tuple[int, FileRow]]:
    return ((file.file_id, file) for step in change.steps for file in step.side.files)


def _list_entries(manifest: NewManifest) -> list[tuple[int, int]]:
    """Return (status, file id) of the manifest's entries, in its order."""
    groups = (
        (EntryStatus.ADDED, manifest.added),
        (EntryStatus.DELETED, manifest.deleted),
        (EntryStatus.EXISTING, manifest.existing),
    )
    return [(int(status), file_id) for status, ids in groups for file_id in ids]


def encode_version(pending: PendingVersion, before: tuple[TableState, TableMetadata] | None) -> TableVersion:
    """Encode the missing files of a version; the result has them as `new_files`. before: as for `project_metadata`."""
    state = pending.state
    definitions = replace(get_definitions(apply_definitions(state.row, before)), location=state.row.location)
    manifests, new = _encode_manifests(pending, definitions)
    lines: Lines = {}
    lists = [_encode_list(snapshot, manifests, definitions, lines) for snapshot in pending.snapshots]
    paths = {artifact.row.object_id: artifact.row.path for artifact in lists}
    state = replace(state, snapshots=_add_lists(state.snapshots, paths))
    metadata = project_metadata(state, before)
    document = encode_metadata(metadata, state.row.version)
    current = state.current()
    listed = [id_ for id_ in current.manifest_ids if id_ in manifests] if current else []
    return TableVersion(
        replace(state, metadata_location=document.row.path),
        metadata,
        document.data,
        new_files=(*new, *lists, document),
        known=ManifestCache({id_: manifests[id_] for id_ in listed}),
    )


def _encode_manifests(
    pending: PendingVersion, known: ManifestDefinitions
) -> tuple[dict[int, ManifestRow], list[Artifact]]:
    listed = [file.file_id for entries in pending.entries.values() for _, file in entries]
    files: Encoded | None = {} if len(set(listed)) < len(listed) else None  # a file may be in several

    def encode(manifest_id: int) -> Artifact:
        return encode_manifest(pending.manifests[manifest_id], pending.entries[manifest_id], known, files)

    new = run_in_parallel(encode, pending.entries, _ENCODERS)
    written = {
        manifest.row.object_id: replace(
            pending.manifests[manifest.row.object_id],
            path=manifest.row.path,
            length=manifest.row.length,
            facts=manifest.row.facts,
        )
        for manifest in new
    }
    return {**pending.manifests, **written}, new


def _encode_list(
    snapshot: SnapshotRow, manifests: Mapping[int, ManifestRow], known: ManifestDefinitions, lines: Lines
) -> Artifact:
    listed = [manifests[manifest_id] for manifest_id in snapshot.manifest_ids]
    return encode_manifest_list(snapshot, listed, known, lines)


def _add_lists(rows: Sequence[SnapshotRow], lists: Mapping[int, str]) -> tuple[SnapshotRow, ...]:
    """Return the snapshots with the paths of new lists.

    Snapshots without a list are most often the last ones, so the search begins there.
    """
    filled = list(rows)
    bare = (number for number in reversed(range(len(rows))) if rows[number].manifest_list is None)
    for number in islice(bare, len(lists)):
        filled[number] = replace(rows[number], manifest_list=lists[rows[number].snapshot_id])
    return tuple(filled)


def forget_lost(services: Services, row: TableRow) -> bool:
    """Forget that lost files were written; return whether there were any, so that they must be written again.

    It checks the files that a reader of main needs and, on a local disk, the files that were written last. If one of
    these is lost, it checks all others.
    """
    table_id, is_local = row.table_id, services.store.local_path(row.location) is not None
    with services.database.reading() as cursor:
        suspects = reader.read_main_artifacts(cursor, table_id, with_last=is_local)
    if not _find_lost(services, suspects):
        return False
    with services.database.reading() as cursor:
        written = reader.read_artifacts(cursor, table_id)
    lost = _find_lost(services, written)
    if not lost:  # the store finds them again: nothing needs to be written
        return False

    def attempt() -> None:
        with services.database.transaction() as cursor:
            reader.forget_artifacts(cursor, table_id, lost)

    retry_transaction(attempt)
    return True


def _find_lost(services: Services, lengths: Mapping[str, int]) -> list[str]:
    """Return those of the paths that have no file of this length."""
    sizes = services.store.sizes(list(lengths))
    return [path for path, size in zip(lengths, sizes, strict=True) if size != lengths[path]]


def materialize(services: Services, table_id: int) -> TableVersion:
    """Return the newest version of the table with all files written; NoSuchTableError.

    It looks for lost files if no version of the table is cached: no process outlives a power loss.
    """
    cached = services.cache.get(table_id)
    table = _materialize_pending(services, table_id, None if cached is None else (cached.state, cached.metadata))
    if cached is not None:
        table.known.inherit(cached.known)
    return table


def _materialize_pending(
    services: Services, table_id: int, before: tuple[TableState, TableMetadata] | None
) -> TableVersion:
    while True:
        pending = read_pending(services, table_id, before[0] if before else None)
        state = pending.state
        if before is None and forget_lost(services, state.row):
            continue
        if state.metadata_location is not None and not pending.snapshots:
            return _restore_version(services, state, before)
        version = write(services, encode_version(pending, before))
        if version is not None:
            return version


def _restore_version(
    services: Services, state: TableState, before: tuple[TableState, TableMetadata] | None
) -> TableVersion:
    """Return the version as its recorded metadata.json has it.

    The metadata log in that file may name files whose records were forgotten after it was encoded. The file's name has
    the digest of its content, so that only another content makes the file be read.
    """
    metadata = project_metadata(state, before)
    document = encode_metadata(metadata, state.row.version)
    location = state.metadata_location
    if location is not None and location != document.row.path:
        with suppress(FileMissingError, InvalidRequestError):  # a new server's first load writes lost files again
            data = services.store.read(location, MAX_METADATA_BYTES)
            written = parse_table_metadata(read_document(data, location)).metadata_log
            state = replace(state, metadata_log=tuple((old.metadata_file, old.timestamp_ms) for old in written))
            metadata = project_metadata(state, before)
            document = encode_metadata(metadata, state.row.version)
    return TableVersion(state, metadata, document.data)


def materialize_next(
    services: Services, before: TableVersion, change: ChangeSet, written: WrittenCommit
) -> TableVersion | None:
    """Return what `materialize` would after this change of the version before, without reading all of it.

    None if the table has changed since, or as for `prepare_next`.
    """
    prepared = prepare_next(services, before, change, written)
    return None if prepared is None else write(services, prepared)


def prepare_next(
    services: Services, before: TableVersion, change: ChangeSet, written: WrittenCommit
) -> TableVersion | None:
    """Encode the version that this change would make of the one before, if it were written so.

    None as for `build_next_pending`.
    """
    pending = build_next_pending(services, before.state, before.known, change, written)
    if pending is None:
        return None
    after = encode_version(pending, (before.state, before.metadata))
    after.known.inherit(before.known)
    if before.known.lake is not None:
        after.known.lake = build_next_lake(before.known.lake, change, after.metadata, after.row)
    return after


def write(services: Services, version: TableVersion) -> TableVersion | None:
    """Write the new files of a version and record them; returns as `record` does."""
    write_files(services, version)
    return record(services, version)


def write_files(services: Services, version: TableVersion) -> None:
    """Write the new files of a version."""
    write_derived(services, [(file.row.path, file.data) for file in version.new_files])


def record(services: Services, version: TableVersion) -> TableVersion | None:
    """Record the written files of a version; None if the metadata.json is no use.

    The table has a newer version, or another server recorded another file for this one.
    """
    if not services.recorder.record(services.database, version.row, [file.row for file in version.new_files]):
        return None
    delete_old_metadata(services, version.row)
    return replace(version, new_files=())


def delete_old_metadata(services: Services, row: TableRow) -> None:
    """Delete metadata files that have left the metadata log, if the table's property says so; errors are dropped."""
    if row.metadata.get("properties", {}).get(DELETE_AFTER_COMMIT, "").lower() != "true":
        return
    with suppress(Exception):  # the commit counts; the next one tries again
        with services.database.reading() as cursor:
            paths = reader.read_outdated_metadata(cursor, row)
        if paths:
            _delete_metadata(services, row.table_id, paths)


def _delete_metadata(services: Services, table_id: int, paths: Sequence[str]) -> None:
    for path in paths:
        services.store.delete(path)
    with services.database.transaction() as cursor:
        reader.forget_metadata(cursor, table_id, paths)
