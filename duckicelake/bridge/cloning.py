"""PURE. A table's snapshots, manifests and files as another table's: the same facts under ids of its own.

Paths, statistics, sequence numbers and row ids stay, so a clone's rows are its source's to every reader. What manifests
say of files that were removed goes, but where a cloned snapshot still has the file.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from duckicelake.bridge.manifests import ListedManifest
from duckicelake.iceberg.manifest import EntryStatus
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.snapshot import MAIN, Snapshot, SnapshotLogEntry, SnapshotRef
from duckicelake.lake.additions import NewDeletion, NewFile, NewManifest, SideFiles
from duckicelake.lake.state import DeletionRow, Entry, FileRow, ManifestRow

CLONED_FROM = "cloned-from"
"""In the summary of the snapshot that a clone begins with: what it is a clone of."""
_TOO_MUCH = frozenset({"delta.enabled"})
"""Properties that aren't a clone's: what they ask for is done in the source's own place."""


@dataclass(frozen=True, slots=True)
class Cloned:
    """The rows of a clone. file_ids: of each by that of its source's; listed: manifests by the source's ids.

    A manifest of which nothing is left isn't the clone's.
    """

    side: SideFiles
    file_ids: Mapping[int, int]
    listed: Mapping[int, ListedManifest]

    def manifests_of(self, manifest_ids: Iterable[int]) -> tuple[ListedManifest, ...]:
        """The clone's manifests for those of a snapshot of the source."""
        return tuple(self.listed[manifest_id] for manifest_id in manifest_ids if manifest_id in self.listed)


def cloned(
    manifests: Mapping[int, ManifestRow],
    entries: Mapping[int, Sequence[Entry]],
    deletions: Iterable[DeletionRow],
    file_ids: Iterator[int],
    manifest_ids: Iterator[int],
) -> Cloned:
    """The rows of a clone with these manifests."""
    rows = {row.file_id: row for found in entries.values() for status, row in found if status != EntryStatus.DELETED}
    ids = {file_id: next(file_ids) for file_id in rows}
    told = {id_: [(status, row) for status, row in found if row.file_id in ids] for id_, found in entries.items()}
    made = {id_: _manifest(manifests[id_], found, ids, next(manifest_ids)) for id_, found in told.items() if found}
    side = SideFiles(
        files=tuple(_file(row, ids[file_id]) for file_id, row in rows.items()),
        deletions=tuple(
            NewDeletion(ids[row.delete_file_id], ids[row.data_file_id], row.positions)
            for row in deletions
            if row.delete_file_id in ids and row.data_file_id in ids
        ),
        manifests=tuple(made.values()),
    )
    numbers = {ids[file_id]: row.sequence_number for file_id, row in rows.items()}
    return Cloned(side, ids, {id_: _listed(manifest, numbers) for id_, manifest in made.items()})


def clone_metadata(
    source: TableMetadata, snapshots: Collection[Snapshot], head: Snapshot | None, origin: str, places: Collection[str]
) -> TableMetadata:
    """The metadata of a clone with these snapshots, `head` its main; identity and location are the caller's to give.

    origin: the name of its source. places: properties that say where the source's writers write.
    """
    ids = {snapshot.snapshot_id for snapshot in snapshots}
    refs = {name: ref for name, ref in source.refs.items() if ref.snapshot_id in ids and len(ids) > 1}
    if head is not None:
        refs[MAIN] = SnapshotRef(snapshot_id=head.snapshot_id, type="branch")
    return source.replaced(
        properties={name: text for name, text in source.properties.items() if name not in {*places, *_TOO_MUCH}},
        snapshots=tuple(_snapshot(each, ids, head, origin) for each in snapshots),
        current_snapshot_id=head.snapshot_id if head else None,
        refs=refs,
        snapshot_log=_log(source, ids, head),
        metadata_log=(),
        statistics=(),
        partition_statistics=(),
    )


def _snapshot(snapshot: Snapshot, ids: Collection[int], head: Snapshot | None, origin: str) -> Snapshot:
    parent = snapshot.parent_snapshot_id if snapshot.parent_snapshot_id in ids else None
    if head is None or snapshot.snapshot_id != head.snapshot_id:
        return snapshot.replaced(parent_snapshot_id=parent)
    return snapshot.replaced(parent_snapshot_id=parent, summary={**snapshot.summary, CLONED_FROM: origin})


def _log(source: TableMetadata, ids: Collection[int], head: Snapshot | None) -> tuple[SnapshotLogEntry, ...]:
    kept = tuple(entry for entry in source.snapshot_log if entry.snapshot_id in ids)
    if head is None:
        return ()
    if kept and kept[-1].snapshot_id == head.snapshot_id:
        return kept if len(ids) > 1 else kept[-1:]
    moment = max([head.timestamp_ms, *(entry.timestamp_ms for entry in kept)])
    return (*kept, SnapshotLogEntry(snapshot_id=head.snapshot_id, timestamp_ms=moment))


def _file(row: FileRow, file_id: int) -> NewFile:
    return NewFile(
        file_id=file_id,
        content=row.content,
        path=row.path,
        file_format=row.file_format,
        spec_id=row.spec_id,
        partition=row.partition,
        record_count=row.record_count,
        file_size_in_bytes=row.file_size_in_bytes,
        metrics=row.metrics,
        added_snapshot_id=row.added_snapshot_id,
        sequence_number=row.sequence_number,
        file_sequence_number=row.file_sequence_number,
        first_row_id=row.first_row_id,
    )


def _manifest(row: ManifestRow, entries: Sequence[Entry], ids: Mapping[int, int], manifest_id: int) -> NewManifest:
    by_status = {
        wanted: tuple(ids[file.file_id] for status, file in entries if status == wanted) for wanted in EntryStatus
    }
    return NewManifest(
        manifest_id=manifest_id,
        format_version=row.format_version,
        content=row.content,
        spec_id=row.spec_id,
        schema_id=row.schema_id,
        sequence_number=row.sequence_number,
        min_sequence_number=row.min_sequence_number,
        added_snapshot_id=row.added_snapshot_id,
        added=by_status[EntryStatus.ADDED],
        existing=by_status[EntryStatus.EXISTING],
        deleted=by_status[EntryStatus.DELETED],
        is_laid_out=bool(row.is_laid_out),
    )


def _listed(manifest: NewManifest, numbers: Mapping[int, int]) -> ListedManifest:
    live = {file_id: numbers[file_id] for file_id in (*manifest.added, *manifest.existing)}
    return ListedManifest(
        manifest.manifest_id,
        manifest.content,
        manifest.spec_id,
        len(live),
        manifest.format_version,
        live,
        is_laid_out=manifest.is_laid_out,
    )
