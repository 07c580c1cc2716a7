"""Writes of side-table rows by COPY: what catching up finds may be a hundred thousand files, or as many snapshots."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import orjson
from psycopg import Cursor

from duckicelake.lake.changes import LakeStep, NewFile, NewManifest, NewSnapshot, NewVirtualFile
from duckicelake.lake.database import Row
from duckicelake.lake.queries import queries

_SQL = queries("copy")


def copy_steps(cursor: Cursor[Row], table_id: int, steps: Sequence[LakeStep]) -> None:
    """Insert the files, deletions, manifests and snapshots of steps whose DuckLake snapshots there are already."""
    sides = [step.side for step in steps]
    _copy(cursor, _SQL.files, (_file(table_id, each) for side in sides for each in side.files))
    deletions = chain.from_iterable(side.deletions for side in sides)
    _copy(cursor, _SQL.deletions, ((d.delete_file_id, d.data_file_id, table_id, d.positions) for d in deletions))
    _copy(cursor, _SQL.virtual_files, (_virtual_file(table_id, each) for side in sides for each in side.virtual_files))
    _copy(cursor, _SQL.manifests, (_manifest(table_id, each) for side in sides for each in side.manifests))
    snapshots = ((step.ducklake_id, snapshot) for step in steps for snapshot in step.snapshots)
    _copy(cursor, _SQL.snapshots, (_snapshot(table_id, made, snapshot) for made, snapshot in snapshots))


def copy_log(cursor: Cursor[Row], table_id: int, entries: Sequence[tuple[int, int]]) -> None:
    """Let a snapshot log go on with entries of (snapshot id, epoch ms)."""
    row = cursor.execute(_SQL.log_end, {"table_id": table_id}).fetchone()
    assert row is not None
    rows = ((table_id, ordinal, *entry) for ordinal, entry in enumerate(entries, start=row[0] + 1))
    _copy(cursor, _SQL.log, rows)


def _copy(cursor: Cursor[Row], query: str, rows: Iterable[tuple[object, ...]]) -> None:
    following = iter(rows)
    first = next(following, None)
    if first is None:
        return
    with cursor.copy(query) as copy:
        for row in chain((first,), following):
            copy.write_row(row)


def _file(table_id: int, file: NewFile) -> tuple[object, ...]:
    return (
        file.file_id,
        table_id,
        int(file.content),
        file.path,
        file.file_format,
        file.spec_id,
        _json(file.partition),
        file.record_count,
        file.file_size_in_bytes,
        file.added_snapshot_id,
        file.sequence_number,
        file.file_sequence_number,
        file.first_row_id,
        _json(file.metrics),
        file.ducklake_id,
    )


def _virtual_file(table_id: int, file: NewVirtualFile) -> tuple[object, ...]:
    row_ids, begins = [key.row_id for key in file.keys], [key.begin_snapshot for key in file.keys]
    return file.file_id, table_id, file.keys[0].inlined_table, row_ids, begins


def _manifest(table_id: int, manifest: NewManifest) -> tuple[object, ...]:
    return (
        manifest.manifest_id,
        table_id,
        manifest.content,
        manifest.format_version,
        manifest.spec_id,
        manifest.schema_id,
        manifest.sequence_number,
        manifest.min_sequence_number,
        manifest.added_snapshot_id,
        list(manifest.added),
        list(manifest.existing),
        list(manifest.deleted),
    )


def _snapshot(table_id: int, ducklake_id: int | None, snapshot: NewSnapshot) -> tuple[object, ...]:
    return (
        table_id,
        snapshot.snapshot_id,
        snapshot.proposed_id,
        ducklake_id,
        snapshot.parent_snapshot_id,
        snapshot.sequence_number,
        snapshot.timestamp_ms,
        snapshot.schema_id,
        snapshot.first_row_id,
        snapshot.added_rows,
        snapshot.key_id,
        _json(snapshot.summary),
        list(snapshot.manifest_ids),
    )


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
