"""Write the side tables, uploads included; rows are immutable except in `duckicelake_table`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, NamedTuple

from orjson import Fragment, dumps
from psycopg import Cursor

from duckicelake.lake.additions import NewManifest, NewSnapshot, NewVirtualFile
from duckicelake.lake.changes import ChangeSet, Hold, LakeStep, TableTarget, VersionFiles, WrittenFile
from duckicelake.lake.side_tables.copy_lines import format_array
from duckicelake.lake.state import FileRow, Packed
from duckicelake.postgres.pipeline import Write, execute_no_result, execute_writes
from duckicelake.postgres.queries import BATCH_ROWS, Row, Transaction, load_queries

_ARTIFACTS_SQL = load_queries("lake", "artifacts")
_UPLOADS_SQL = load_queries("lake", "uploads")
_SQL = load_queries("lake", "write")


class UploadRow(NamedTuple):
    """A `duckicelake_upload` row that is due. location: its table's, None if there is no such table any more."""

    upload_id: int
    table_id: int
    paths: list[str]
    location: str | None


def build_uploads(table_id: int, uploads: Iterable[Sequence[str]]) -> list[Write]:
    """Build the record of paths that were uploaded for each of some snapshots; the files become due after 7 days."""
    paths = [list(of_snapshot) for of_snapshot in uploads if of_snapshot]
    return [Write(_UPLOADS_SQL.insert, {"table_id": table_id, "uploads": dumps(paths).decode()})] if paths else []


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


def build_step(table_id: int, step: LakeStep, first_id: int, at: int) -> list[Write]:
    """Build what a step brings: files, deletions, manifests and snapshots; at most BATCH_ROWS files.

    `first_id` is that in `ducklake_data_file` of the first of the files that join main, which the others follow.
    """
    side, in_lake = step.side, LakeFileIds(step, first_id)
    writes = build_uploads(table_id, [side.uploads])
    writes += [Write(_SQL.insert_deletion, {**asdict(row), "table_id": table_id}) for row in side.deletions]
    writes += [Write(_SQL.insert_virtual_file, _build_virtual_file_row(table_id, file)) for file in side.virtual_files]
    if side.files or side.manifests or step.snapshots:
        parameters = {
            "table_id": table_id,
            "at": at,
            "files": dumps([_build_file_row(file, *in_lake.of(file)) for file in side.files]).decode(),
            "manifests": dumps([_build_manifest_row(manifest) for manifest in side.manifests]).decode(),
            "snapshots": dumps([_build_snapshot_row(snapshot) for snapshot in step.snapshots]).decode(),
        }
        writes.append(Write(_SQL.insert_rows, parameters))
    return writes


def cancel_deletion(cursor: Cursor[Row], paths: Iterable[str]) -> None:
    """Keep files of a table, its rows written, from DuckDB's next cleanup, however their paths are spelled."""
    execute_writes(cursor, build_cancellations(paths))


def build_cancellations(paths: Iterable[str]) -> Iterator[Write]:
    """Build what keeps files of a table, its rows written, from DuckDB's next cleanup."""
    distinct = list(dict.fromkeys(paths))
    starts = range(0, len(distinct), BATCH_ROWS)
    return (Write(_SQL.unschedule, {"paths": dumps(distinct[at : at + BATCH_ROWS]).decode()}) for at in starts)


def _build_file_row(file: FileRow, ducklake_id: int | None, first_row_id: int | None) -> dict[str, object]:
    return {
        "file_id": file.file_id,
        "content": file.content,
        "path": file.path,
        "file_format": file.file_format,
        "spec_id": file.spec_id,
        "partition": dumps(file.partition).decode(),  # a text of its own: it may hold a NUL character
        "record_count": file.record_count,
        "file_size_in_bytes": file.file_size_in_bytes,
        "added_snapshot_id": file.added_snapshot_id,
        "sequence_number": file.sequence_number,
        "file_sequence_number": file.file_sequence_number,
        "first_row_id": first_row_id,
        "metrics": _encode_metrics(file.metrics),
        "ducklake_id": ducklake_id,
    }


def _encode_metrics(metrics: Mapping[str, Any]) -> Fragment | dict[str, Any]:
    return Fragment(metrics.text) if isinstance(metrics, Packed) else dict(metrics)


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


def build_table_update(change: ChangeSet, table_id: int, ducklake_id: int | None, progress: int) -> Write:
    """Build the move of the table from the change's base to its target; `ducklake_id` is None where main stays.

    The transaction fails with StaleSnapshotError if the table isn't at the base.
    """
    base = {"base_version": change.base_version, "base_progress": change.caught_up_to}
    return Write(_SQL.update_table, {**_build_target_row(table_id, change.target, ducklake_id, progress), **base})


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


def build_history(table_id: int, target: TableTarget) -> list[Write]:
    """Build what drops the snapshots that leave history, and brings the snapshot log up to date."""
    writes = []
    if target.removed_snapshots:
        parameters = {"table_id": table_id, "snapshot_ids": list(target.removed_snapshots)}
        writes.append(Write(_SQL.delete_snapshots, parameters))
    if target.log_dropped:
        writes.append(Write(_SQL.drop_log, {"table_id": table_id, "count": target.log_dropped}))
    if target.log_added:
        parameters = {"table_id": table_id, "entries": dumps(target.log_added).decode()}
        writes.append(Write(_SQL.append_log, parameters))
    return writes


def build_version(
    table_id: int, change: ChangeSet, moved_at: int | None, progress: int, ready: VersionFiles | None
) -> list[Write]:
    """Build the version after the change's base: the table's row, its history, and files that are `ready` for it."""
    writes = [build_table_update(change, table_id, moved_at, progress), *build_history(table_id, change.target)]
    if ready is not None:
        return [*writes, _build_version_record(table_id, ready.files)]
    return writes + _build_forgotten_lists(table_id, change.steps)


def _build_version_record(table_id: int, files: Sequence[WrittenFile]) -> Write:
    """Build the note, in the transaction that makes the newest version, that its files were written before."""
    rows = [build_artifact_row(file) for file in files]
    return Write(_ARTIFACTS_SQL.record_with, {"table_id": table_id, "files": dumps(rows).decode()})


def build_artifact_row(file: WrittenFile) -> dict[str, object]:
    """Build a row of `duckicelake_artifact`."""
    return {
        "kind": file.kind,
        "object_id": file.object_id,
        "path": file.path,
        "length": file.length,
        "sha256": f"\\x{file.sha256.hex()}",
        "timestamp_ms": file.timestamp_ms,
        "facts": file.facts,
    }


def _build_forgotten_lists(table_id: int, steps: Iterable[LakeStep]) -> list[Write]:
    """Build what forgets files of snapshots that left history, in the transaction that makes others of the same ids."""
    ids = [new.snapshot_id for step in steps for new in step.snapshots]
    return [Write(_ARTIFACTS_SQL.forget_lists, {"table_id": table_id, "snapshot_ids": ids})] if ids else []


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
