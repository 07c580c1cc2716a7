"""PURE. Summaries of snapshots that no Iceberg client wrote (table spec, "Optional Snapshot Summary Fields")."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duckicelake.iceberg.manifest import FileContent
from duckicelake.lake.changes import NewFile
from duckicelake.lake.state import FileRow

Files = Sequence[NewFile | FileRow]
_TOO_LONG = 20


@dataclass(frozen=True, slots=True)
class Totals:
    """The running totals of a table: data files, delete files, records, bytes and position deletes."""

    data_files: int = 0
    delete_files: int = 0
    records: int = 0
    files_size: int = 0
    position_deletes: int = 0

    @staticmethod
    def of(summary: Mapping[str, str]) -> "Totals":
        """The totals that a snapshot's summary states; what it doesn't state is 0."""
        names = ("data-files", "delete-files", "records", "files-size", "position-deletes")
        texts = (summary.get(f"total-{name}", "0") for name in names)
        return Totals(*(int(text) if text.isdecimal() and len(text) < _TOO_LONG else 0 for text in texts))


def summarise(operation: str, added: Files, removed: Files, before: Totals) -> dict[str, str]:
    """The summary of a snapshot that adds and removes these files; counts that are 0 are left out, totals never."""
    new, old = _Counts.of(added), _Counts.of(removed)
    counts = {
        "added-data-files": new.data_files,
        "deleted-data-files": old.data_files,
        "added-records": new.records,
        "deleted-records": old.records,
        "added-files-size": new.size,
        "removed-files-size": old.size,
        "added-delete-files": new.delete_files,
        "removed-delete-files": old.delete_files,
        "added-position-delete-files": new.delete_files,
        "removed-position-delete-files": old.delete_files,
        "added-position-deletes": new.positions,
        "removed-position-deletes": old.positions,
        "changed-partition-count": len({(f.spec_id, str(f.partition)) for f in (*added, *removed)}),
    }
    totals = {
        "total-data-files": before.data_files + new.data_files - old.data_files,
        "total-delete-files": before.delete_files + new.delete_files - old.delete_files,
        "total-records": before.records + new.records - old.records,
        "total-files-size": before.files_size + new.size - old.size,
        "total-position-deletes": before.position_deletes + new.positions - old.positions,
        "total-equality-deletes": 0,
    }
    stated = {key: count for key, count in counts.items() if count} | totals
    return {"operation": operation, **{key: str(max(0, count)) for key, count in stated.items()}}


@dataclass(frozen=True, slots=True)
class _Counts:
    data_files: int
    delete_files: int
    records: int
    positions: int
    size: int

    @staticmethod
    def of(files: Files) -> "_Counts":
        data = [file for file in files if file.content == FileContent.DATA]
        deletes = [file for file in files if file.content != FileContent.DATA]
        return _Counts(
            len(data),
            len(deletes),
            sum(file.record_count for file in data),
            sum(file.record_count for file in deletes),
            sum(file.file_size_in_bytes for file in files),
        )
