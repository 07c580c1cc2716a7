"""Write long changes by COPY: up to a hundred thousand files or snapshots."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from psycopg import Cursor

from duckicelake.lake.additions import NewDataFile, NewSnapshot, SideFiles
from duckicelake.lake.changes import ChangeSet, LakeStep, TableStats
from duckicelake.lake.ducklake import data_files
from duckicelake.lake.ducklake.snapshots import SnapshotAllocation
from duckicelake.lake.model import NameMap
from duckicelake.lake.side_tables import copy_lines as lines
from duckicelake.lake.side_tables import idempotency, writer
from duckicelake.lake.state import FileRow
from duckicelake.postgres.pipeline import execute_writes
from duckicelake.postgres.queries import BATCH_ROWS, Row, load_queries

_SQL = load_queries("lake", "copy")
_BLOCK_LINES: Final = 500
"""Lines that are sent at once: Postgres works on them while the next are made."""
MadeStep = tuple[LakeStep, SnapshotAllocation]
"""A step with the DuckLake snapshot that it is."""


def copy_steps(cursor: Cursor[Row], table_id: int, steps: Sequence[LakeStep]) -> None:
    """Insert the files, deletions, manifests and snapshots of steps whose DuckLake snapshots there are already."""
    sides = [step.side for step in steps]
    copy_files(cursor, table_id, ((file, file.ducklake_id, file.first_row_id) for side in sides for file in side.files))
    copy_sides(cursor, table_id, sides)
    copy_snapshots(cursor, table_id, ((step.ducklake_id, snapshot) for step in steps for snapshot in step.snapshots))


def copy_files(cursor: Cursor[Row], table_id: int, files: Iterable[tuple[FileRow, int | None, int | None]]) -> None:
    """Insert files, each with its id in DuckLake and its first row id."""
    _copy_lines(cursor, _SQL.files, (lines.format_file(table_id, *file) for file in files))


def copy_sides(cursor: Cursor[Row], table_id: int, sides: Sequence[SideFiles]) -> None:
    """Insert what they bring besides files."""
    deletions = chain.from_iterable(side.deletions for side in sides)
    _copy_lines(cursor, _SQL.deletions, (lines.format_deletion(table_id, deletion) for deletion in deletions))
    virtual_files = chain.from_iterable(side.virtual_files for side in sides)
    _copy_lines(cursor, _SQL.virtual_files, (lines.format_virtual_file(table_id, file) for file in virtual_files))
    execute_writes(cursor, writer.build_uploads(table_id, [side.uploads for side in sides]))
    manifests = chain.from_iterable(side.manifests for side in sides)
    _copy_lines(cursor, _SQL.manifests, (lines.format_manifest(table_id, manifest) for manifest in manifests))


def copy_snapshots(cursor: Cursor[Row], table_id: int, snapshots: Iterable[tuple[int | None, NewSnapshot]]) -> None:
    """Insert Iceberg's snapshots, each with the DuckLake snapshot that made it."""
    _copy_lines(
        cursor, _SQL.snapshots, (lines.format_snapshot(table_id, made, snapshot) for made, snapshot in snapshots)
    )


def copy_log(cursor: Cursor[Row], table_id: int, entries: Sequence[tuple[int, int]]) -> None:
    """Append entries of (snapshot id, epoch ms) to a snapshot log."""
    row = cursor.execute(_SQL.log_end, {"table_id": table_id}).fetchone()
    assert row is not None
    numbered = enumerate(entries, start=row[0] + 1)
    _copy_lines(cursor, _SQL.log, (lines.format_log_entry(table_id, ordinal, entry) for ordinal, entry in numbered))


def copy_data_files(
    cursor: Cursor[Row],
    table_id: int,
    files: Sequence[tuple[NewDataFile, int, int]],
    maps: Mapping[NameMap, int],
) -> None:
    """Insert data files of main, each with its id and the snapshot that it joins at, and what is known of them."""
    _copy_lines(cursor, _SQL.data_files, (lines.format_data_file(table_id, *file, maps) for file in files))
    _copy_lines(
        cursor,
        _SQL.values,
        chain.from_iterable(lines.format_partition_values(table_id, file, id_) for file, id_, _ in files),
    )
    ((has_flags,),) = cursor.execute(_SQL.has_flags).fetchall()
    _copy_lines(
        cursor,
        _SQL.flagged_stats if has_flags else _SQL.stats,
        chain.from_iterable(
            lines.format_stats(table_id, file.stats, id_, has_flags=has_flags) for file, id_, _ in files
        ),
    )


