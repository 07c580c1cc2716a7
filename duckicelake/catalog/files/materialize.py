"""Makes the files exist that a table's metadata names: manifests, manifest lists and metadata.json (design D4).

Lazy and incremental: what is recorded as written is not encoded again. Where this comes after COMMIT a crash in between
loses nothing: the next load writes the same bytes. What comes before and isn't committed then is an orphan.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from duckicelake.bridge.artifacts import (
    Artifact,
    Definitions,
    Encoded,
    Entries,
    definitions_of,
    manifest_artifact,
    manifest_list_artifact,
    metadata_artifact,
)
from duckicelake.bridge.project import defined, project
from duckicelake.bridge.realise import AnyFile
from duckicelake.bridge.succession import lake_after, manifest_row, state_after
from duckicelake.catalog.access.confinement import write_derived
from duckicelake.catalog.commits.known import Known
from duckicelake.catalog.files.mending import forget_lost
from duckicelake.catalog.files.outdated import delete_outdated
from duckicelake.catalog.loads.cache import Materialized
from duckicelake.catalog.services import Services
from duckicelake.errors import NoSuchTable
from duckicelake.iceberg.manifest import EntryStatus
from duckicelake.lake import artifacts as lake_artifacts
from duckicelake.lake import reader
from duckicelake.lake.changes import ChangeSet, NewFile, NewManifest, Written, WrittenFile
from duckicelake.lake.snapshots import retrying
from duckicelake.lake.state import ManifestRow, SnapshotRow, TableState
from duckicelake.storage.objects import NewFile as FileToWrite
from duckicelake.storage.parallel import in_parallel

_ENCODERS: Final = 2
"""Threads that encode manifests: while one deflates, which needs no interpreter, another goes on."""


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """What isn't written yet: snapshots without a list, the manifests they list, and entries of unwritten ones."""

    snapshots: tuple[SnapshotRow, ...]
    manifests: Mapping[int, ManifestRow]
    entries: Mapping[int, Entries]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A version, and those of its files that aren't recorded yet: as rows, and what is to be written."""

    table: Materialized
    rows: tuple[WrittenFile, ...]
    files: tuple[FileToWrite, ...] = field(repr=False)


def materialize(services: Services, table_id: int, change: ChangeSet | None = None) -> Materialized:
    """The newest version of the table, every file of it written; NoSuchTable if it has gone.

    change: what was just caught up with, whose files need not be read again.
    """
    cached = services.cache.get(table_id)
    before = cached.materialized if cached else None
    while True:
        state, unwritten = _read(services, table_id, before.state if before else None, change)
        location = None if unwritten.snapshots else state.metadata_location
        if (location is not None or before is None) and forget_lost(services, state):
            before = None
            continue
        if location is not None:
            metadata = project(state, (before.state, before.metadata) if before else None)
            body = metadata_artifact(metadata, state.row.version).data
            return Materialized(state.row, state, metadata, location, body)
        prepared = _prepared(state, unwritten, before)
        if _write(services, prepared):
            return prepared.table


def materialize_next(
    services: Services, before: Materialized, change: ChangeSet, written: Written
) -> Materialized | None:
    """What `materialize` gives once this change of the version before is committed, but without reading all of it.

    None if somebody has changed the table since, or as for `prepare_next`.
    """
    prepared = prepare_next(services, before, change, written)
    return prepared.table if prepared is not None and _write(services, prepared) else None


def prepare_next(services: Services, before: Materialized, change: ChangeSet, written: Written) -> Prepared | None:
    """The version that this change would make of the one before, if it were written so; its files are yet to be.

    None where the metadata log gets longer than what is known of it, or files of the version before got lost.
    """
    state = state_after(before.state, change, written)
    logged, logged_before = reader.previous_versions(state.row), reader.previous_versions(before.row)
    if logged > logged_before <= len(before.state.metadata_log):
        return None
    state = replace(state, metadata_log=state.metadata_log[-logged:])
    unwritten = _unwritten_of(services, before.known, change, state)
    if unwritten is None:
        return None
    prepared = _prepared(state, unwritten, before)
    if before.known.lake is not None:
        after = prepared.table
        after.known.lake = lake_after(before.known.lake, change, after.metadata, after.row)
    return prepared


def _read(
    services: Services, table_id: int, before: TableState | None, change: ChangeSet | None
) -> tuple[TableState, _Unwritten]:
    with services.database.reading() as cursor:
        row = reader.table_row(cursor, table_id)
        if row is None:
            raise NoSuchTable(f"Table {table_id} does not exist any more")
        state = reader.table_state(cursor, row, before)
        snapshots = tuple(snapshot for snapshot in state.snapshots if snapshot.manifest_list is None)
        wanted = {manifest for snapshot in snapshots for manifest in snapshot.manifest_ids}
        manifests = reader.manifests(cursor, sorted(wanted))
        bare = {manifest.manifest_id for manifest in manifests.values() if manifest.path is None}
        entries = _entries_that_it_brings(change, bare) if change else {}
        return state, _Unwritten(snapshots, manifests, entries | reader.entries(cursor, sorted(bare - entries.keys())))


