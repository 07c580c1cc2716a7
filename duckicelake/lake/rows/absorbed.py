"""Writes rows of Iceberg's files as DuckDB inlines its own (`ducklake-facts.md` §6); the files then serve them."""

from collections.abc import Sequence
from dataclasses import replace

from psycopg import Cursor

from duckicelake.lake.additions import InlinedFile, InlinedRows, NewVirtualFile
from duckicelake.lake.changes import LakeStep
from duckicelake.lake.model import InlinedKey
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.rows.inserts import insert_into
from duckicelake.lake.writing import definition


def insert(cursor: Cursor[Row], table_id: int, step: LakeStep, at: int) -> LakeStep:
    """Insert the step's inlined rows in this snapshot; the step with what its files hold of them."""
    if step.inlined is None:
        return step
    into = step.inlined.into
    if into.version is not None:
        definition.make_inlined_table(cursor, table_id, into.columns, into.version)
    for file in step.inlined.files:
        arrays = [f"{{{values}}}" for values in file.values]
        cursor.execute(insert_into(into.name, into.types), [file.first_row_id - 1, at, *arrays])
    virtual = (*step.side.virtual_files, *_virtual_files(step.inlined, at))
    return replace(step, side=replace(step.side, virtual_files=virtual))


def _virtual_files(rows: InlinedRows, at: int) -> Sequence[NewVirtualFile]:
    return [NewVirtualFile(file.file_id, _keys(rows.into.name, file, at)) for file in rows.files]


def _keys(name: str, file: InlinedFile, at: int) -> tuple[InlinedKey, ...]:
    return tuple(InlinedKey(name, at, file.first_row_id + position) for position in range(file.record_count))
