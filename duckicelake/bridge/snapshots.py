"""PURE. Numbers, times, summaries and the limit of a table's snapshots."""

from collections import ChainMap
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import count
from typing import Final, Literal

from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SEQUENCE_NUMBER_VERSION, TableMetadata
from duckicelake.iceberg.metadata_builder import apply_updates
from duckicelake.iceberg.puffin import FILE_FORMAT
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.iceberg.updates import AddSnapshot, RemoveSnapshots, TableUpdate
from duckicelake.lake.model import LakeFile
from duckicelake.lake.state import FileRow
from duckicelake.properties import get_max_listed

_FOREIGN_ID_OFFSET: Final = 1 << 40
CLOCK_TOLERANCE_MS = 30_000
SummaryFiles = Sequence[FileRow]
_TOO_LONG = 20


@dataclass(frozen=True, slots=True)
class SnapshotNumbers:
    """The id and sequence number of the Iceberg snapshot that a DuckLake snapshot makes."""

    snapshot_id: int
    sequence_number: int


def build_numbering(
    metadata: TableMetadata, ducklake_id: int, mode: Literal["client", "ducklake"], taken: Container[int]
) -> SnapshotNumbers:
    """Return the numbers of a native snapshot.

    Its id is DuckLake's, and so is its number in mode `ducklake` and in version 3.

    Version 1 has no sequence numbers: they are 0. taken: the ids of all snapshots that the table has.
    """
    snapshot_id = find_free_id(ducklake_id, taken)
    if metadata.format_version < SEQUENCE_NUMBER_VERSION:
        return SnapshotNumbers(snapshot_id, 0)
    following = metadata.last_sequence_number + 1
    shared = mode == "ducklake" or metadata.format_version >= ROW_LINEAGE_VERSION
    return SnapshotNumbers(snapshot_id, max(ducklake_id, following) if shared else following)


def find_free_id(ducklake_id: int, taken: Container[int]) -> int:
    """Return DuckLake's snapshot id, or one far from all of DuckLake's where the table has that one already."""
    return next(snapshot_id for snapshot_id in count(ducklake_id, _FOREIGN_ID_OFFSET) if snapshot_id not in taken)


def is_native_snapshot(snapshot_id: int, ducklake_id: int) -> bool:
    """Return whether a snapshot of DuckDB's got this id, and not one of a client's."""
    return snapshot_id % _FOREIGN_ID_OFFSET == ducklake_id


def find_data_sequence_number(file: LakeFile, metadata: TableMetadata, numbers: SnapshotNumbers) -> int:
    """Return the sequence number of a data file: DuckLake's, where several of its snapshots became one of Iceberg's."""
    return min(max(file.begin_snapshot, metadata.last_sequence_number + 1), numbers.sequence_number)


def find_next_row_id(added: Iterable[FileRow], at_most: int) -> int:
    """Return the next row id after a snapshot in the midst of DuckLake's history, as far as its added files show."""
    ends = (file.first_row_id + file.record_count for file in added if file.first_row_id is not None)
    return min(max(ends, default=0), at_most)


def set_snapshot_times(
    updates: Sequence[TableUpdate], base: TableMetadata | None, now_ms: int
) -> tuple[TableUpdate, ...]:
    """Return the updates with `now_ms` for snapshots of the future, and no snapshot older than its parent.

    Java refuses metadata whose logs go back by more than a minute; one wrong clock would make a table unreadable.
    Negative times are left for `apply` to refuse.
    """
    known = ChainMap[int, Snapshot]({}, base.snapshots_by_id if base else {})
    return tuple(_set_time(update, known, now_ms) for update in updates)


def _set_time(update: TableUpdate, known: ChainMap[int, Snapshot], now_ms: int) -> TableUpdate:
    """Return the update, its snapshot's time set right and noted in `known`."""
    if not isinstance(update, AddSnapshot) or update.snapshot.timestamp_ms < 0:
        return update
    snapshot = update.snapshot
    moment = now_ms if snapshot.timestamp_ms > now_ms + CLOCK_TOLERANCE_MS else snapshot.timestamp_ms
    parent = None if snapshot.parent_snapshot_id is None else known.get(snapshot.parent_snapshot_id)
    moment = moment if parent is None else max(moment, parent.timestamp_ms)
    if moment == snapshot.timestamp_ms:
        known[snapshot.snapshot_id] = snapshot
        return update
    timed = known[snapshot.snapshot_id] = snapshot.replace_fields(timestamp_ms=moment)
    return update.replace_fields(snapshot=timed)


