"""PURE. Summaries of snapshots that no Iceberg client wrote (table spec, "Optional Snapshot Summary Fields")."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.puffin import FILE_FORMAT
from duckicelake.lake.additions import NewFile
from duckicelake.lake.state import FileRow

Files = Sequence[NewFile | FileRow]
_TOO_LONG = 20


@dataclass(frozen=True, slots=True)
class Totals:
    """The running totals of a table: data files, delete files, records, bytes, position and equality deletes."""

    data_files: int = 0
    delete_files: int = 0
    records: int = 0
    files_size: int = 0
    position_deletes: int = 0
    equality_deletes: int = 0

    @staticmethod
    def of(summary: Mapping[str, str]) -> "Totals":
        """The totals that a snapshot's summary states; what it doesn't state is 0."""
        names = ("data-files", "delete-files", "records", "files-size", "position-deletes", "equality-deletes")
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
        **new.of_deletes("added"),
        **old.of_deletes("removed"),
        "changed-partition-count": len({(f.spec_id, str(f.partition)) for f in (*added, *removed)}),
    }
    totals = {
        "total-data-files": before.data_files + new.data_files - old.data_files,
        "total-delete-files": before.delete_files + new.delete_files - old.delete_files,
        "total-records": before.records + new.records - old.records,
        "total-files-size": before.files_size + new.size - old.size,
        "total-position-deletes": before.position_deletes + new.positions - old.positions,
        "total-equality-deletes": before.equality_deletes + new.equalities - old.equalities,
    }
    stated = {key: count for key, count in counts.items() if count} | totals
    return {"operation": operation, **{key: str(max(0, count)) for key, count in stated.items()}}


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
    def of(files: Files) -> "_Counts":
        data = [file for file in files if file.content == FileContent.DATA]
        equality = [file for file in files if file.content == FileContent.EQUALITY_DELETES]
        position = [file for file in files if file.content == FileContent.POSITION_DELETES]
        vectors = [file for file in position if file.file_format == FILE_FORMAT]
        return _Counts(
            data_files=len(data),
            records=_records(data),
            position_delete_files=len(position) - len(vectors),
            equality_delete_files=len(equality),
            vectors=len(vectors),
            positions=_records(position),
            equalities=_records(equality),
            size=sum(_size(file) for file in files),
        )

    @property
    def delete_files(self) -> int:
        return self.position_delete_files + self.equality_delete_files + self.vectors

    def of_deletes(self, verb: str) -> dict[str, int]:
        """The counts of delete files, and of what they delete, under the keys of what was `added` or `removed`."""
        return {
            f"{verb}-delete-files": self.delete_files,
            f"{verb}-position-delete-files": self.position_delete_files,
            f"{verb}-equality-delete-files": self.equality_delete_files,
            f"{verb}-dvs": self.vectors,
            f"{verb}-position-deletes": self.positions,
            f"{verb}-equality-deletes": self.equalities,
        }


def _records(files: Files) -> int:
    return sum(file.record_count for file in files)


def _size(file: NewFile | FileRow) -> int:
    """A vector's own bytes, as Java counts them: its file holds those of other data files, too."""
    if file.content == FileContent.DATA:
        return file.file_size_in_bytes
    size = file.metrics.get("content_size_in_bytes")
    return file.file_size_in_bytes if size is None else int(size)
