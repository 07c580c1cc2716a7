"""Write a change set into the catalog in a fixed order of locks (`ducklake-facts.md` §0, design §6.13)."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import orjson
import psycopg
from psycopg import Cursor

from duckicelake.lake.changes import CatchUpProgress, ChangeSet, Creation, LakeStep, WrittenCommit
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import data_files, definition, native
from duckicelake.lake.ducklake.snapshots import (
    SnapshotAllocation,
    SnapshotClaim,
    SnapshotCounters,
    claim_snapshot,
    lock_writers,
    quote_name,
    record_changes,
)
from duckicelake.lake.inlined import inserts as absorbed_rows
from duckicelake.lake.model import NameMap
from duckicelake.lake.side_tables import idempotency, reader, writer, written_files
from duckicelake.lake.writer import bulk_copy
from duckicelake.postgres.failures import is_retryable
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "write")


@dataclass(frozen=True, slots=True)
class BegunChange:
    """A change with the snapshots of its steps, the newest one before, and the schema's id for a creation."""

    change: ChangeSet
    snapshots: tuple[SnapshotAllocation, ...]
    newest: int
    schema_id: int | None


def write_begun(cursor: Cursor[Row], begun: BegunChange, *, by_copy: bool) -> WrittenCommit:
    """Write a change. by_copy: it is long, and the connection has left its pipeline."""
    change, snapshots = begun.change, begun.snapshots
    ids = tuple(snapshot.id for snapshot in snapshots)
    table_id = change.table_id
    if table_id is None:
        assert begun.schema_id is not None
        table_id, at = snapshots[0].first_catalog_id, snapshots[0].id
        definition.create_table(cursor, find_creation(change), table_id, begun.schema_id, at)
    if change.options:
        definition.write_options(cursor, table_id, change.options)
    writer.write_row_ids(cursor, change.row_ids)
    maps = _read_name_maps(cursor, change)
    steps = list(zip(change.steps, snapshots, strict=True))
    if by_copy:
        _write_runs(cursor, steps, table_id, maps)
    else:
        for step, snapshot in steps:
            _write_step(cursor, step, table_id, snapshot, maps)
    _finish_change(cursor, change, table_id, ids or (begun.newest,))
    written = WrittenCommit(table_id, ids, ids[-1] if ids else begun.newest, change)
    ready = change.files if change.files is not None and change.files.is_fit_for(written) else None
    if ready is not None:
        written_files.record_newest_version(cursor, table_id, ready.files)
    elif change.table_id is not None:
        written_files.forget_lists(
            cursor, table_id, [new.snapshot_id for step in change.steps for new in step.snapshots]
        )
    paths = [file.path for step in change.steps for file in step.side.files]
    paths += [file.path for step in change.steps for file in step.data_files if not file.path_is_relative]
    writer.cancel_deletion(cursor, [*paths, *(file.path for file in (ready.files if ready else ()))])
    return replace(written, has_files=ready is not None)


def _read_name_maps(cursor: Cursor[Row], change: ChangeSet) -> dict[NameMap, int]:
    """Read the maps that the table has, if the change needs any."""
    if change.table_id is None or not any(step.name_maps for step in change.steps):
        return {}
    return native.read_newest_name_maps(cursor, change.table_id)


def find_creation(change: ChangeSet) -> Creation:
    """Return the creation of a change that creates its table."""
    creation = change.steps[0].creation
    assert creation is not None
    return creation