def drop_snapshots_over_limit(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata without its oldest snapshots if it lists more than it should.

    What branches and tags name stays.

    A tenth more leave than must, so that most commits take none out.
    """
    most = get_max_listed(metadata.properties)
    if len(metadata.snapshots) <= most:
        return metadata
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    excess = len(metadata.snapshots) - (most - most // 10)
    gone = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id not in named][:excess]
    if not gone:
        return metadata
    return apply_updates(metadata, [RemoveSnapshots(snapshot_ids=tuple(gone))], metadata.last_updated_ms)


@dataclass(frozen=True, slots=True)
class SnapshotTotals:
    """Totals of a table: data files, delete files, records, bytes, position and equality deletes; None: not known."""

    data_files: int | None = 0
    delete_files: int | None = 0
    records: int | None = 0
    files_size: int | None = 0
    position_deletes: int | None = 0
    equality_deletes: int | None = 0

    @staticmethod
    def from_parent(parent: Snapshot | None) -> "SnapshotTotals":
        """Return the totals that a snapshot's summary states, 0 without one. What it doesn't state isn't known.

        Java's SnapshotProducer does the same.
        """
        if parent is None:
            return SnapshotTotals()
        names = ("data-files", "delete-files", "records", "files-size", "position-deletes", "equality-deletes")
        texts = (parent.summary.get(f"total-{name}", "") for name in names)
        return SnapshotTotals(*(int(text) if text.isdecimal() and len(text) < _TOO_LONG else None for text in texts))

    def summarize_after(self, added: "SnapshotTotals", removed: "SnapshotTotals | None" = None) -> dict[str, str]:
        """Return a summary's totals after a change, without those that aren't known or would be less than 0."""
        totals: dict[str, str] = {}
        for total in fields(self):
            before, more, less = (getattr(side, total.name) for side in (self, added, removed or SnapshotTotals()))
            after = None if None in (before, more, less) else before + more - less
            if after is not None and after >= 0:
                totals[f"total-{total.name.replace('_', '-')}"] = str(after)
        return totals


def summarize_snapshot(
    operation: str, added: SummaryFiles, removed: SummaryFiles, before: SnapshotTotals
) -> dict[str, str]:
    """Return the summary of a snapshot that adds and removes these files.

    Counts that are 0 are left out, and totals that aren't known.
    """
    new, old = _Counts.from_files(added), _Counts.from_files(removed)
    counts = {
        "added-data-files": new.data_files,
        "deleted-data-files": old.data_files,
        "added-records": new.records,
        "deleted-records": old.records,
        "added-files-size": new.size,
        "removed-files-size": old.size,
        **new.of_deletes("added"),
        **old.of_deletes("removed"),
        "changed-partition-count": len({(f.spec_id, str(f.partition)) for f in (*added, *removed)}),
    }
    stated = {key: str(count) for key, count in counts.items() if count}
    return {"operation": operation, **stated, **before.summarize_after(new.totals, old.totals)}


@dataclass(frozen=True, slots=True)
class _Counts:
    data_files: int
    records: int
    position_delete_files: int
    equality_delete_files: int
    vectors: int
    positions: int
    equalities: int
    size: int

    @staticmethod
    def from_files(files: SummaryFiles) -> "_Counts":
        data = [file for file in files if file.content == FileContent.DATA]
        equality = [file for file in files if file.content == FileContent.EQUALITY_DELETES]
        position = [file for file in files if file.content == FileContent.POSITION_DELETES]
        vectors = [file for file in position if file.file_format == FILE_FORMAT]
        return _Counts(
            data_files=len(data),
            records=_count_records(data),
            position_delete_files=len(position) - len(vectors),
            equality_delete_files=len(equality),
            vectors=len(vectors),
            positions=_count_records(position),
            equalities=_count_records(equality),
            size=sum(_measure_file(file) for file in files),
        )

    @property
    def delete_files(self) -> int:
        return self.position_delete_files + self.equality_delete_files + self.vectors

    @property
    def totals(self) -> SnapshotTotals:
        """What they come to in a table's totals."""
        return SnapshotTotals(
            self.data_files, self.delete_files, self.records, self.size, self.positions, self.equalities
        )

    def of_deletes(self, verb: str) -> dict[str, int]:
        """Count delete files, and what they delete, under the keys of `added` or `removed`."""
        return {
            f"{verb}-delete-files": self.delete_files,
            f"{verb}-position-delete-files": self.position_delete_files,
            f"{verb}-equality-delete-files": self.equality_delete_files,
            f"{verb}-dvs": self.vectors,
            f"{verb}-position-deletes": self.positions,
            f"{verb}-equality-deletes": self.equalities,
        }


def _count_records(files: SummaryFiles) -> int:
    return sum(file.record_count for file in files)


def _measure_file(file: FileRow) -> int:
    """Return a vector's own bytes, as Java counts them: its file holds those of other data files, too."""
    if file.content == FileContent.DATA:
        return file.file_size_in_bytes
    size = file.metrics.get("content_size_in_bytes")
    return file.file_size_in_bytes if size is None else int(size)
