"""PURE. The difference between two file sets of main as DuckLake's rows, with deleted positions as bitmaps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from duckicelake.errors import InvalidRequestError, format_count
from duckicelake.iceberg import puffin
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.puffin import read_bitmap, write_bitmap
from duckicelake.lake.model import InlinedKey
from duckicelake.lake.state import DeletionRow, FileRow, LiveFile, VirtualFileRow

DELETION_VECTOR = puffin.FILE_FORMAT


def encode_positions(positions: Iterable[int]) -> bytes:
    """Return the bitmap of a `duckicelake_deletion` row."""
    return write_bitmap(positions)


def decode_positions(data: bytes) -> frozenset[int]:
    """Return the positions of a `duckicelake_deletion` row."""
    return read_bitmap(data)


def check_positions(deleted: Mapping[int, frozenset[int]], files: Mapping[int, FileRow]) -> None:
    """Raise InvalidRequestError if a position isn't one of its data file."""
    for file_id, rows in deleted.items():
        file, last = files[file_id], max(rows, default=0)
        if last >= file.record_count:
            raise InvalidRequestError(
                f"position {last} of {file.path} is deleted, but it has {format_count(file.record_count, 'row')}"
            )


def group_positions(deletions: Iterable[DeletionRow]) -> dict[int, frozenset[int]]:
    """Return all deleted positions by data file id."""
    found: dict[int, frozenset[int]] = {}
    for row in deletions:
        found[row.data_file_id] = found.get(row.data_file_id, frozenset()) | decode_positions(row.positions)
    return found


@dataclass(frozen=True, slots=True)
class FileSetDifference:
    """Two file sets of main, before and after, as far as they differ; all by id of `duckicelake_file`.

    `left` and `joined` are data files; `kept` those of both sets whose deletes may differ. `deleted_before` and
    `deleted_after` are the deleted positions of any of them; `virtual` those that serve inlined rows; `inlined` the
    positions that DuckLake keeps deleted in rows of its own, not in a delete file.
    """

    left: Sequence[int] = ()
    joined: Sequence[FileRow] = ()
    kept: Sequence[FileRow] = ()
    deleted_before: Mapping[int, frozenset[int]] = field(default_factory=dict)
    deleted_after: Mapping[int, frozenset[int]] = field(default_factory=dict)
    virtual: Mapping[int, VirtualFileRow] = field(default_factory=dict)
    inlined: Mapping[int, frozenset[int]] = field(default_factory=dict)


@dataclass(slots=True)
class LakeFileChanges:
    """The same as DuckLake's rows: files that end and begin, inlined rows that end, whole contents of delete files."""

    ended_files: list[int] = field(default_factory=list)
    ended_rows: list[InlinedKey] = field(default_factory=list)
    registered: list[FileRow] = field(default_factory=list)
    delete_files: dict[int, frozenset[int]] = field(default_factory=dict)


def diff_main(difference: FileSetDifference) -> LakeFileChanges:
    """Return how DuckLake gets from the one file set to the other."""
    result = LakeFileChanges()
    for file_id in difference.left:
        _end_file(file_id, difference, result)
    for file in difference.joined:
        _register_file(file, difference, result)
    for file in difference.kept:
        _replace_deletes(file, difference, result)
    return result


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A data file that came or went, or of which other rows are deleted, and how many rows that adds and removes."""

    kind: Literal["added", "removed", "rows-changed"]
    file: FileRow
    rows_added: int
    rows_removed: int


def list_changed_files(difference: FileSetDifference, left: Mapping[int, FileRow]) -> Iterator[ChangedFile]:
    """Yield the data files that differ: added ones, removed ones, those with other deletes. left: files by id.

    A rewrite has rows leave in some files that come back in others.
    """
    before, after = difference.deleted_before, difference.deleted_after
    nothing: frozenset[int] = frozenset()
    for file in difference.joined:
        yield ChangedFile("added", file, file.record_count - len(after.get(file.file_id, nothing)), 0)
    for file_id in difference.left:
        file = left[file_id]
        yield ChangedFile("removed", file, 0, file.record_count - len(before.get(file_id, nothing)))
    for file in difference.kept:
        then, now = before.get(file.file_id, nothing), after.get(file.file_id, nothing)
        if then != now:
            yield ChangedFile("rows-changed", file, len(then - now), len(now - then))


def collect_deleted_positions(
    deletions: Sequence[DeletionRow], delete_files: Mapping[int, FileRow | LiveFile]
) -> dict[int, frozenset[int]]:
    """Return the positions deleted from each data file by these live delete files.

    A deletion vector overrides all other deletes by position (table spec, "Deletion Vectors"), not those by equality.
    """
    vectors = {file_id for file_id, file in delete_files.items() if file.file_format == DELETION_VECTOR}
    has_vector = {row.data_file_id for row in deletions if row.delete_file_id in vectors}
    plain = {
        file_id
        for file_id, file in delete_files.items()
        if file.content == FileContent.POSITION_DELETES and file_id not in vectors
    }
    return group_positions(
        row
        for row in deletions
        if row.delete_file_id in delete_files and not (row.delete_file_id in plain and row.data_file_id in has_vector)
    )


def _end_file(file_id: int, difference: FileSetDifference, result: LakeFileChanges) -> None:
    virtual = difference.virtual.get(file_id)
    if virtual is None:
        result.ended_files.append(file_id)
    else:
        result.ended_rows += _get_row_keys(virtual, _get_deleted_before(difference, file_id))


def _register_file(file: FileRow, difference: FileSetDifference, result: LakeFileChanges) -> None:
    result.registered.append(file)
    deleted = difference.deleted_after.get(file.file_id)
    if deleted:
        result.delete_files[file.file_id] = deleted


def _replace_deletes(file: FileRow, difference: FileSetDifference, result: LakeFileChanges) -> None:
    file_id = file.file_id
    before, after = _get_deleted_before(difference, file_id), difference.deleted_after.get(file_id, frozenset())
    virtual = difference.virtual.get(file_id)
    if before - after:
        _end_file(file_id, difference, result)
        _register_file(file, difference, result)
    elif virtual is not None:
        result.ended_rows += [virtual.keys[position] for position in sorted(after - before)]
    elif after - before:
        result.delete_files[file_id] = after - difference.inlined.get(file_id, frozenset())


def _get_deleted_before(difference: FileSetDifference, file_id: int) -> frozenset[int]:
    return difference.deleted_before.get(file_id, frozenset())


def _get_row_keys(virtual: VirtualFileRow, gone: frozenset[int]) -> list[InlinedKey]:
    return [key for position, key in enumerate(virtual.keys) if position not in gone]
