"""Makes the files exist that a table's metadata names: manifests, manifest lists and metadata.json (design D4).

Lazy and incremental: what is recorded as written is not encoded again. Between COMMIT and here a crash loses nothing:
the next load writes the same bytes.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from duckicelake.bridge.artifacts import (
    Artifact,
    Definitions,
    definitions_of,
    manifest_artifact,
    manifest_list_artifact,
    metadata_artifact,
)
from duckicelake.bridge.project import project
from duckicelake.bridge.succession import entry_row, lake_after, manifest_row, state_after
from duckicelake.catalog.cache import Materialized
from duckicelake.catalog.confinement import write_all
from duckicelake.catalog.known import Known
from duckicelake.catalog.mending import forget_lost
from duckicelake.catalog.outdated import delete_outdated
from duckicelake.catalog.services import Services
from duckicelake.errors import NoSuchTable
from duckicelake.iceberg.manifest import EntryStatus
from duckicelake.lake import artifacts as lake_artifacts
from duckicelake.lake import reader
from duckicelake.lake.artifacts import WrittenFile
from duckicelake.lake.changes import ChangeSet, NewManifest, Written
from duckicelake.lake.snapshots import retrying
from duckicelake.lake.state import FileRow, ManifestRow, SnapshotRow, TableState


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """What isn't written yet: snapshots without a list, the manifests they list, and entries of unwritten ones."""

    snapshots: tuple[SnapshotRow, ...]
    manifests: Mapping[int, ManifestRow]
    entries: Mapping[int, tuple[FileRow, ...]]


def materialize(services: Services, table_id: int, change: ChangeSet | None = None) -> Materialized:
    """The newest version of the table, every file of it written; NoSuchTable if it has gone.

    change: what was just caught up with, whose files need not be read again.
    """
    cached = services.cache.get(table_id)
    before = cached.materialized if cached else None
    while True:
        state, unwritten = _read(services, table_id, before.state if before else None, change)
        if state.metadata_location is not None and not unwritten.snapshots:
            if forget_lost(services, state):
                before = None
                continue
            metadata = project(state, (before.state, before.metadata) if before else None)
            body = metadata_artifact(metadata, state.row.version).data
            return Materialized(state.row, state, metadata, state.metadata_location, body)
        written = _write(services, state, unwritten, before)
        if written is not None:
            return written


def materialize_next(
    services: Services, before: Materialized, change: ChangeSet, written: Written
) -> Materialized | None:
    """What `materialize` gives once this change of the version before is committed, but without reading all of it.

    None if somebody has changed the table since, or where the metadata log gets longer than what is known of it.
    """
    state = state_after(before.state, change, written)
    logged, logged_before = reader.previous_versions(state.row), reader.previous_versions(before.row)
    if logged > logged_before <= len(before.state.metadata_log):
        return None
    state = replace(state, metadata_log=state.metadata_log[-logged:])
    after = _write(services, state, _unwritten_of(services, before.known, change, state), before)
    if after is not None and before.known.lake is not None:
        after.known.lake = lake_after(before.known.lake, change, after.metadata, after.row)
    return after


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
        entries = _entries_of(change, bare) if change else {}
        return state, _Unwritten(snapshots, manifests, entries | reader.entries(cursor, sorted(bare - entries.keys())))


def _unwritten_of(services: Services, known: Known, change: ChangeSet, state: TableState) -> _Unwritten:
    """What a commit brings; only the old files of the manifests that it rewrites are read."""
    snapshots = tuple(snapshot for snapshot in state.snapshots if snapshot.manifest_list is None)
    wanted = {manifest for snapshot in snapshots for manifest in snapshot.manifest_ids}
    new = {m.manifest_id: m for step in change.steps for m in step.side.manifests if m.manifest_id in wanted}
    entries = _entries_of(change, new.keys())
    rewritten = [manifest_id for manifest_id in new if manifest_id not in entries]
    if rewritten:
        with services.database.reading() as cursor:
            entries |= reader.entries(cursor, rewritten)
    manifests = known.manifests_of(services.database, wanted - new.keys())
    return _Unwritten(snapshots, manifests | {key: manifest_row(each) for key, each in new.items()}, entries)