def copy_changes(cursor: Cursor[Row], changes: Iterable[tuple[int, Sequence[str], str | None]]) -> None:
    """Write what DuckLake snapshots changed, and what is said of them besides."""
    _copy_lines(cursor, _SQL.changes, (lines.format_changes(*change) for change in changes))


def _copy_lines(cursor: Cursor[Row], query: str, rows: Iterator[str]) -> None:
    block = "".join(islice(rows, _BLOCK_LINES))
    if not block:
        return
    with cursor.copy(query) as copy:
        while block:
            copy.write(block)
            block = "".join(islice(rows, _BLOCK_LINES))


def is_long_change(change: ChangeSet) -> bool:
    """Return whether COPY, with the cost of its beginning, is less than statements for each step."""
    return len(change.steps) > 1 or any(len(step.side.files) > BATCH_ROWS for step in change.steps)


def group_steps(steps: Iterable[MadeStep]) -> Iterator[list[MadeStep]]:
    """Group steps that can be written at once: only the first of a group ends anything, or changes the definition."""
    run: list[MadeStep] = []
    for step, made in steps:
        if run and not _is_addition_only(step):
            yield run
            run = []
        run.append((step, made))
    if run:
        yield run


def _is_addition_only(step: LakeStep) -> bool:
    ends = step.ended_files or step.ended_rows
    return not (ends or step.definition or step.creation or step.divides_files or step.inlined)


def write_steps_by_copy(cursor: Cursor[Row], table_id: int, run: Sequence[MadeStep], maps: dict[NameMap, int]) -> None:
    """Write what the steps add; what the first one ends has ended. `maps` are those that the table has."""
    _write_stats(cursor, table_id, [step.stats for step, _ in run if step.stats is not None])
    joining = [(file, made.first_file_id + i, made.id) for step, made in run for i, file in enumerate(step.data_files)]
    joined = {file.file_id: data_file_id for file, data_file_id, _ in joining}
    _copy_sides(cursor, table_id, run, joined)
    for step, made in run:
        first_map = _get_first_delete_id(step, made) + len(step.delete_files)
        execute_writes(cursor, data_files.build_name_maps(table_id, step.name_maps, first_map, maps))
    copy_data_files(cursor, table_id, joining, maps)
    for step, made in run:
        first_delete = _get_first_delete_id(step, made)
        execute_writes(cursor, data_files.build_older_files(step, made.first_file_id))
        execute_writes(cursor, data_files.build_delete_files(table_id, step.delete_files, first_delete, made.id))


def _write_stats(cursor: Cursor[Row], table_id: int, stats: Sequence[TableStats]) -> None:
    """Write the statistics of the last step, with the columns of all."""
    if stats:
        columns = {column: row for table in stats for column, row in table.columns.items()}
        execute_writes(cursor, [data_files.build_stats(table_id, replace(stats[-1], columns=columns))])


def _copy_sides(cursor: Cursor[Row], table_id: int, run: Sequence[MadeStep], joined: Mapping[int, int]) -> None:
    starts = {file.file_id: file.row_id_start for step, _ in run for file in step.data_files}
    starts |= {file.file_id: file.first_row_id for step, _ in run if step.inlined for file in step.inlined.files}
    rows = (
        (
            file,
            joined.get(file.file_id, file.ducklake_id),
            starts.get(file.file_id) if file.first_row_id is None else file.first_row_id,
        )
        for step, _ in run
        for file in step.side.files
    )
    copy_files(cursor, table_id, rows)
    copy_sides(cursor, table_id, [step.side for step, _ in run])
    copy_snapshots(cursor, table_id, ((made.id, snapshot) for step, made in run for snapshot in step.snapshots))
    idempotency.record_snapshot_txns(
        cursor, table_id, ((snapshot, made.id) for step, made in run for snapshot in step.snapshots)
    )


def _get_first_delete_id(step: LakeStep, made: SnapshotAllocation) -> int:
    """Return the first id of delete files: data files, delete files and name maps take ids in this order."""
    return made.first_file_id + len(step.data_files)
