"""Write the side tables, uploads included; rows are immutable except in `duckicelake_table`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, NamedTuple

import orjson
from psycopg import Cursor

from duckicelake.lake.additions import NewManifest, NewSnapshot, NewVirtualFile, SideFiles
from duckicelake.lake.changes import ChangeSet, Hold, LakeStep, TableTarget
from duckicelake.lake.packed import Packed
from duckicelake.lake.side_tables.copy_lines import format_array
from duckicelake.lake.state import FileRow
from duckicelake.postgres.pipeline import execute_no_result, flush_full_batch, json_param, split_batches
from duckicelake.postgres.queries import Row, Transaction, load_queries

_UPLOADS_SQL = load_queries("lake", "uploads")
_SQL = load_queries("lake", "write")


class UploadRow(NamedTuple):
    """A `duckicelake_upload` row that is due. location: its table's, None if there is no such table any more."""

    upload_id: int
    table_id: int
    paths: list[str]
    location: str | None


def record_uploads(cursor: Cursor[Row], table_id: int, uploads: Sequence[Sequence[str]]) -> None:
    """Record the paths that were uploaded for each of some snapshots; the files become due after 7 days."""
    if uploads:
        execute_no_result(
            cursor,
            _UPLOADS_SQL.insert,
            {"table_id": table_id, "uploads": json_param([list(paths) for paths in uploads])},
        )


def read_due_uploads(cursor: Transaction, most: int) -> list[UploadRow]:
    """Read the oldest uploads that are due."""
    return [UploadRow(*row) for row in cursor.execute(_UPLOADS_SQL.due, {"most": most}).fetchall()]


def settle_uploads(cursor: Transaction, done: Sequence[int], needed: Sequence[int]) -> None:
    """Forget the uploads whose files are deleted; the needed ones become due again after 7 days."""
    if done:
        cursor.execute(_UPLOADS_SQL.forget, {"upload_ids": list(done)})
    if needed:
        cursor.execute(_UPLOADS_SQL.postpone, {"upload_ids": list(needed)})


class LakeFileIds:
    """The files of a step, of which those that join main get ids in `ducklake_data_file` from `first_id` on."""

    def __init__(self, step: LakeStep, first_id: int) -> None:
        self._data_files, self._first_id = step.data_files, first_id
        self._places = {file.file_id: place for place, file in enumerate(step.data_files)}
        self._inlined = {file.file_id: file.first_row_id for file in (step.inlined.files if step.inlined else ())}

    def of(self, file: FileRow) -> tuple[int | None, int | None]:
        """Return (id in `ducklake_data_file`, first row id) of a file, each None if it has none."""
        place = self._places.get(file.file_id)
        if place is None:
            return file.ducklake_id, _compute_first_row_id(file, self._inlined.get(file.file_id))
        return self._first_id + place, _compute_first_row_id(file, self._data_files[place].row_id_start)


def _compute_first_row_id(file: FileRow, in_lake: int | None) -> int | None:
    return in_lake if file.first_row_id is None else file.first_row_id


def write_step(cursor: Cursor[Row], table_id: int, step: LakeStep, first_id: int, at: int) -> None:
    """Insert what a step brings: files, deletions, manifests and snapshots.

    `first_id` is that in `ducklake_data_file` of the first of the files that join main, which the others follow.
    """
    _write_few(cursor, table_id, step.side)
    in_lake = LakeFileIds(step, first_id)
    manifests = [_build_manifest_row(manifest) for manifest in step.side.manifests]
    snapshots = [_build_snapshot_row(snapshot) for snapshot in step.snapshots]
    for files in split_batches(step.side.files) or [()] * bool(manifests or snapshots):
        parameters = {
            "table_id": table_id,
            "at": at,
            "files": json_param([_build_file_row(file, *in_lake.of(file)) for file in files]),
            "manifests": json_param(manifests),
            "snapshots": json_param(snapshots),
        }
        execute_no_result(cursor, _SQL.insert_rows, parameters)
        manifests, snapshots = [], []
        flush_full_batch(cursor, files)


def _write_few(cursor: Cursor[Row], table_id: int, side: SideFiles) -> None:
    record_uploads(cursor, table_id, [side.uploads] if side.uploads else [])
    if side.deletions:
        cursor.executemany(_SQL.insert_deletion, [{**asdict(row), "table_id": table_id} for row in side.deletions])
    if side.virtual_files:
        cursor.executemany(
            _SQL.insert_virtual_file, [_build_virtual_file_row(table_id, file) for file in side.virtual_files]
        )


