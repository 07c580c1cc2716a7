"""PURE. Clones and registered tables as rows: snapshots, manifests and files under new ids."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from duckicelake.bridge.data_files import find_writable_partition_type, pack_metrics, serialize_partition
from duckicelake.bridge.manifest_lists import ListedManifest
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.manifest.entry import EntryStatus, FileContent, Manifest, ManifestEntry, ManifestFile
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.snapshot import MAIN, Snapshot, SnapshotLogEntry, SnapshotRef
from duckicelake.lake.additions import NewDeletion, NewManifest, SideFiles
from duckicelake.lake.state import DeletionRow, Entry, FileRow, ManifestRow

CLONED_FROM = "cloned-from"
"""In the summary of the snapshot that a clone begins with: what it is a clone of."""
_TOO_MUCH = frozenset({"delta.enabled"})
"""Properties that aren't a clone's: what they ask for is done in the source's own place."""
_FileKey: TypeAlias = tuple[str, int | None, int]


@dataclass(frozen=True, slots=True)
class CloneRows:
    """The rows of a clone. file_ids: of each by that of its source's; listed: manifests by the source's ids.

    A manifest of which nothing is left isn't the clone's.
    """

    side: SideFiles
    file_ids: Mapping[int, int]
    listed: Mapping[int, ListedManifest]

    def manifests_of(self, manifest_ids: Iterable[int]) -> tuple[ListedManifest, ...]:
        """Return the clone's manifests for those of a snapshot of the source."""
        return tuple(self.listed[manifest_id] for manifest_id in manifest_ids if manifest_id in self.listed)


def build_clone(
    manifests: Mapping[int, ManifestRow],
    entries: Mapping[int, Sequence[Entry]],
    deletions: Iterable[DeletionRow],
    file_ids: Iterator[int],
    manifest_ids: Iterator[int],
) -> CloneRows:
    """Return the rows of a clone with these manifests."""
    rows = {row.file_id: row for found in entries.values() for status, row in found if status != EntryStatus.DELETED}
    ids = {file_id: next(file_ids) for file_id in rows}
    shared = {id_: [(status, row) for status, row in found if row.file_id in ids] for id_, found in entries.items()}
    made = {
        id_: _clone_manifest(manifests[id_], found, ids, next(manifest_ids)) for id_, found in shared.items() if found
    }
    side = SideFiles(
        files=tuple(_clone_file(row, ids[file_id]) for file_id, row in rows.items()),
        deletions=tuple(
            NewDeletion(ids[row.delete_file_id], ids[row.data_file_id], row.positions)
            for row in deletions
            if row.delete_file_id in ids and row.data_file_id in ids
        ),
        manifests=tuple(made.values()),
    )
    numbers = {ids[file_id]: row.sequence_number for file_id, row in rows.items()}
    return CloneRows(side, ids, {id_: _list_manifest(manifest, numbers) for id_, manifest in made.items()})


def build_clone_metadata(
    source: TableMetadata, snapshots: Collection[Snapshot], head: Snapshot | None, origin: str, places: Collection[str]
) -> TableMetadata:
    """Return the metadata of a clone with these snapshots, `head` its main.

    Identity and location are the caller's to give.

    origin: the name of its source. places: properties that say where the source's writers write.
    """
    ids = {snapshot.snapshot_id for snapshot in snapshots}
    refs = {name: ref for name, ref in source.refs.items() if ref.snapshot_id in ids and len(ids) > 1}
    if head is not None:
        refs[MAIN] = SnapshotRef(snapshot_id=head.snapshot_id, type="branch")
    return source.replace_fields(
        properties={name: text for name, text in source.properties.items() if name not in {*places, *_TOO_MUCH}},
        snapshots=tuple(_clone_snapshot(snapshot, ids, head, origin) for snapshot in snapshots),
        current_snapshot_id=head.snapshot_id if head else None,
        refs=refs,
        snapshot_log=_clone_log(source, ids, head),
        metadata_log=(),
        statistics=(),
        partition_statistics=(),
    )


def _clone_snapshot(snapshot: Snapshot, ids: Collection[int], head: Snapshot | None, origin: str) -> Snapshot:
    parent = snapshot.parent_snapshot_id if snapshot.parent_snapshot_id in ids else None
    if head is None or snapshot.snapshot_id != head.snapshot_id:
        return snapshot.replace_fields(parent_snapshot_id=parent)
    return snapshot.replace_fields(parent_snapshot_id=parent, summary={**snapshot.summary, CLONED_FROM: origin})


def _clone_log(source: TableMetadata, ids: Collection[int], head: Snapshot | None) -> tuple[SnapshotLogEntry, ...]:
    kept = tuple(entry for entry in source.snapshot_log if entry.snapshot_id in ids)
    if head is None:
        return ()
    if kept and kept[-1].snapshot_id == head.snapshot_id:
        return kept if len(ids) > 1 else kept[-1:]
    moment = max([head.timestamp_ms, *(entry.timestamp_ms for entry in kept)])
    return (*kept, SnapshotLogEntry(snapshot_id=head.snapshot_id, timestamp_ms=moment))


