"""What of a version isn't written as files yet: read from the catalog, or known from the change that makes it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from duckicelake.bridge.artifacts import Entries
from duckicelake.bridge.realise import AnyFile
from duckicelake.bridge.succession import manifest_row, state_after
from duckicelake.catalog.commits.known import Known
from duckicelake.catalog.services import Services
from duckicelake.errors import NoSuchTable
from duckicelake.iceberg.manifest import EntryStatus
from duckicelake.lake import reader
from duckicelake.lake.additions import NewFile, NewManifest
from duckicelake.lake.changes import ChangeSet, Written
from duckicelake.lake.state import ManifestRow, SnapshotRow, TableState


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A version some of whose snapshots have no list: the manifests that these list, and entries of unwritten ones."""

    state: TableState
    manifests: Mapping[int, ManifestRow]
    entries: Mapping[int, Entries]

    @property
    def snapshots(self) -> tuple[SnapshotRow, ...]:
        """Those whose lists aren't written."""
        return _without_list(self.state)


def read_unwritten(services: Services, table_id: int, before: TableState | None) -> Unwritten:
    """Of the newest version, as it is in the catalog; NoSuchTable. before: an older state, all of it written."""
    with services.database.reading() as cursor:
        row = reader.table_row(cursor, table_id)
        if row is None:
            raise NoSuchTable(f"Table {table_id} does not exist any more")
        state = reader.table_state(cursor, row, before)
        manifests = reader.manifests(cursor, sorted(_listed(state)))
        bare = sorted(manifest.manifest_id for manifest in manifests.values() if manifest.path is None)
        return Unwritten(state, manifests, reader.entries(cursor, bare))


def next_unwritten(
    services: Services, before: TableState, known: Known, change: ChangeSet, written: Written
) -> Unwritten | None:
    """Of the version that the change makes of the one before; only old files of manifests that it rewrites are read.

    None where the metadata log gets longer than what is known of it, or files of the version before got lost.
    """
    state = state_after(before, change, written)
    logged, logged_before = reader.previous_versions(state.row), reader.previous_versions(before.row)
    if logged > logged_before <= len(before.metadata_log):
        return None
    state = replace(state, metadata_log=state.metadata_log[-logged:])
    wanted = _listed(state)
    new = {m.manifest_id: m for step in change.steps for m in step.side.manifests if m.manifest_id in wanted}
    files: dict[int, AnyFile] = dict(_files_of(change))
    older = {file_id for manifest in new.values() for _, file_id in _file_ids(manifest) if file_id not in files}
    if older:
        with services.database.statement() as cursor:
            files |= reader.files(cursor, older)
    entries = {key: [(status, files[id_]) for status, id_ in _file_ids(each)] for key, each in new.items()}
    manifests = known.manifests_of(services.database, wanted - new.keys())
    if any(manifest.path is None for manifest in manifests.values()):
        return None
    return Unwritten(state, manifests | {key: manifest_row(each) for key, each in new.items()}, entries)


def _without_list(state: TableState) -> tuple[SnapshotRow, ...]:
    return tuple(snapshot for snapshot in state.snapshots if snapshot.manifest_list is None)


def _listed(state: TableState) -> set[int]:
    """The manifests of snapshots without a list."""
    return {manifest_id for snapshot in _without_list(state) for manifest_id in snapshot.manifest_ids}


def _files_of(change: ChangeSet) -> Iterator[tuple[int, NewFile]]:
    return ((file.file_id, file) for step in change.steps for file in step.side.files)


def _file_ids(manifest: NewManifest) -> list[tuple[int, int]]:
    """(status, file id) of the manifest's entries, in its order."""
    groups = (
        (EntryStatus.ADDED, manifest.added),
        (EntryStatus.DELETED, manifest.deleted),
        (EntryStatus.EXISTING, manifest.existing),
    )
    return [(int(status), file_id) for status, ids in groups for file_id in ids]