def cancel_deletion(cursor: Cursor[Row], paths: Iterable[str]) -> None:
    """Keep files of a table, its rows written, from DuckDB's next cleanup, however their paths are spelled."""
    for some in split_batches(list(dict.fromkeys(paths))):
        execute_no_result(cursor, _SQL.unschedule, {"paths": json_param(some)})
        flush_full_batch(cursor, some)


def _build_file_row(file: FileRow, ducklake_id: int | None, first_row_id: int | None) -> dict[str, object]:
    return {
        "file_id": file.file_id,
        "content": file.content,
        "path": file.path,
        "file_format": file.file_format,
        "spec_id": file.spec_id,
        "partition": orjson.dumps(file.partition).decode(),  # a text of its own: it may hold a NUL character
        "record_count": file.record_count,
        "file_size_in_bytes": file.file_size_in_bytes,
        "added_snapshot_id": file.added_snapshot_id,
        "sequence_number": file.sequence_number,
        "file_sequence_number": file.file_sequence_number,
        "first_row_id": first_row_id,
        "metrics": _encode_metrics(file.metrics),
        "ducklake_id": ducklake_id,
    }


def _encode_metrics(metrics: Mapping[str, Any]) -> orjson.Fragment | dict[str, Any]:
    return orjson.Fragment(metrics.text) if isinstance(metrics, Packed) else dict(metrics)


def _build_virtual_file_row(table_id: int, file: NewVirtualFile) -> dict[str, object]:
    ((name, _),) = groupby(file.keys, key=lambda key: key.inlined_table)
    return {
        "file_id": file.file_id,
        "table_id": table_id,
        "inlined_table": name,
        "row_ids": format_array(key.row_id for key in file.keys),
        "begin_snapshots": format_array(key.begin_snapshot for key in file.keys),
    }


def _build_manifest_row(manifest: NewManifest) -> dict[str, object]:
    return {
        "manifest_id": manifest.manifest_id,
        "content": manifest.content,
        "format_version": manifest.format_version,
        "spec_id": manifest.spec_id,
        "schema_id": manifest.schema_id,
        "sequence_number": manifest.sequence_number,
        "min_sequence_number": manifest.min_sequence_number,
        "added_snapshot_id": manifest.added_snapshot_id,
        "added": manifest.added,
        "existing": manifest.existing,
        "deleted": manifest.deleted,
        "is_laid_out": manifest.is_laid_out or None,
    }


def write_row_ids(cursor: Cursor[Row], row_ids: Sequence[tuple[int, int]]) -> None:
    """Note the first row ids of files, given as (file id, first row id)."""
    if row_ids:
        cursor.executemany(_SQL.give_row_ids, [{"file_id": file, "first_row_id": first} for file, first in row_ids])


def _build_snapshot_row(snapshot: NewSnapshot) -> dict[str, object]:
    return {
        "snapshot_id": snapshot.snapshot_id,
        "proposed_id": snapshot.proposed_id,
        "parent_snapshot_id": snapshot.parent_snapshot_id,
        "sequence_number": snapshot.sequence_number,
        "timestamp_ms": snapshot.timestamp_ms,
        "schema_id": snapshot.schema_id,
        "first_row_id": snapshot.first_row_id,
        "added_rows": snapshot.added_rows,
        "key_id": snapshot.key_id,
        "summary": dict(snapshot.summary),
        "manifest_ids": snapshot.manifest_ids,
    }


def hold_files(cursor: Cursor[Row], table_id: int, held: Hold) -> None:
    """Note until when the snapshots stay that list these files; some may have to leave sooner already."""
    parameters = {"table_id": table_id, "file_ids": list(held.file_ids), "until_ms": held.until_ms}
    execute_no_result(cursor, _SQL.hold, parameters)


def extend_holds(cursor: Cursor[Row], table_id: int) -> None:
    """Have snapshots that were held long enough be looked at again later, but for those that leave now."""
    execute_no_result(cursor, _SQL.hold_longer, {"table_id": table_id})


def insert_table(
    cursor: Cursor[Row],
    table_id: int,
    table_uuid: str,
    target: TableTarget,
    ducklake_id: int,
    caught_up_to: int,
    epoch: int,
) -> None:
    """Insert a table's row at version 0; a no-op if another worker was first."""
    parameters = {
        **_build_target_row(table_id, target, ducklake_id, caught_up_to),
        "table_uuid": table_uuid,
        "epoch": epoch,
    }
    cursor.execute(_SQL.insert_table, parameters)


