"""PURE. Check the manifests of a client's snapshot, and find the files and the layout that they change."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from duckicelake.bridge.data_files import find_writable_partition_type, pack_metrics, serialize_partition
from duckicelake.bridge.manifest_lists import ManifestGroup, ManifestList
from duckicelake.errors import CommitFailedError, InvalidRequestError
from duckicelake.iceberg.manifest.entry import (
    UNASSIGNED,
    DataFile,
    EntryStatus,
    FileContent,
    Manifest,
    ManifestEntry,
    ManifestFile,
)
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.iceberg.types import StructType
from duckicelake.lake.state import FileRow

Place: TypeAlias = tuple[str, int | None]
"""Where a file is: its path, and for a deletion vector, which shares its Puffin file with others, the offset in it."""
MANIFESTS_CREATED, MANIFESTS_KEPT, MANIFESTS_REPLACED = "manifests-created", "manifests-kept", "manifests-replaced"
ENTRIES_PROCESSED = "entries-processed"
EMPTY_MANIFEST_COUNTS: Final = dict.fromkeys((MANIFESTS_CREATED, MANIFESTS_KEPT, MANIFESTS_REPLACED), "0")
"""In the summary of a snapshot that states them; the true ones take their place."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What a proposed snapshot brings: files added, with spec id and explicit sequence number, and files removed."""

    snapshot: Snapshot
    added: tuple[tuple[DataFile, int, int | None], ...]
    removed: tuple[FileRow, ...]


def find_changed_files(
    listed: Sequence[ManifestFile],
    read: Mapping[str, Manifest],
    missing: Sequence[FileRow],
    snapshot: Snapshot,
    proposed_id: int,
) -> Upload:
    """Return what a proposed snapshot adds to and removes from its parent.

    `read` are the manifests of its list that the catalog doesn't know, by path; `missing` the live files of those that
    the parent lists and it doesn't. InvalidRequestError if it keeps a file that the parent doesn't have;
    CommitFailedError if it builds on another snapshot, which had the parent's id until a failover lost it.
    """
    places = {get_place(row) for row in missing}
    kept: set[Place] = set()
    added: list[tuple[DataFile, int, int | None]] = []
    for line in listed:
        manifest = read.get(line.manifest_path)
        for entry in manifest.entries if manifest else ():
            if entry.status is EntryStatus.ADDED and entry.snapshot_id == proposed_id:
                inherited = entry.sequence_number in (line.sequence_number, UNASSIGNED)
                added.append((entry.data_file, line.partition_spec_id, None if inherited else entry.sequence_number))
            elif entry.status is not EntryStatus.DELETED:
                kept.add(_check_kept_place(entry, places, line, snapshot, proposed_id))
    return Upload(snapshot, tuple(added), tuple(row for row in missing if get_place(row) not in kept))


def get_place(file: FileRow | DataFile) -> Place:
    """Return what names a file in manifests: its path and, as deletion vectors share files, the place in that."""
    if isinstance(file, DataFile):
        return file.file_path, file.content_offset
    return file.path, file.metrics.get("content_offset")


def _check_kept_place(
    entry: ManifestEntry, known: AbstractSet[Place], line: ManifestFile, snapshot: Snapshot, proposed_id: int
) -> Place:
    place = get_place(entry.data_file)
    if place not in known and line.added_snapshot_id != proposed_id:
        raise CommitFailedError(
            f"Snapshot {snapshot.snapshot_id} builds on another state than this table's: it takes over manifest "
            f"{line.manifest_path} with {place[0]}, which the table doesn't hold; load the table again",
            "assert-ref-snapshot-id",
        )
    if place not in known:
        raise InvalidRequestError(
            f"Manifest {line.manifest_path} of snapshot {snapshot.snapshot_id} lists {place[0]} as a file of before, "
            "but the snapshot it builds on doesn't hold that file: write the manifest from the current metadata"
        )
    return place


def build_new_files(
    upload: Upload, target: TableMetadata, ids: Iterator[int], row_shift: int = 0
) -> tuple[FileRow, ...]:
    """Return the side-table rows of the files that an upload adds; the client's row ids are `row_shift` too low."""
    types = {spec.spec_id: find_writable_partition_type(spec, target.schemas)[1] for spec in target.partition_specs}
    snapshot = upload.snapshot
    row_ids = _RowIds(target, snapshot, row_shift)
    rows = []
    for file, spec_id, number in upload.added:
        sequence = snapshot.sequence_number if number is None else number
        rows.append(
            FileRow(
                file_id=next(ids),
                content=int(file.content),
                path=file.file_path,
                file_format=file.file_format,
                spec_id=spec_id,
                partition=_serialize_partition(file, types[spec_id]),
                record_count=file.record_count,
                file_size_in_bytes=file.file_size_in_bytes,
                metrics=pack_metrics(file),
                added_snapshot_id=snapshot.snapshot_id,
                sequence_number=sequence,
                file_sequence_number=snapshot.sequence_number,
                first_row_id=row_ids.take_first(file),
            )
        )
    return tuple(rows)


def check_rebased(upload: Upload) -> None:
    """Raise CommitFailedError unless the upload only adds data files, as one must that is put on top of others."""
    if upload.removed or any(file.content is not FileContent.DATA for file, _, _ in upload.added):
        raise CommitFailedError(
            f"Requirement failed: branch main has changed, and snapshot {upload.snapshot.snapshot_id} "
            "is no append: it does more than add data files",
            "assert-ref-snapshot-id",
        )


