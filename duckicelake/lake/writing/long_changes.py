"""Writes long changes: steps that only add are written together, their rows by COPY, which no pipeline takes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from psycopg import Cursor

from duckicelake.lake import runs
from duckicelake.lake.changes import ChangeSet, LakeStep, TableStats
from duckicelake.lake.model import NameMap
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.documents import BATCH
from duckicelake.lake.rows import producers
from duckicelake.lake.snapshots import NewSnapshot
from duckicelake.lake.writing import copying, files

Made = tuple[LakeStep, NewSnapshot]
"""A step with the DuckLake snapshot that it is."""


def is_long(change: ChangeSet) -> bool:
    """Whether COPY, and what it takes to begin one, is less than statements for each step."""
    return len(change.steps) > 1 or any(len(step.side.files) > BATCH for step in change.steps)


def together(steps: Iterable[Made]) -> Iterator[list[Made]]:
    """The steps by what can be written at once: only the first of each ends anything, or changes what the table is."""
    run: list[Made] = []
    for step, made in steps:
        if run and not _only_adds(step):
            yield run
            run = []
        run.append((step, made))
    if run:
        yield run


def _only_adds(step: LakeStep) -> bool:
    ends = step.ended_files or step.ended_rows
    return not (ends or step.definition or step.creation or step.divides_files or step.inlined)


def write(cursor: Cursor[Row], table_id: int, run: Sequence[Made], maps: dict[NameMap, int]) -> None:
    """Write what the steps add; what the first one ends has ended. `maps` are those that the table has."""
    _write_stats(cursor, table_id, [step.stats for step, _ in run if step.stats is not None])
    joining = [(file, made.first_file_id + i, made.id) for step, made in run for i, file in enumerate(step.data_files)]
    joined = {file.file_id: data_file_id for file, data_file_id, _ in joining}
    _copy_sides(cursor, table_id, run, joined)
    for step, made in run:
        producers.note_snapshots(cursor, table_id, step.snapshots, made.id)
        files.write_name_maps(
            cursor, table_id, step.name_maps, _first_delete(step, made) + len(step.delete_files), maps
        )
    copying.copy_data_files(cursor, table_id, joining, maps)
    for step, made in run:
        files.register_older(cursor, step, made.first_file_id)
        files.write_delete_files(cursor, table_id, step.delete_files, _first_delete(step, made), made.id)


def _write_stats(cursor: Cursor[Row], table_id: int, stats: Sequence[TableStats]) -> None:
    """Those of the last step, with the columns of all."""
    if stats:
        columns = {column: row for each in stats for column, row in each.columns.items()}
        files.write_stats(cursor, table_id, replace(stats[-1], columns=columns))


def _copy_sides(cursor: Cursor[Row], table_id: int, run: Sequence[Made], joined: Mapping[int, int]) -> None:
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
    copying.copy_files(cursor, table_id, rows)
    copying.copy_sides(cursor, table_id, [step.side for step, _ in run])
    copying.copy_snapshots(cursor, table_id, ((made.id, each) for step, made in run for each in step.snapshots))
    runs.note(cursor, table_id, (each for step, _ in run for each in step.snapshots))


def _first_delete(step: LakeStep, made: NewSnapshot) -> int:
    """Ids are given to data files, delete files and name maps in this order."""
    return made.first_file_id + len(step.data_files)
