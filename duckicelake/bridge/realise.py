"""PURE. What a move of main from one file set to another means to DuckLake, which knows main only.

Main moves by a new snapshot, a rollback, a fast-forward, a cherry-pick: to DuckLake it is all the same, a difference of
two sets. A file that comes back is registered anew under its old row ids; so is one whose deleted rows come back, as
DuckLake has no word for that; and so is the Parquet of inlined rows once those rows have ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from duckicelake.bridge import positions
from duckicelake.iceberg import puffin
from duckicelake.iceberg.manifest import FileContent
from duckicelake.lake.additions import NewFile
from duckicelake.lake.model import InlinedKey
from duckicelake.lake.state import DeletionRow, FileRow, LiveFile, VirtualFileRow

AnyFile = FileRow | NewFile
DELETION_VECTOR = puffin.FILE_FORMAT


@dataclass(frozen=True, slots=True)
class Difference:
    """Two file sets of main, before and after, as far as they differ; all by id of `duckicelake_file`.

    `left` and `joined` are data files; `kept` those of both sets whose deletes may differ. `deleted_before` and
    `deleted_after` are the deleted positions of any of them; `virtual` those that serve inlined rows; `inlined` the
    positions that DuckLake keeps deleted in rows of its own, not in a delete file.
    """

    left: Sequence[int] = ()
    joined: Sequence[AnyFile] = ()
    kept: Sequence[AnyFile] = ()
    deleted_before: Mapping[int, frozenset[int]] = field(default_factory=dict)
    deleted_after: Mapping[int, frozenset[int]] = field(default_factory=dict)
    virtual: Mapping[int, VirtualFileRow] = field(default_factory=dict)
    inlined: Mapping[int, frozenset[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Realisation:
    """The same as DuckLake's rows: files that end and begin, inlined rows that end, whole contents of delete files."""

    ended_files: list[int] = field(default_factory=list)
    ended_rows: list[InlinedKey] = field(default_factory=list)
    registered: list[AnyFile] = field(default_factory=list)
    delete_files: dict[int, frozenset[int]] = field(default_factory=dict)


def realise(difference: Difference) -> Realisation:
    """How DuckLake gets from the one file set to the other."""
    result = Realisation()
    for file_id in difference.left:
        _leave(file_id, difference, result)
    for file in difference.joined:
        _register(file, difference, result)
    for file in difference.kept:
        _redelete(file, difference, result)
    return result


def deleted_positions(
    deletions: Sequence[DeletionRow], delete_files: Mapping[int, AnyFile | LiveFile]
) -> dict[int, frozenset[int]]:
    """The positions deleted from each data file by these live delete files.

    A deletion vector overrides all other deletes by position (table spec, "Deletion Vectors"), not those by equality.
    """
    vectors = {file_id for file_id, file in delete_files.items() if file.file_format == DELETION_VECTOR}
    has_vector = {row.data_file_id for row in deletions if row.delete_file_id in vectors}
    plain = {
        file_id
        for file_id, file in delete_files.items()
        if file.content == FileContent.POSITION_DELETES and file_id not in vectors
    }
    return positions.by_data_file(
        row
        for row in deletions
        if row.delete_file_id in delete_files and not (row.delete_file_id in plain and row.data_file_id in has_vector)
    )


def _leave(file_id: int, difference: Difference, result: Realisation) -> None:
    virtual = difference.virtual.get(file_id)
    if virtual is None:
        result.ended_files.append(file_id)
    else:
        result.ended_rows += _keys(virtual, _before(difference, file_id))


def _register(file: AnyFile, difference: Difference, result: Realisation) -> None:
    result.registered.append(file)
    deleted = difference.deleted_after.get(file.file_id)
    if deleted:
        result.delete_files[file.file_id] = deleted


def _redelete(file: AnyFile, difference: Difference, result: Realisation) -> None:
    file_id = file.file_id
    before, after = _before(difference, file_id), difference.deleted_after.get(file_id, frozenset())
    virtual = difference.virtual.get(file_id)
    if before - after:
        _leave(file_id, difference, result)
        _register(file, difference, result)
    elif virtual is not None:
        result.ended_rows += [virtual.keys[position] for position in sorted(after - before)]
    elif after - before:
        result.delete_files[file_id] = after - difference.inlined.get(file_id, frozenset())


def _before(difference: Difference, file_id: int) -> frozenset[int]:
    return difference.deleted_before.get(file_id, frozenset())


def _keys(virtual: VirtualFileRow, gone: frozenset[int]) -> list[InlinedKey]:
    return [key for position, key in enumerate(virtual.keys) if position not in gone]