def _unwritten_of(services: Services, known: Known, change: ChangeSet, state: TableState) -> _Unwritten | None:
    """What a commit brings, written or not; only the old files of the manifests that it rewrites are read.

    None where that isn't all that is to be written, as files got lost.
    """
    snapshots = tuple(snapshot for snapshot in state.snapshots if snapshot.manifest_list is None)
    wanted = {manifest for snapshot in snapshots for manifest in snapshot.manifest_ids}
    new = {m.manifest_id: m for step in change.steps for m in step.side.manifests if m.manifest_id in wanted}
    files: dict[int, AnyFile] = dict(_files_of(change))
    older = {file_id for manifest in new.values() for _, file_id in _listed(manifest) if file_id not in files}
    if older:
        with services.database.reading() as cursor:
            files |= reader.files(cursor, older)
    entries = {key: _entries(manifest, files) for key, manifest in new.items()}
    manifests = known.manifests_of(services.database, wanted - new.keys())
    if any(manifest.path is None for manifest in manifests.values()):
        return None
    return _Unwritten(snapshots, manifests | {key: manifest_row(each) for key, each in new.items()}, entries)


def _entries_that_it_brings(change: ChangeSet, wanted: Iterable[int]) -> dict[int, Entries]:
    """The entries of those of the change's manifests all of whose files it brings itself, by manifest id."""
    files, ids = dict(_files_of(change)), set(wanted)
    new = (m for step in change.steps for m in step.side.manifests if m.manifest_id in ids)
    whole = (manifest for manifest in new if all(file_id in files for _, file_id in _listed(manifest)))
    return {manifest.manifest_id: _entries(manifest, files) for manifest in whole}


def _files_of(change: ChangeSet) -> Iterator[tuple[int, NewFile]]:
    return ((file.file_id, file) for step in change.steps for file in step.side.files)


def _entries(manifest: NewManifest, files: Mapping[int, AnyFile]) -> Entries:
    return [(status, files[file_id]) for status, file_id in _listed(manifest)]


def _listed(manifest: NewManifest) -> list[tuple[int, int]]:
    """(status, file id) of the manifest's entries, in its order."""
    groups = (
        (EntryStatus.ADDED, manifest.added),
        (EntryStatus.DELETED, manifest.deleted),
        (EntryStatus.EXISTING, manifest.existing),
    )
    return [(int(status), file_id) for status, ids in groups for file_id in ids]


def _prepared(state: TableState, unwritten: _Unwritten, before: Materialized | None) -> Prepared:
    """The state with its files encoded."""
    older = (before.state, before.metadata) if before else None
    definitions = replace(definitions_of(defined(state.row, older)), location=state.row.location)
    manifests, new = _encode_manifests(unwritten, definitions)
    lists = [_encode_list(snapshot, manifests, definitions) for snapshot in unwritten.snapshots]
    paths = {artifact.object_id: artifact.path for artifact in lists}
    state = replace(state, snapshots=tuple(_with_list(row, paths) for row in state.snapshots))
    metadata = project(state, older)
    document = metadata_artifact(metadata, state.row.version)
    artifacts = [*new, *lists, document]
    state = replace(state, metadata_location=document.path)
    current = state.current()
    listed = [id_ for id_ in current.manifest_ids if id_ in manifests] if current else []
    known = Known({id_: manifests[id_] for id_ in listed})
    table = Materialized(state.row, state, metadata, document.path, document.data, known)
    return Prepared(table, tuple(map(_row, artifacts)), tuple((each.path, each.data) for each in artifacts))


def _encode_manifests(unwritten: _Unwritten, known: Definitions) -> tuple[dict[int, ManifestRow], list[Artifact]]:
    listed = [file.file_id for entries in unwritten.entries.values() for _, file in entries]
    encoded: Encoded | None = {} if len(set(listed)) < len(listed) else None  # a file may be in several

    def encode(manifest_id: int) -> Artifact:
        manifest = unwritten.manifests[manifest_id]
        return manifest_artifact(manifest, unwritten.entries[manifest_id], known, encoded)

    new = in_parallel(encode, unwritten.entries, _ENCODERS)
    written = {
        each.object_id: replace(
            unwritten.manifests[each.object_id], path=each.path, length=len(each.data), facts=each.facts
        )
        for each in new
    }
    return {**unwritten.manifests, **written}, new


def _encode_list(snapshot: SnapshotRow, manifests: Mapping[int, ManifestRow], known: Definitions) -> Artifact:
    return manifest_list_artifact(snapshot, [manifests[manifest_id] for manifest_id in snapshot.manifest_ids], known)


def _with_list(row: SnapshotRow, lists: Mapping[int, str]) -> SnapshotRow:
    return row if row.manifest_list is not None else replace(row, manifest_list=lists[row.snapshot_id])


def _write(services: Services, prepared: Prepared) -> bool:
    """Write the files and record them; whether the version is still the newest, so that its metadata.json counts."""
    write_derived(services, prepared.files)
    row = prepared.table.row

    def attempt() -> bool:
        with services.database.statement() as cursor:
            return lake_artifacts.record(cursor, row.table_id, prepared.rows, row.version)

    is_newest = retrying(attempt)
    if is_newest:
        delete_outdated(services, row)
    return is_newest


def _row(artifact: Artifact) -> WrittenFile:
    return WrittenFile(
        kind=artifact.kind,
        object_id=artifact.object_id,
        path=artifact.path,
        length=len(artifact.data),
        sha256=artifact.sha256,
        timestamp_ms=artifact.timestamp_ms,
        facts=artifact.facts,
    )