class _RowIds:
    """First row ids of added data files: what the manifest list gave them, else the next free ones of the snapshot."""

    def __init__(self, target: TableMetadata, snapshot: Snapshot, shift: int) -> None:
        self._next = snapshot.first_row_id if target.format_version >= ROW_LINEAGE_VERSION else None
        self._shift = shift

    def take_first(self, file: DataFile) -> int | None:
        if self._next is None or file.content is not FileContent.DATA:
            return None
        first = self._next if file.first_row_id is None else file.first_row_id + self._shift
        self._next = max(self._next, first + file.record_count)
        return first


def _serialize_partition(file: DataFile, type_: StructType) -> list[Any]:
    try:
        return serialize_partition(file.partition, type_)
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise InvalidRequestError(
            f"{file.file_path} has the partition {file.partition}, no value of {type_}"
        ) from error


def check_manifests(
    listed: Sequence[ManifestFile], read: Mapping[str, Manifest], specs: Mapping[int, PartitionSpec]
) -> None:
    """Raise InvalidRequestError unless each manifest is listed once and is what the list says.

    `read` are the new ones by path.
    """
    check_once(((line.manifest_path, None) for line in listed), "manifest")
    for line in listed:
        if line.manifest_path in read:
            _check_manifest(line, read[line.manifest_path], specs.get(line.partition_spec_id))


def check_added(files: Iterable[DataFile]) -> None:
    """Raise InvalidRequestError if a snapshot adds a file twice."""
    check_once(map(get_place, files), "file")


def check_once(places: Iterable[Place], what: str) -> None:
    """Raise InvalidRequestError naming the first place that occurs more than once."""
    for (path, _), times in Counter(places).items():
        if times > 1:
            raise InvalidRequestError(f"The {what} {path} is listed {times} times: list it once")


def _check_manifest(line: ManifestFile, manifest: Manifest, spec: PartitionSpec | None) -> None:
    if spec is None:
        raise InvalidRequestError(
            f"{line.manifest_path} is of partition spec {line.partition_spec_id}, which the table doesn't have"
        )
    if manifest.spec_id not in {None, line.partition_spec_id}:
        raise InvalidRequestError(
            f"{line.manifest_path} is of partition spec {manifest.spec_id}, "
            f"but its manifest list says {line.partition_spec_id}"
        )
    if manifest.content is not None and manifest.content != line.content:
        raise InvalidRequestError(
            f"{line.manifest_path} holds {manifest.content.name.lower()}, "
            f"but its manifest list says {line.content.name.lower()}"
        )
    fields = tuple(field.field_id for field in spec.fields)
    if manifest.partition_fields != fields:
        raise InvalidRequestError(
            f"{line.manifest_path} has the partition fields {list(manifest.partition_fields)}, "
            f"but partition spec {spec.spec_id} has {list(fields)}"
        )


@dataclass(frozen=True, slots=True)
class ManifestLayout:
    """The new manifests of a snapshot, in list order, and the ids of its parent's that stay."""

    groups: tuple[ManifestGroup, ...]
    kept: frozenset[int]


def find_manifest_layout(
    listed: Sequence[ManifestFile],
    read: Mapping[str, Manifest],
    kept: Mapping[str, int | tuple[FileRow, ...]],
    missing: Sequence[FileRow],
) -> ManifestLayout | None:
    """Return the layout of an upload that adds and removes no file.

    None if it can't be found, or isn't one of each file.

    read: its new manifests by path. kept: those of the parent that it lists. missing: the files of the others.
    """
    rows: dict[Place, FileRow] = {get_place(row): row for row in missing}
    groups: list[ManifestGroup] = []
    for line in listed:
        entries = read[line.manifest_path].entries if line.manifest_path in read else ()
        files = [rows[get_place(entry.data_file)] for entry in entries if entry.status is not EntryStatus.DELETED]
        if any((min(file.content, 1), file.spec_id) != (line.content, line.partition_spec_id) for file in files):
            return None
        if files:
            live = {file.file_id: file.sequence_number for file in files}
            groups.append(ManifestGroup(int(line.content), line.partition_spec_id, live))
    stay = frozenset(manifest_id for manifest_id in kept.values() if isinstance(manifest_id, int))
    moved = {file_id for group in groups for file_id in group.live}
    is_one_of_each = sum(len(group.live) for group in groups) == len(moved) == len(missing)
    return ManifestLayout(tuple(groups), stay) if groups and is_one_of_each and len(stay) == len(kept) else None


def set_manifest_counts(
    snapshot: Snapshot, parent: AbstractSet[int], manifests: ManifestList, *, is_laid_out: bool
) -> Snapshot:
    """Return the snapshot with true counts of manifests, where its client counted them; parent: ids of its parent's.

    Clients count what they wrote themselves, but what is listed are the server's manifests.
    """
    stated = {MANIFESTS_CREATED, MANIFESTS_KEPT, MANIFESTS_REPLACED, ENTRIES_PROCESSED} & snapshot.summary.keys()
    if not stated:
        return snapshot
    listed = {manifest.manifest_id for manifest in manifests.listed}
    counts = {
        MANIFESTS_CREATED: len(listed - parent),
        MANIFESTS_KEPT: len(listed & parent),
        MANIFESTS_REPLACED: len(parent - listed),
        ENTRIES_PROCESSED: None if is_laid_out else 0,
    }
    true = {name: str(count) for name, count in counts.items() if name in stated and count is not None}
    return snapshot.replace_fields(summary={**snapshot.summary, **true})