def update_table(cursor: Cursor[Row], change: ChangeSet, table_id: int, ducklake_id: int | None, progress: int) -> None:
    """Move the table from the change's base to its target; `ducklake_id` is None where main stays.

    The transaction fails with StaleSnapshotError if the table isn't at the base.
    """
    base = {"base_version": change.base_version, "base_progress": change.caught_up_to}
    execute_no_result(
        cursor, _SQL.update_table, {**_build_target_row(table_id, change.target, ducklake_id, progress), **base}
    )


def _build_target_row(
    table_id: int, target: TableTarget, ducklake_id: int | None, caught_up_to: int
) -> dict[str, object]:
    return {
        "table_id": table_id,
        "location": target.location,
        "caught_up_to": caught_up_to,
        "ducklake_id": ducklake_id,
        "format_version": target.format_version,
        "last_sequence_number": target.last_sequence_number,
        "next_row_id": target.next_row_id,
        "last_updated_ms": target.last_updated_ms,
        "current_snapshot_id": target.current_snapshot_id,
        "metadata": target.metadata,
    }


def write_history(cursor: Cursor[Row], table_id: int, target: TableTarget) -> None:
    """Drop the snapshots that leave history and bring the snapshot log up to date."""
    if target.removed_snapshots:
        parameters = {"table_id": table_id, "snapshot_ids": list(target.removed_snapshots)}
        execute_no_result(cursor, _SQL.delete_snapshots, parameters)
    if target.log_dropped:
        execute_no_result(cursor, _SQL.drop_log, {"table_id": table_id, "count": target.log_dropped})
    if target.log_added:
        execute_no_result(cursor, _SQL.append_log, {"table_id": table_id, "entries": json_param(target.log_added)})


def is_guarded(cursor: Cursor[Row], table_id: int) -> bool:
    """Return whether the table says that its files may not be deleted."""
    return cursor.execute(_SQL.is_guarded, {"table_id": table_id}).fetchone() is not None


def read_purgeable(cursor: Cursor[Row], table_id: int) -> list[str]:
    """Read the files in the table's own locations that no other table has."""
    return [row[0] for row in cursor.execute(_SQL.purgeable, {"table_id": table_id}).fetchall()]


def take_over_held(cursor: Cursor[Row], table_id: int) -> None:
    """Have what keeps DuckLake's orphan cleaner from files that are now this table's alone end with the table."""
    cursor.execute(_SQL.take_held, {"table_id": table_id})


def purge_table(cursor: Cursor[Row], table_id: int, paths: Sequence[str], first_file_id: int) -> None:
    """Forget the table and schedule the files for deletion, each under an id of its own."""
    cursor.execute(_SQL.forget, {"table_id": table_id})
    schedule_deletion(cursor, paths, first_file_id)


def forget_dropped(cursor: Cursor[Row], table_uuid: str, heir_id: int) -> None:
    """Forget dropped tables of a UUID all of whose files the table that is now registered has."""
    for (table_id,) in cursor.execute(_SQL.dropped, {"table_uuid": table_uuid, "heir_id": heir_id}).fetchall():
        cursor.execute(_SQL.forget, {"table_id": table_id})


def record_registered(cursor: Cursor[Row], table_id: int, log: Sequence[tuple[str, int]]) -> None:
    """Note the metadata log, as (path, epoch ms), that a table comes with; it ends with what it was registered from."""
    for age, (path, timestamp_ms) in enumerate(reversed(log), start=1):
        parameters = {"table_id": table_id, "object_id": -age, "path": path, "timestamp_ms": timestamp_ms}
        cursor.execute(_SQL.record_registered, parameters)
    cancel_deletion(cursor, [path for path, _ in log])


def forget_unlisted(cursor: Cursor[Row], table_id: int) -> list[str]:
    """Forget manifests and files that no listed snapshot needs; their paths, some of which may still be named."""
    paths = [row[0] for row in cursor.execute(_SQL.forget_unlisted, {"table_id": table_id}).fetchall()]
    cursor.execute(_SQL.forget_held, {"table_id": table_id, "paths": paths})
    return paths


def schedule_deletion(cursor: Cursor[Row], paths: Sequence[str], first_file_id: int) -> None:
    """Have DuckDB's next cleanup delete the files, each under an id of its own; what the catalog still names stays."""
    if paths:
        cursor.execute(_SQL.schedule, {"first_file_id": first_file_id, "paths": list(paths)})


def mark_deletes_seen(cursor: Cursor[Row], table_id: int, delete_file_ids: Sequence[int]) -> None:
    """Note that the positions in these DuckLake delete files are known."""
    if delete_file_ids:
        rows = [{"delete_file_id": delete_file_id, "table_id": table_id} for delete_file_id in delete_file_ids]
        cursor.executemany(_SQL.see_delete, rows)
