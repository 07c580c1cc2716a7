"""Write a change set into the catalog in a fixed order of locks (`ducklake-facts.md` §0, design §6.13)."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain

import orjson
import psycopg
from psycopg import Cursor

from duckicelake.lake.changes import CatchUpProgress, ChangeSet, Creation, LakeStep, VersionFiles, WrittenCommit
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import data_files, definition, native
from duckicelake.lake.ducklake.snapshots import (
    SnapshotAllocation,
    SnapshotClaim,
    SnapshotCounters,
    build_changes,
    claim_snapshot,
    lock_writers,
    quote_name,
    record_changes,
)
from duckicelake.lake.inlined import inserts as absorbed_rows
from duckicelake.lake.model import NameMap
from duckicelake.lake.side_tables import idempotency, reader, writer
from duckicelake.lake.writer import bulk_copy
from duckicelake.postgres.failures import is_retryable
from duckicelake.postgres.pipeline import Write, execute_writes
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "write")


def write_change(
    cursor: Cursor[Row],
    change: ChangeSet,
    snapshots: Sequence[SnapshotAllocation],
    newest_before: int,
    schema_id: int | None,
    *,
    by_copy: bool,
) -> WrittenCommit:
    """Write a change.

    Args:
        cursor: in the transaction that has claimed the snapshots.
        change: with the numbers of the snapshots.
        snapshots: those of the change's steps.
        newest_before: the newest snapshot before this transaction.
        schema_id: of a creation, the schema's id.
        by_copy: the change is long, and the connection has left its pipeline.

    """
    ids = tuple(snapshot.id for snapshot in snapshots)
    table_id = change.table_id
    if table_id is None:
        assert schema_id is not None
        table_id, at = snapshots[0].first_catalog_id, snapshots[0].id
        definition.create_table(cursor, find_creation(change), table_id, schema_id, at)
    if change.options:
        definition.write_options(cursor, table_id, change.options)
    if change.row_ids:
        writer.write_row_ids(cursor, change.row_ids)
    maps = _read_name_maps(cursor, change)
    steps = list(zip(change.steps, snapshots, strict=True))
    writes = (_write_runs if by_copy else _write_steps)(cursor, steps, table_id, maps)
    newest = ids[-1] if ids else newest_before
    moved_at = ids[change.main_step] if change.main_step is not None else None
    ready = change.files
    if ready is not None and (ready.snapshots, ready.caught_up_to) != (ids, newest):
        ready = None
    if change.table_id is None:
        execute_writes(cursor, writes)
        uuid, epoch = find_creation(change).table_uuid, reader.read_epoch(cursor)
        writer.insert_table(cursor, table_id, uuid, change.target, moved_at or ids[0], newest, epoch)
        writes = writer.build_history(table_id, change.target)
    else:
        writes += writer.build_version(table_id, change, moved_at, newest, ready)
    execute_writes(cursor, chain(writes, writer.build_cancellations(_list_paths(change, ready))))
    return WrittenCommit(table_id, ids, newest, change, has_files=ready is not None)


def _list_paths(change: ChangeSet, ready: VersionFiles | None) -> Iterator[str]:
    """List the files that the table has from now on, and those of its next version that are `ready`."""
    return chain(
        (file.path for step in change.steps for file in step.side.files),
        (file.path for step in change.steps for file in step.data_files if not file.path_is_relative),
        (file.path for file in (ready.files if ready else ())),
    )


def _read_name_maps(cursor: Cursor[Row], change: ChangeSet) -> dict[NameMap, int]:
    """Read the maps that the table has, if the change needs any."""
    if change.table_id is None or all(file.name_map is None for step in change.steps for file in step.data_files):
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
        execute_writes(cursor, [writer.build_table_update(change, change.table_id, moved_at, progress.upto)])
        if is_long:
            bulk_copy.copy_log(cursor, change.table_id, change.target.log_added)
        target = replace(change.target, log_added=()) if is_long else change.target
        execute_writes(cursor, writer.build_history(change.table_id, target))
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
                execute_writes(cursor, writer.build_step(table_id, step, 0, step.ducklake_id))
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
) -> list[Write]:
    """Write steps by COPY; nothing is left to write."""
    for (first, snapshot), *others in bulk_copy.group_steps(steps):
        run = [(_begin_step(cursor, first, table_id, snapshot), snapshot), *others]
        bulk_copy.write_steps_by_copy(cursor, table_id, run, maps)
        said = (
            (made.id, _build_change_tokens(step, table_id), _build_extra_info(step, table_id)) for step, made in run
        )
        bulk_copy.copy_changes(cursor, said)
    return []


def _write_steps(
    cursor: Cursor[Row],
    steps: Sequence[tuple[LakeStep, SnapshotAllocation]],
    table_id: int,
    maps: dict[NameMap, int],
) -> list[Write]:
    """Write steps in order, as one may end files of the step before; return what is left to write of the last one."""
    writes: list[Write] = []
    for step, snapshot in steps:
        if writes:
            execute_writes(cursor, writes)
        writes = _write_step(cursor, step, table_id, snapshot, maps)
    return writes


def _write_step(
    cursor: Cursor[Row], step: LakeStep, table_id: int, snapshot: SnapshotAllocation, maps: dict[NameMap, int]
) -> list[Write]:
    """Begin a step, and return what is to be written for it besides."""
    step = _begin_step(cursor, step, table_id, snapshot)
    idempotency.record_snapshot_txns(cursor, table_id, ((made, snapshot.id) for made in step.snapshots))
    tokens, extra_info = _build_change_tokens(step, table_id), _build_extra_info(step, table_id)
    return [
        *writer.build_step(table_id, step, snapshot.first_file_id, snapshot.id),
        *data_files.build_files(table_id, step, snapshot.first_file_id, maps, snapshot.id),
        build_changes(snapshot.id, tokens, extra_info=extra_info),
    ]


def _begin_step(cursor: Cursor[Row], step: LakeStep, table_id: int, snapshot: SnapshotAllocation) -> LakeStep:
    """Write what must precede the step's additions; return the step with its files' inlined rows."""
    if step.ended_files or step.ended_rows:
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


def _build_change_tokens(step: LakeStep, table_id: int) -> list[str]:
    made = step.creation
    names = [] if made is None else [quote_name(made.recorded_schema or made.schema_name, made.table_name)]
    return [*(f"created_table:{name}" for name in names), *(f"{kind}:{table_id}" for kind in step.kinds)]


def _build_extra_info(step: LakeStep, table_id: int) -> str | None:
    newest = step.snapshots[-1].snapshot_id if step.snapshots else None
    return None if newest is None else orjson.dumps({"iceberg": {str(table_id): newest}}).decode()
