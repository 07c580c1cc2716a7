"""Read DuckDB's delete files, and write their positions in Iceberg's forms."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

import orjson

from duckicelake.bridge import main_diff
from duckicelake.bridge.native.change_set import ServedFiles
from duckicelake.bridge.snapshots import SnapshotNumbers
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.derived_files import BackgroundWriter
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg import puffin
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.puffin import (
    DELETION_VECTOR_VERSION,
    FILE_FORMAT,
    PuffinBlob,
    read_vector,
    write_deletion_vectors,
)
from duckicelake.lake.additions import NewDeletion, NewFile
from duckicelake.lake.model import LakeFile
from duckicelake.lake.state import FileRow
from duckicelake.parquet.inlined_rows import read_ducklake_deletes
from duckicelake.parquet.position_deletes import write_position_deletes

_SNAPSHOT: Final = "ducklake-snapshot-id"
"""The blob property that names the DuckLake snapshot of a vector in a container."""
Target = FileRow | NewFile
_PATH: Final = "2147483546"
"""The field id of `file_path` in position delete files."""


def read_lake_deletes(services: Services, file: LakeFile) -> dict[int, int | None]:
    """Return the deleted positions, each with the snapshot that deleted it; None: the one at which the file begins."""
    data = services.store.read(file.path)
    if file.file_format == "parquet":
        return read_ducklake_deletes(data, file.path)
    try:
        return _read_container(data) if data.startswith(puffin.PUFFIN_MAGIC) else dict.fromkeys(read_vector(data))
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"DuckLake's delete file {file.path} of format {file.file_format}: {error}"
        ) from error


def _read_container(data: bytes) -> dict[int, int | None]:
    """Read a Puffin file of DuckDB 2.0: one vector per snapshot, each with the positions of the earlier ones, too."""
    snapshots: dict[int, puffin.PuffinBlob] = {}
    for blob in puffin.read_footer(data).blobs:
        snapshot = blob.properties.get(_SNAPSHOT, "")
        if blob.type != puffin.DELETION_VECTOR or blob.compression_codec is not None or not snapshot.isdigit():
            raise InvalidRequestError(
                f"its blob at {blob.offset} is no plain {puffin.DELETION_VECTOR} with a {_SNAPSHOT}"
            )
        snapshots[int(snapshot)] = blob
    positions: dict[int, int | None] = {}
    for number, blob in sorted(snapshots.items()):
        for position in read_vector(data[blob.offset : blob.offset + blob.length]):
            positions.setdefault(position, number)
    return positions


@dataclass(frozen=True, slots=True)
class NewlyDeleted:
    """Positions that a snapshot deletes, those deleted before it, and the data files themselves; all by file id."""

    positions: Mapping[int, AbstractSet[int]]
    before: Mapping[int, AbstractSet[int]]
    targets: Mapping[int, Target]


def write_deletes(
    beside: BackgroundWriter,
    metadata: TableMetadata,
    numbers: SnapshotNumbers,
    deleted: NewlyDeleted,
    ids: Iterator[int],
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
    beside: BackgroundWriter,
    metadata: TableMetadata,
    numbers: SnapshotNumbers,
    deleted: NewlyDeleted,
    ids: Iterator[int],
) -> ServedFiles:
    """Return one Puffin file for all data files."""
    everything = {i: deleted.positions[i] | deleted.before.get(i, frozenset()) for i in sorted(deleted.positions)}
    puffin = write_deletion_vectors((deleted.targets[i].path, found) for i, found in everything.items())
    path = beside.add(metadata, f"{numbers.snapshot_id}-{{}}-dv.puffin", puffin.data)
    files: list[NewFile] = []
    deletions: list[NewDeletion] = []
    for (target_id, found), blob in zip(everything.items(), puffin.blobs, strict=True):
        written = _Written(path, FILE_FORMAT, len(puffin.data), len(found), _place(blob, deleted.targets[target_id]))
        files.append(_new_file(next(ids), written, deleted.targets[target_id], numbers))
        deletions.append(NewDeletion(files[-1].file_id, target_id, main_diff.encode_positions(found)))
    return ServedFiles(files=tuple(files), deletions=tuple(deletions))


def _place(blob: PuffinBlob, target: Target) -> dict[str, Any]:
    return {
        "referenced_data_file": target.path,
        "content_offset": blob.offset,
        "content_size_in_bytes": blob.length,
    }


def _serve_position_deletes(
    beside: BackgroundWriter,
    metadata: TableMetadata,
    numbers: SnapshotNumbers,
    deleted: NewlyDeleted,
    ids: Iterator[int],
) -> ServedFiles:
    """Return a Parquet file for each partition: position deletes apply within theirs."""
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
        deletions += [NewDeletion(file.file_id, i, main_diff.encode_positions(deleted.positions[i])) for i in group]
    return ServedFiles(files=tuple(files), deletions=tuple(deletions))


def _write_positions(
    beside: BackgroundWriter,
    metadata: TableMetadata,
    numbers: SnapshotNumbers,
    deleted: NewlyDeleted,
    group: Sequence[int],
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


def _new_file(file_id: int, written: _Written, target: Target, numbers: SnapshotNumbers) -> NewFile:
    """Return the row of a delete file that lies in the partition of its target."""
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