def _clone_file(row: FileRow, file_id: int) -> FileRow:
    return FileRow(
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


def _clone_manifest(
    row: ManifestRow, entries: Sequence[Entry], ids: Mapping[int, int], manifest_id: int
) -> NewManifest:
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


def _list_manifest(manifest: NewManifest, numbers: Mapping[int, int]) -> ListedManifest:
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


@dataclass(slots=True)
class Registration:
    """Files and manifests of a table to be registered, grown manifest by manifest; `listed` is by manifest path."""

    metadata: TableMetadata
    file_ids: Iterator[int]
    manifest_ids: Iterator[int]
    listed: dict[str, ListedManifest] = field(default_factory=dict)
    manifests: list[NewManifest] = field(default_factory=list)
    _files: dict[_FileKey, FileRow] = field(default_factory=dict)

    def add(self, line: ManifestFile, manifest: Manifest) -> None:
        """Take in a manifest with the line of the first list that names it; entries have what they inherit."""
        by_status = {status: list[int]() for status in EntryStatus}
        live: dict[int, int] = {}
        for entry in manifest.entries:
            file = self._file(entry, line)
            by_status[entry.status].append(file.file_id)
            if entry.status is not EntryStatus.DELETED:
                live[file.file_id] = file.sequence_number
        new = NewManifest(
            manifest_id=next(self.manifest_ids),
            format_version=manifest.format_version if line.first_row_id is None else ROW_LINEAGE_VERSION,
            content=int(line.content),
            spec_id=line.partition_spec_id,
            schema_id=manifest.schema_id,
            sequence_number=line.sequence_number,
            min_sequence_number=line.min_sequence_number,
            added_snapshot_id=line.added_snapshot_id,
            added=tuple(by_status[EntryStatus.ADDED]),
            existing=tuple(by_status[EntryStatus.EXISTING]),
            deleted=tuple(by_status[EntryStatus.DELETED]),
        )
        self.manifests.append(new)
        self.listed[line.manifest_path] = ListedManifest(
            new.manifest_id, new.content, new.spec_id, len(live), new.format_version, live
        )

    @property
    def files(self) -> tuple[FileRow, ...]:
        """All files of all manifests."""
        return tuple(self._files.values())

    @property
    def live(self) -> tuple[FileRow, ...]:
        """The files that any snapshot has; of others only the names may be left."""
        live = {file_id for manifest in self.listed.values() for file_id in manifest.live or ()}
        return tuple(file for file in self.files if file.file_id in live)

    def number_rows(self) -> TableMetadata:
        """Give row ids to data files of version 3 that have none as nothing followed its upgrade; the metadata then."""
        following = self.metadata.next_row_id
        if following is None:
            return self.metadata
        for key, file in self._files.items():
            if file.content == FileContent.DATA and file.first_row_id is None:
                self._files[key] = file._replace(first_row_id=following)
                following += file.record_count
        return self.metadata.replace_fields(next_row_id=following)

    def lists(self, lines: Mapping[int, Sequence[ManifestFile]]) -> dict[int, tuple[ListedManifest, ...]]:
        """Return the manifests of each snapshot by its id, given the lines of their lists."""
        return {id_: tuple(self.listed[line.manifest_path] for line in found) for id_, found in lines.items()}

    def _file(self, entry: ManifestEntry, line: ManifestFile) -> FileRow:
        file, number = entry.data_file, entry.file_sequence_number or 0
        key = (file.file_path, file.content_offset, number)
        known = self._files.get(key)
        if known is None:
            self._files[key] = self._new_file(entry, line, number)
        elif known.first_row_id is None:
            self._files[key] = known._replace(first_row_id=file.first_row_id)
        return self._files[key]

    def _new_file(self, entry: ManifestEntry, line: ManifestFile, number: int) -> FileRow:
        file = entry.data_file
        spec = self.metadata.spec(line.partition_spec_id)
        type_ = find_writable_partition_type(spec, self.metadata.schemas)[1]
        try:
            partition = serialize_partition(file.partition, type_)
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            raise InvalidRequestError(
                f"{file.file_path} has the partition {file.partition}, no value of {type_}"
            ) from error
        return FileRow(
            file_id=next(self.file_ids),
            content=int(file.content),
            path=file.file_path,
            file_format=file.file_format,
            spec_id=spec.spec_id,
            partition=partition,
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_in_bytes,
            metrics=pack_metrics(file),
            added_snapshot_id=entry.snapshot_id or line.added_snapshot_id,
            sequence_number=entry.sequence_number or 0,
            file_sequence_number=number,
            first_row_id=file.first_row_id,
        )