def _entries_of(change: ChangeSet, wanted: AbstractSet[int]) -> dict[int, tuple[FileRow, ...]]:
    """The entries of those of the change's manifests all of whose files it brings itself, by manifest id."""
    files = {file.file_id: file for step in change.steps for file in step.side.files}
    new = (m for step in change.steps for m in step.side.manifests if m.manifest_id in wanted)
    return {
        manifest.manifest_id: tuple(
            entry_row(files[file_id], manifest.manifest_id, status) for status, file_id in _listed(manifest)
        )
        for manifest in new
        if all(file_id in files for _, file_id in _listed(manifest))
    }


def _listed(manifest: NewManifest) -> list[tuple[int, int]]:
    """(status, file id) of the manifest's entries, in its order."""
    groups = (
        (EntryStatus.ADDED, manifest.added),
        (EntryStatus.DELETED, manifest.deleted),
        (EntryStatus.EXISTING, manifest.existing),
    )
    return [(int(status), file_id) for status, ids in groups for file_id in ids]


def _write(
    services: Services, state: TableState, unwritten: _Unwritten, before: Materialized | None
) -> Materialized | None:
    """The state with its files written; None if it isn't the newest version any more."""
    older = (before.state, before.metadata) if before else None
    known = definitions_of(project(replace(state, snapshots=(), snapshot_log=(), metadata_log=()), older))
    manifests, new = _encode_manifests(unwritten, known)
    lists = [_encode_list(snapshot, manifests, known) for snapshot in unwritten.snapshots]
    paths = {artifact.object_id: artifact.path for artifact in lists}
    state = replace(state, snapshots=tuple(_with_list(row, paths) for row in state.snapshots))
    metadata = project(state, older)
    document = metadata_artifact(metadata, state.row.version)
    artifacts = [*new, *lists, document]
    write_all(services, [(artifact.path, artifact.data) for artifact in artifacts])
    if not _record(services, state, artifacts):
        return None
    delete_outdated(services, state.row)
    state = replace(state, metadata_location=document.path)
    current = state.current()
    listed = [id_ for id_ in current.manifest_ids if id_ in manifests] if current else []
    return Materialized(
        state.row, state, metadata, document.path, document.data, Known({id_: manifests[id_] for id_ in listed})
    )


def _encode_manifests(unwritten: _Unwritten, known: Definitions) -> tuple[dict[int, ManifestRow], list[Artifact]]:
    manifests = dict(unwritten.manifests)
    new: list[Artifact] = []
    for manifest_id, files in unwritten.entries.items():
        artifact = manifest_artifact(manifests[manifest_id], files, known)
        written = replace(manifests[manifest_id], path=artifact.path, length=len(artifact.data), facts=artifact.facts)
        manifests[manifest_id] = written
        new.append(artifact)
    return manifests, new


def _encode_list(snapshot: SnapshotRow, manifests: Mapping[int, ManifestRow], known: Definitions) -> Artifact:
    return manifest_list_artifact(snapshot, [manifests[manifest_id] for manifest_id in snapshot.manifest_ids], known)


def _with_list(row: SnapshotRow, lists: Mapping[int, str]) -> SnapshotRow:
    return row if row.manifest_list is not None else replace(row, manifest_list=lists[row.snapshot_id])


def _record(services: Services, state: TableState, artifacts: Sequence[Artifact]) -> bool:
    """Record what was written; whether the version is still the newest, so that its metadata.json counts."""
    files = [_row(each) for each in artifacts]

    def attempt() -> bool:
        with services.database.statement() as cursor:
            return lake_artifacts.record(cursor, state.row.table_id, files, state.row.version)

    return retrying(attempt)


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
