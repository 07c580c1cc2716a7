"""Makes the files exist that a table's metadata names: manifests, manifest lists and metadata.json (design D4).

Lazy and incremental: what is recorded as written is not encoded again. Between COMMIT and here a crash loses nothing:
the next load writes the same bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
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
from duckicelake.catalog.cache import Materialized
from duckicelake.catalog.confinement import write
from duckicelake.catalog.mending import forget_lost
from duckicelake.catalog.outdated import delete_outdated
from duckicelake.catalog.services import Services
from duckicelake.errors import NoSuchTable
from duckicelake.lake import reader, side_tables
from duckicelake.lake.state import FileRow, ManifestRow, SnapshotRow, TableState
from duckicelake.storage.parallel import in_parallel


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """What isn't written yet: snapshots without a list, the manifests they list, and entries of unwritten ones."""

    snapshots: tuple[SnapshotRow, ...]
    manifests: Mapping[int, ManifestRow]
    entries: Mapping[int, tuple[FileRow, ...]]


def materialize(services: Services, table_id: int) -> Materialized:
    """The newest version of the table, every file of it written; NoSuchTable if it has gone."""
    while True:
        state, unwritten = _read(services, table_id)
        artifacts, lists = _encode(state, unwritten)
        state = replace(state, snapshots=tuple(_with_list(row, lists) for row in state.snapshots))
        metadata = project(state)
        document = metadata_artifact(metadata, state.row.version)
        if state.metadata_location is not None and not artifacts:
            if forget_lost(services, state):
                continue
            return Materialized(state.row, state, metadata, state.metadata_location, document.data)
        write_all(services, [*artifacts, document])
        if _record(services, table_id, artifacts, document):
            delete_outdated(services, state.row)
            return Materialized(state.row, state, metadata, document.path, document.data)


def write_all(services: Services, artifacts: Iterable[Artifact]) -> None:
    """Write the files in one parallel round; returns when all are durable."""
    in_parallel(lambda file: write(services, file.path, file.data), artifacts)


def _read(services: Services, table_id: int) -> tuple[TableState, _Unwritten]:
    with services.database.reading() as cursor:
        row = reader.table_row(cursor, table_id)
        if row is None:
            raise NoSuchTable(f"Table {table_id} does not exist any more")
        state = reader.table_state(cursor, row)
        snapshots = tuple(snapshot for snapshot in state.snapshots if snapshot.manifest_list is None)
        wanted = {manifest for snapshot in snapshots for manifest in snapshot.manifest_ids}
        manifests = reader.manifests(cursor, sorted(wanted))
        bare = [manifest.manifest_id for manifest in manifests.values() if manifest.path is None]
        return state, _Unwritten(snapshots, manifests, reader.entries(cursor, bare))


def _encode(state: TableState, unwritten: _Unwritten) -> tuple[list[Artifact], dict[int, str]]:
    """(the manifests and lists to write, the path of each new list by snapshot id)."""
    if not unwritten.snapshots:
        return [], {}
    known = definitions_of(project(replace(state, snapshots=(), snapshot_log=())))
    manifests, new = _encode_manifests(unwritten, known)
    lists = [_encode_list(snapshot, manifests, known) for snapshot in unwritten.snapshots]
    return [*new, *lists], {artifact.object_id: artifact.path for artifact in lists}


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


def _record(services: Services, table_id: int, artifacts: Sequence[Artifact], document: Artifact) -> bool:
    """Record what was written; whether the version is still the newest, so that its metadata.json counts.

    A file may have been another table's of the same UUID, and let go of.
    """
    with services.database.transaction() as cursor:
        for artifact in artifacts:
            reader.record_artifact(cursor, _parameters(table_id, artifact))
        side_tables.unschedule(cursor, [artifact.path for artifact in artifacts])
        reader.record_metadata(cursor, _parameters(table_id, document))
        row = reader.table_row(cursor, table_id)
    return row is not None and row.version == document.object_id


def _parameters(table_id: int, artifact: Artifact) -> dict[str, object]:
    return {
        "table_id": table_id,
        "kind": artifact.kind,
        "object_id": artifact.object_id,
        "path": artifact.path,
        "length": len(artifact.data),
        "sha256": artifact.sha256,
        "timestamp_ms": artifact.timestamp_ms,
        "facts": artifact.facts,
    }
