"""Writes of rows by COPY: what catching up or an import finds may be a hundred thousand files, or as many snapshots."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from psycopg import Cursor

from duckicelake.lake import uploads
from duckicelake.lake.additions import NewDataFile, NewFile, NewSnapshot, SideFiles
from duckicelake.lake.changes import LakeStep
from duckicelake.lake.model import NameMap
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.writing import copy_lines as lines

_SQL = queries("copy")
_BLOCK: Final = 500
"""Lines that are sent at once: Postgres works on them while the next are made."""


def copy_steps(cursor: Cursor[Row], table_id: int, steps: Sequence[LakeStep]) -> None:
    """Insert the files, deletions, manifests and snapshots of steps whose DuckLake snapshots there are already."""
    sides = [step.side for step in steps]
    copy_files(cursor, table_id, ((file, file.ducklake_id, file.first_row_id) for side in sides for file in side.files))
    copy_sides(cursor, table_id, sides)
    copy_snapshots(cursor, table_id, ((step.ducklake_id, each) for step in steps for each in step.snapshots))


def copy_files(cursor: Cursor[Row], table_id: int, files: Iterable[tuple[NewFile, int | None, int | None]]) -> None:
    """Insert files, each with its id in DuckLake and its first row id."""
    _copy(cursor, _SQL.files, (lines.file_line(table_id, *each) for each in files))


def copy_sides(cursor: Cursor[Row], table_id: int, sides: Sequence[SideFiles]) -> None:
    """Insert what they bring besides files."""
    deletions = chain.from_iterable(side.deletions for side in sides)
    _copy(cursor, _SQL.deletions, (lines.deletion_line(table_id, each) for each in deletions))
    virtual_files = chain.from_iterable(side.virtual_files for side in sides)
    _copy(cursor, _SQL.virtual_files, (lines.virtual_file_line(table_id, each) for each in virtual_files))
    uploads.record(cursor, table_id, [side.uploads for side in sides if side.uploads])
    manifests = chain.from_iterable(side.manifests for side in sides)
    _copy(cursor, _SQL.manifests, (lines.manifest_line(table_id, each) for each in manifests))


def copy_snapshots(cursor: Cursor[Row], table_id: int, snapshots: Iterable[tuple[int | None, NewSnapshot]]) -> None:
    """Insert Iceberg's snapshots, each with the DuckLake snapshot that made it."""
    _copy(cursor, _SQL.snapshots, (lines.snapshot_line(table_id, made, each) for made, each in snapshots))


def copy_log(cursor: Cursor[Row], table_id: int, entries: Sequence[tuple[int, int]]) -> None:
    """Let a snapshot log go on with entries of (snapshot id, epoch ms)."""
    row = cursor.execute(_SQL.log_end, {"table_id": table_id}).fetchone()
    assert row is not None
    numbered = enumerate(entries, start=row[0] + 1)
    _copy(cursor, _SQL.log, (lines.log_line(table_id, ordinal, entry) for ordinal, entry in numbered))


def copy_data_files(
    cursor: Cursor[Row],
    table_id: int,
    files: Sequence[tuple[NewDataFile, int, int]],
    maps: Mapping[NameMap, int],
) -> None:
    """Insert data files of main, each with its id and the snapshot that it joins at, and what is known of them."""
    _copy(cursor, _SQL.data_files, (lines.data_file_line(table_id, *each, maps) for each in files))
    _copy(cursor, _SQL.values, chain.from_iterable(lines.value_lines(table_id, file, id_) for file, id_, _ in files))
    _copy(
        cursor, _SQL.stats, chain.from_iterable(lines.stats_lines(table_id, file.stats, id_) for file, id_, _ in files)
    )


def copy_changes(cursor: Cursor[Row], changes: Iterable[tuple[int, Sequence[str], str | None]]) -> None:
    """Write what DuckLake snapshots changed, and what is said of them besides."""
    _copy(cursor, _SQL.changes, (lines.changes_line(*each) for each in changes))


def _copy(cursor: Cursor[Row], query: str, rows: Iterator[str]) -> None:
    block = "".join(islice(rows, _BLOCK))
    if not block:
        return
    with cursor.copy(query) as copy:
        while block:
            copy.write(block)
            block = "".join(islice(rows, _BLOCK))
