"""Writes newly deleted positions as Iceberg has them: deletion vectors from format version 3 on, before it Parquet."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

import orjson

from duckicelake.bridge import positions
from duckicelake.bridge.caught_up import ServedFiles
from duckicelake.bridge.numbering import Numbering
from duckicelake.catalog.files.beside import FilesBeside
from duckicelake.iceberg.deletes import DELETION_VECTOR_VERSION
from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.puffin import FILE_FORMAT, PuffinBlob, write_deletion_vectors
from duckicelake.lake.additions import NewDeletion, NewFile
from duckicelake.lake.state import FileRow
from duckicelake.storage.position_deletes import write_position_deletes

Target = FileRow | NewFile
_PATH: Final = "2147483546"
"""The field id of `file_path` in position delete files."""


@dataclass(frozen=True, slots=True)
class NewlyDeleted:
    """Positions that a snapshot deletes, those deleted before it, and the data files themselves; all by file id."""

    positions: Mapping[int, AbstractSet[int]]
    before: Mapping[int, AbstractSet[int]]
    targets: Mapping[int, Target]


def serve_deletes(
    beside: FilesBeside, metadata: TableMetadata, numbers: Numbering, deleted: NewlyDeleted, ids: Iterator[int]
) -> ServedFiles:
    """Write the delete files of a snapshot, which take their file ids from `ids`.

    From format version 3 on a data file's vector holds everything that was ever deleted from it. The delete files that
    it had before are the caller's to remove.
    """
    if not deleted.positions:
        return ServedFiles()
    if metadata.format_version >= DELETION_VECTOR_VERSION:
        return _serve_vectors(beside, metadata, numbers, deleted, ids)
    return _serve_position_deletes(beside, metadata, numbers, deleted, ids)


def _serve_vectors(
    beside: FilesBeside, metadata: TableMetadata, numbers: Numbering, deleted: NewlyDeleted, ids: Iterator[int]
) -> ServedFiles:
    """One Puffin file for all data files."""
    everything = {i: deleted.positions[i] | deleted.before.get(i, frozenset()) for i in sorted(deleted.positions)}
    puffin = write_deletion_vectors((deleted.targets[i].path, found) for i, found in everything.items())
    path = beside.add(metadata, f"{numbers.snapshot_id}-{{}}-dv.puffin", puffin.data)
    files: list[NewFile] = []
    deletions: list[NewDeletion] = []
    for (target_id, found), blob in zip(everything.items(), puffin.blobs, strict=True):
        written = _Written(path, FILE_FORMAT, len(puffin.data), len(found), _place(blob, deleted.targets[target_id]))
        files.append(_new_file(next(ids), written, deleted.targets[target_id], numbers))
        deletions.append(NewDeletion(files[-1].file_id, target_id, positions.encode(found)))
    return ServedFiles(files=tuple(files), deletions=tuple(deletions))


def _place(blob: PuffinBlob, target: Target) -> dict[str, Any]:
    return {
        "referenced_data_file": target.path,
        "content_offset": blob.offset,
        "content_size_in_bytes": blob.length,
    }


def _serve_position_deletes(
    beside: FilesBeside, metadata: TableMetadata, numbers: Numbering, deleted: NewlyDeleted, ids: Iterator[int]
) -> ServedFiles:
    """A Parquet file for each partition: position deletes apply within theirs."""
    groups: defaultdict[tuple[int, bytes], list[int]] = defaultdict(list)
    for target_id in sorted(deleted.positions):
        target = deleted.targets[target_id]
        groups[target.spec_id, orjson.dumps(target.partition)].append(target_id)
    files: list[NewFile] = []
    deletions: list[NewDeletion] = []
    for group in groups.values():
        written = _write_positions(beside, metadata, numbers, deleted, group)
        file = _new_file(next(ids), written, deleted.targets[group[0]], numbers)
        files.append(file)
        deletions += [NewDeletion(file.file_id, i, positions.encode(deleted.positions[i])) for i in group]
    return ServedFiles(files=tuple(files), deletions=tuple(deletions))


def _write_positions(
    beside: FilesBeside, metadata: TableMetadata, numbers: Numbering, deleted: NewlyDeleted, group: Sequence[int]
) -> "_Written":
    paths = {i: deleted.targets[i].path for i in group}
    rows = [(path, position) for i, path in paths.items() for position in deleted.positions[i]]
    data = write_position_deletes(rows)
    path = beside.add(metadata, f"{numbers.snapshot_id}-{{}}-deletes.parquet", data)
    return _Written(path, "PARQUET", len(data), len(rows), _path_bounds(paths.values()))


def _path_bounds(paths: Iterable[str]) -> dict[str, Any]:
    """By which clients find the delete files of a data file, as those of Spark's: both bounds of one path name it.

    `referenced_data_file` would say the same, but Spark's `rewrite_table_path` (Iceberg 1.12) leaves it as it was.
    """
    ordered = sorted(path.encode() for path in paths)
    return {"lower_bounds": {_PATH: ordered[0].hex()}, "upper_bounds": {_PATH: ordered[-1].hex()}}


@dataclass(frozen=True, slots=True)
class _Written:
    """A delete file, or one vector of it."""

    path: str
    file_format: str
    size: int
    record_count: int
    metrics: dict[str, Any]


def _new_file(file_id: int, written: _Written, target: Target, numbers: Numbering) -> NewFile:
    """The row of a delete file that lies in the partition of its target."""
    return NewFile(
        file_id=file_id,
        content=FileContent.POSITION_DELETES,
        path=written.path,
        file_format=written.file_format,
        spec_id=target.spec_id,
        partition=target.partition,
        record_count=written.record_count,
        file_size_in_bytes=written.size,
        metrics=written.metrics,
        added_snapshot_id=numbers.snapshot_id,
        sequence_number=numbers.sequence_number,
        file_sequence_number=numbers.sequence_number,
    )