def write_caught_up(cursor: Cursor[Row], change: ChangeSet, progress: CatchUpProgress) -> None:
    """Write what catching up found: side tables only, no DuckLake snapshot. Raises StaleBaseError after another worker.

    The rows that may be many come first: a lock on a table's row makes commits to it wait, and so all others.
    """
    assert change.table_id is not None
    is_long = bulk_copy.is_long_change(change)
    with nullcontext() if is_long else cursor.connection.pipeline():
        row = _write_and_lock(cursor, change, change.table_id, by_copy=is_long)
        if row != (change.base_version, change.caught_up_to):
            raise StaleBaseError(f"table {change.table_id} was caught up by another worker")
        writer.extend_holds(cursor, change.table_id)
        for held in (step.hold for step in change.steps if step.hold is not None):
            writer.hold_files(cursor, change.table_id, held)
        moved_at = change.steps[-1].ducklake_id if change.steps else None
        writer.update_table(cursor, change, change.table_id, moved_at, progress.upto)
        if is_long:
            bulk_copy.copy_log(cursor, change.table_id, change.target.log_added)
        target = replace(change.target, log_added=()) if is_long else change.target
        writer.write_history(cursor, change.table_id, target)
        writer.mark_deletes_seen(cursor, change.table_id, progress.seen_deletes)
        cursor.execute(_SQL.set_epoch, {"table_id": change.table_id, "epoch": progress.epoch})


def _write_and_lock(cursor: Cursor[Row], change: ChangeSet, table_id: int, *, by_copy: bool) -> Row | None:
    """Write the table's new rows, then lock its row; return its version and progress."""
    try:
        if by_copy:
            bulk_copy.copy_steps(cursor, table_id, change.steps)
        else:
            for step in change.steps:
                assert step.ducklake_id is not None
                writer.write_step(cursor, table_id, step, 0, step.ducklake_id)
        return cursor.execute(_SQL.lock_table, {"table_id": table_id}).fetchone()
    except psycopg.Error as error:
        if not is_retryable(error):
            raise
        raise StaleBaseError(f"table {table_id} was caught up by another worker") from error


def advance_progress(cursor: Cursor[Row], table_id: int, after: int, progress: CatchUpProgress) -> None:
    """Record that nothing since `after` changes the table for Iceberg. Raises StaleBaseError after another worker."""
    parameters = {"table_id": table_id, "after": after, "upto": progress.upto, "epoch": progress.epoch}
    if not cursor.execute(_SQL.advance, parameters).rowcount:
        raise StaleBaseError(f"table {table_id} was caught up by another worker")
    writer.extend_holds(cursor, table_id)
    writer.mark_deletes_seen(cursor, table_id, progress.seen_deletes)


def release_held_files(cursor: Cursor[Row], table_id: int) -> SnapshotCounters | None:
    """Let DuckDB's next cleanup delete files that only snapshots held which left history; None if there are none.

    Ids for the files come from DuckLake's counter, with a snapshot that changes nothing (design §6.1), whose row is
    returned. A table with `gc.enabled=false` releases nothing: another catalog may need the files.
    """
    lock_writers(cursor)
    if writer.is_guarded(cursor, table_id):
        return None
    paths = writer.forget_unlisted(cursor, table_id)
    if not paths:
        return None
    made, *_ = claim_snapshot(cursor, SnapshotClaim(schema_change=False, file_ids=len(paths)), lambda: None)
    writer.schedule_deletion(cursor, paths, made.next_file_id - len(paths))
    record_changes(cursor, made.snapshot_id, [])
    return made


def check_base(cursor: Cursor[Row], table_id: int, expected: tuple[int, int], upto: int) -> None:
    """Raise StaleBaseError unless the table has this (version, progress), unchanged by DuckDB clients up to `upto`."""
    row = cursor.execute(_SQL.lock_table, {"table_id": table_id}).fetchone()
    if row != expected:
        raise StaleBaseError(f"table {table_id} is at version and progress {row}")
    if native.read_changes(cursor, table_id, expected[1], upto):
        raise StaleBaseError(f"DuckDB changed table {table_id}")


