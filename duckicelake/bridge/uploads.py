"""PURE. What a client uploaded for a snapshot: its manifests checked, and what they add to and remove from the parent.

The diff is over manifest paths (design §6.18): manifests that the parent lists are unchanged, unknown ones were read,
and those that the client dropped stand for their files. What the client kept of those is not removed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

from duckicelake.bridge.entries import metrics_of, partition_json, writable_partition_type
from duckicelake.bridge.realise import AnyFile
from duckicelake.errors import CommitFailed, InvalidRequest
from duckicelake.iceberg.manifest import (
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
from duckicelake.lake.additions import NewFile

Place: TypeAlias = tuple[str, int | None]
"""Where a file is: its path, and for a deletion vector, which shares its Puffin file with others, the offset in it."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What a proposed snapshot brings: files added, with spec id and explicit sequence number, and files removed."""

    snapshot: Snapshot
    added: tuple[tuple[DataFile, int, int | None], ...]
    removed: tuple[AnyFile, ...]


def changed_files(
    listed: Sequence[ManifestFile],
    read: Mapping[str, Manifest],
    missing: Sequence[AnyFile],
    snapshot: Snapshot,
    proposed_id: int,
) -> Upload:
    """What a proposed snapshot adds to and removes from its parent.

    `read` are the manifests of its list that the catalog doesn't know, by path; `missing` the live files of those that
    the parent lists and it doesn't. InvalidRequest if it keeps a file that the parent doesn't have.
    """
    places = {place_of(row) for row in missing}
    kept: set[Place] = set()
    added: list[tuple[DataFile, int, int | None]] = []
    for line in listed:
        manifest = read.get(line.manifest_path)
        for entry in manifest.entries if manifest else ():
            if entry.status is EntryStatus.ADDED and entry.snapshot_id == proposed_id:
                inherited = entry.sequence_number in (line.sequence_number, UNASSIGNED)
                added.append((entry.data_file, line.partition_spec_id, None if inherited else entry.sequence_number))
            elif entry.status is not EntryStatus.DELETED:
                kept.add(_kept_place(entry, places, line, snapshot))
    return Upload(snapshot, tuple(added), tuple(row for row in missing if place_of(row) not in kept))


def place_of(file: AnyFile | DataFile) -> Place:
    """What names a file in manifests: its path and, as deletion vectors share files, the place in that."""
    if isinstance(file, DataFile):
        return file.file_path, file.content_offset
    return file.path, file.metrics.get("content_offset")


def _kept_place(entry: ManifestEntry, known: AbstractSet[Place], line: ManifestFile, snapshot: Snapshot) -> Place:
    place = place_of(entry.data_file)
    if place not in known:
        raise InvalidRequest(
            f"Manifest {line.manifest_path} of snapshot {snapshot.snapshot_id} lists {place[0]} as a file of before, "
            "but the snapshot it builds on doesn't hold that file: write the manifest from the current metadata"
        )
    return place


def new_files(upload: Upload, target: TableMetadata, ids: Iterator[int], row_shift: int = 0) -> tuple[NewFile, ...]:
    """The side-table rows of the files that an upload adds; the client's row ids are `row_shift` too low."""
    types = {spec.spec_id: writable_partition_type(spec, target.schemas)[1] for spec in target.partition_specs}
    snapshot = upload.snapshot
    row_ids = _RowIds(target, snapshot, row_shift)
    rows = []
    for file, spec_id, number in upload.added:
        sequence = snapshot.sequence_number if number is None else number
        rows.append(
            NewFile(
                file_id=next(ids),
                content=int(file.content),
                path=file.file_path,
                file_format=file.file_format,
                spec_id=spec_id,
                partition=_partition(file, types[spec_id]),
                record_count=file.record_count,
                file_size_in_bytes=file.file_size_in_bytes,
                metrics=metrics_of(file),
                added_snapshot_id=snapshot.snapshot_id,
                sequence_number=sequence,
                file_sequence_number=snapshot.sequence_number,
                first_row_id=row_ids.first_of(file),
            )
        )
    return tuple(rows)


def check_rebased(upload: Upload) -> None:
    """CommitFailed unless the upload only adds data files, as one must that is put on top of others."""
    if upload.removed or any(file.content is not FileContent.DATA for file, _, _ in upload.added):
        raise CommitFailed(
            f"Requirement failed: branch main has changed, and snapshot {upload.snapshot.snapshot_id} "
            "is no append: it does more than add data files",
            "assert-ref-snapshot-id",
        )


class _RowIds:
    """First row ids of added data files: what the manifest list gave them, else the next free ones of the snapshot."""

    def __init__(self, target: TableMetadata, snapshot: Snapshot, shift: int) -> None:
        self._next = snapshot.first_row_id if target.format_version >= ROW_LINEAGE_VERSION else None
        self._shift = shift

    def first_of(self, file: DataFile) -> int | None:
        if self._next is None or file.content is not FileContent.DATA:
            return None
        first = self._next if file.first_row_id is None else file.first_row_id + self._shift
        self._next = max(self._next, first + file.record_count)
        return first


def _partition(file: DataFile, type_: StructType) -> list[Any]:
    try:
        return partition_json(file.partition, type_)
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise InvalidRequest(f"{file.file_path} has the partition {file.partition}, no value of {type_}") from error


def check_manifests(
    listed: Sequence[ManifestFile], read: Mapping[str, Manifest], specs: Mapping[int, PartitionSpec]
) -> None:
    """InvalidRequest unless each manifest is listed once and is what the list says; `read` are the new ones by path."""
    check_once(((line.manifest_path, None) for line in listed), "manifest")
    for line in listed:
        if line.manifest_path in read:
            _check_manifest(line, read[line.manifest_path], specs.get(line.partition_spec_id))


def check_added(files: Iterable[DataFile]) -> None:
    """InvalidRequest if a snapshot adds a file twice."""
    check_once(map(place_of, files), "file")


def check_once(places: Iterable[Place], what: str) -> None:
    """InvalidRequest naming the first place that occurs more than once."""
    for (path, _), times in Counter(places).items():
        if times > 1:
            raise InvalidRequest(f"The {what} {path} is listed {times} times: list it once")


def _check_manifest(line: ManifestFile, manifest: Manifest, spec: PartitionSpec | None) -> None:
    if spec is None:
        raise InvalidRequest(
            f"{line.manifest_path} is of partition spec {line.partition_spec_id}, which the table doesn't have"
        )
    if manifest.spec_id not in {None, line.partition_spec_id}:
        raise InvalidRequest(
            f"{line.manifest_path} is of partition spec {manifest.spec_id}, "
            f"but its manifest list says {line.partition_spec_id}"
        )
    if manifest.content is not None and manifest.content != line.content:
        raise InvalidRequest(
            f"{line.manifest_path} holds {manifest.content.name.lower()}, "
            f"but its manifest list says {line.content.name.lower()}"
        )
    fields = tuple(field.field_id for field in spec.fields)
    if manifest.partition_fields != fields:
        raise InvalidRequest(
            f"{line.manifest_path} has the partition fields {list(manifest.partition_fields)}, "
            f"but partition spec {spec.spec_id} has {list(fields)}"
        )