def _write_runs(
    cursor: Cursor[Row],
    steps: Sequence[tuple[LakeStep, SnapshotAllocation]],
    table_id: int,
    maps: dict[NameMap, int],
) -> None:
    for (first, snapshot), *others in bulk_copy.group_steps(steps):
        run = [(_begin_step(cursor, first, table_id, snapshot), snapshot), *others]
        bulk_copy.write_steps_by_copy(cursor, table_id, run, maps)
        said = (
            (made.id, _build_change_tokens(step, table_id), _build_extra_info(step, table_id)) for step, made in run
        )
        bulk_copy.copy_changes(cursor, said)


def _write_step(
    cursor: Cursor[Row], step: LakeStep, table_id: int, snapshot: SnapshotAllocation, maps: dict[NameMap, int]
) -> None:
    step = _begin_step(cursor, step, table_id, snapshot)
    if step.stats is not None:
        data_files.write_stats(cursor, table_id, step.stats)
    writer.write_step(cursor, table_id, step, snapshot.first_file_id, snapshot.id)
    idempotency.record_snapshot_txns(cursor, table_id, ((made, snapshot.id) for made in step.snapshots))
    _write_files(cursor, step, table_id, snapshot, maps)
    record_changes(
        cursor, snapshot.id, _build_change_tokens(step, table_id), extra_info=_build_extra_info(step, table_id)
    )


def _begin_step(cursor: Cursor[Row], step: LakeStep, table_id: int, snapshot: SnapshotAllocation) -> LakeStep:
    """Write what must precede the step's additions; return the step with its files' inlined rows."""
    data_files.end_files(cursor, table_id, step, snapshot.id)
    if step.definition or step.creation:
        first_id = snapshot.first_catalog_id + (step.creation is not None)
        definition.write_definition(cursor, table_id, step.definition, snapshot, first_id)
    if step.divides_files and not definition.is_new_schema_version(step.definition):
        definition.insert_schema_version(cursor, table_id, snapshot)
    if step.inlined is None:
        return step
    absorbed = absorbed_rows.insert_absorbed_rows(cursor, table_id, step.inlined, snapshot.id)
    return replace(step, side=replace(step.side, virtual_files=(*step.side.virtual_files, *absorbed)))


def _write_files(
    cursor: Cursor[Row], step: LakeStep, table_id: int, snapshot: SnapshotAllocation, maps: dict[NameMap, int]
) -> None:
    """Give ids to data files, delete files and name maps in this order. maps: those that the table has."""
    first_delete = snapshot.first_file_id + len(step.data_files)
    data_files.write_name_maps(cursor, table_id, step.name_maps, first_delete + len(step.delete_files), maps)
    data_files.write_data_files(cursor, table_id, step, snapshot.first_file_id, maps, snapshot.id)
    data_files.write_delete_files(cursor, table_id, step.delete_files, first_delete, snapshot.id)


def _build_change_tokens(step: LakeStep, table_id: int) -> list[str]:
    made = step.creation
    names = [] if made is None else [quote_name(made.recorded_schema or made.schema_name, made.table_name)]
    return [*(f"created_table:{name}" for name in names), *(f"{kind}:{table_id}" for kind in step.kinds)]


def _build_extra_info(step: LakeStep, table_id: int) -> str | None:
    newest = step.snapshots[-1].snapshot_id if step.snapshots else None
    return None if newest is None else orjson.dumps({"iceberg": {str(table_id): newest}}).decode()


def _finish_change(cursor: Cursor[Row], change: ChangeSet, table_id: int, snapshots: Sequence[int]) -> None:
    """Write the table's row and history. snapshots: those of the steps, or the newest one where there are none."""
    newest, main_step = snapshots[-1], change.main_step
    if change.table_id is None:
        uuid, epoch = find_creation(change).table_uuid, reader.read_epoch(cursor)
        made_at = snapshots[0] if main_step is None else snapshots[main_step]
        writer.insert_table(cursor, table_id, uuid, change.target, made_at, newest, epoch)
    else:
        moved_at = None if main_step is None else snapshots[main_step]
        writer.update_table(cursor, change, table_id, moved_at, newest)
    writer.write_history(cursor, table_id, change.target)
