"""Writes one ChangeSet into the catalog, by DuckLake's commit protocol (`ducklake-facts.md` §0, design §6.13).

The order of locks is fixed: our advisory lock, the snapshot row, the table's side row, then DuckLake's tables. Whatever
the change was computed from is checked after the snapshot row is ours, when nobody else can commit any more.
"""

from collections.abc import Sequence

import orjson
from psycopg import Cursor

from duckicelake.lake import definition, files, native, reader, side_tables
from duckicelake.lake.changes import ChangeSet, Creation, LakeStep, Progress
from duckicelake.lake.database import Row
from duckicelake.lake.files import StaleBase
from duckicelake.lake.names import check_name_is_free
from duckicelake.lake.queries import queries
from duckicelake.lake.snapshots import NewSnapshot, begin_snapshot, lock, quoted, record_changes

_SQL = queries("write")


def write(cursor: Cursor[Row], change: ChangeSet) -> int:
    """Write a client's commit and return the table id; StaleBase if the table changed since it was computed."""
    lock(cursor)
    snapshots = [_begin(cursor, step) for step in change.steps]
    table_id = change.table_id
    upto = snapshots[0].id - 1 if snapshots else native.newest_snapshot(cursor)
    if table_id is None:
        table_id = _create(cursor, change.steps[0], snapshots[0])
    else:
        check_base(cursor, table_id, (change.base_version, change.caught_up_to), upto)
    side_tables.give_row_ids(cursor, change.row_ids)
    for step, snapshot in zip(change.steps, snapshots, strict=True):
        _write_step(cursor, step, table_id, snapshot)
    _finish(cursor, change, table_id, [snapshot.id for snapshot in snapshots] or [upto])
    side_tables.unschedule(cursor, [file.path for step in change.steps for file in step.side.files])
    return table_id


def write_caught_up(cursor: Cursor[Row], change: ChangeSet, progress: Progress) -> None:
    """Write what catching up found: side tables only, no DuckLake snapshot. StaleBase if another worker was first."""
    assert change.table_id is not None
    row = cursor.execute(_SQL.lock_table, {"table_id": change.table_id}).fetchone()
    if row != (change.base_version, change.caught_up_to):
        raise StaleBase(f"table {change.table_id} was caught up by another worker")
    ducklake_id = _realised(cursor, change.table_id)
    side_tables.hold_longer(cursor, change.table_id)
    for step in change.steps:
        side_tables.write_side_files(cursor, change.table_id, step.side)
        for snapshot in step.snapshots:
            assert step.ducklake_id is not None
            ducklake_id = step.ducklake_id
            side_tables.write_snapshot(cursor, change.table_id, snapshot, ducklake_id)
        if step.hold is not None:
            side_tables.hold(cursor, change.table_id, step.hold)
    side_tables.update_table(cursor, change.table_id, change.target, ducklake_id, progress.upto)
    side_tables.write_history(cursor, change.table_id, change.target)
    side_tables.see_deletes(cursor, change.table_id, progress.seen_deletes)
    cursor.execute(_SQL.set_epoch, {"table_id": change.table_id, "epoch": progress.epoch})


def advance(cursor: Cursor[Row], table_id: int, after: int, progress: Progress) -> None:
    """Note that nothing since `after` changes what Iceberg clients see of the table; StaleBase if others were first."""
    parameters = {"table_id": table_id, "after": after, "upto": progress.upto, "epoch": progress.epoch}
    if not cursor.execute(_SQL.advance, parameters).rowcount:
        raise StaleBase(f"table {table_id} was caught up by another worker")
    side_tables.hold_longer(cursor, table_id)
    side_tables.see_deletes(cursor, table_id, progress.seen_deletes)


def release(cursor: Cursor[Row], table_id: int) -> int:
    """Let go of what snapshots that left history held; how many files DuckDB's next cleanup will delete.

    Takes ids for them from DuckLake's counter, with a snapshot that changes nothing (design §6.1).
    """
    lock(cursor)
    paths = side_tables.forget_unlisted(cursor, table_id)
    if paths:
        snapshot = begin_snapshot(cursor, schema_change=False, file_ids=len(paths))
        side_tables.schedule(cursor, paths, snapshot.first_file_id)
        record_changes(cursor, snapshot.id, [])
    return len(paths)


def _begin(cursor: Cursor[Row], step: LakeStep) -> NewSnapshot:
    changes_schema = bool(step.definition) or step.creation is not None or step.divides_files
    catalog_ids = definition.catalog_ids(step.definition) + (step.creation is not None)
    snapshot = begin_snapshot(cursor, schema_change=changes_schema, catalog_ids=catalog_ids, file_ids=step.file_ids)
    if step.ducklake_id is not None and step.ducklake_id != snapshot.id:
        raise StaleBase(f"computed for DuckLake snapshot {step.ducklake_id}, but {snapshot.id} was assigned")
    return snapshot


def check_base(cursor: Cursor[Row], table_id: int, expected: tuple[int, int], upto: int) -> None:
    """StaleBase unless the table has this (version, progress) and no DuckDB client changed it up to a snapshot."""
    row = cursor.execute(_SQL.lock_table, {"table_id": table_id}).fetchone()
    if row != expected:
        raise StaleBase(f"table {table_id} is at version and progress {row}")
    if native.changes(cursor, table_id, expected[1], upto):
        raise StaleBase(f"DuckDB changed table {table_id}")


def _create(cursor: Cursor[Row], step: LakeStep, snapshot: NewSnapshot) -> int:
    assert step.creation is not None
    schema_id = check_name_is_free(cursor, step.creation.schema_name, step.creation.table_name)
    definition.create_table(cursor, step.creation, snapshot.first_catalog_id, schema_id, snapshot.id)
    return snapshot.first_catalog_id


def _write_step(cursor: Cursor[Row], step: LakeStep, table_id: int, snapshot: NewSnapshot) -> None:
    files.end_files(cursor, table_id, step, snapshot.id)
    if step.definition or step.creation:
        first_id = snapshot.first_catalog_id + (step.creation is not None)
        definition.write_definition(cursor, table_id, step.definition, snapshot, first_id)
    if step.divides_files and not definition.begins_version(step.definition):
        definition.name_version(cursor, table_id, snapshot)
    if step.stats is not None:
        files.write_stats(cursor, table_id, step.stats)
    side_tables.write_side_files(cursor, table_id, step.side)
    _write_files(cursor, step, table_id, snapshot)
    for made in step.snapshots:
        side_tables.write_snapshot(cursor, table_id, made, snapshot.id)
    newest = step.snapshots[-1].snapshot_id if step.snapshots else None
    extra_info = orjson.dumps({"iceberg": {str(table_id): newest}}).decode() if newest is not None else None
    record_changes(cursor, snapshot.id, _tokens(step, table_id), extra_info=extra_info)


def _write_files(cursor: Cursor[Row], step: LakeStep, table_id: int, snapshot: NewSnapshot) -> None:
    """Ids are given to data files, delete files and name maps in this order."""
    first_delete = snapshot.first_file_id + len(step.data_files)
    maps = files.write_name_maps(cursor, table_id, step.name_maps, first_delete + len(step.delete_files))
    files.write_data_files(cursor, table_id, step.data_files, maps, snapshot)
    files.write_delete_files(cursor, table_id, step.delete_files, first_delete, snapshot.id)


def _tokens(step: LakeStep, table_id: int) -> list[str]:
    created = [_created(step.creation)] if step.creation else []
    return created + [f"{kind}:{table_id}" for kind in step.kinds]


def _created(creation: Creation) -> str:
    return f"created_table:{quoted(creation.schema_name, creation.table_name)}"


def _finish(cursor: Cursor[Row], change: ChangeSet, table_id: int, snapshots: Sequence[int]) -> None:
    """`snapshots` are those of the steps, or the newest one where there are no steps."""
    newest, main_step = snapshots[-1], change.main_step
    if change.table_id is None:
        creation = change.steps[0].creation
        assert creation is not None
        epoch = reader.epoch(cursor)
        realised = snapshots[0] if main_step is None else snapshots[main_step]
        side_tables.insert_table(cursor, table_id, creation.table_uuid, change.target, realised, newest, epoch)
    else:
        realised = _realised(cursor, table_id) if main_step is None else snapshots[main_step]
        side_tables.update_table(cursor, table_id, change.target, realised, newest)
    side_tables.write_history(cursor, table_id, change.target)


def _realised(cursor: Cursor[Row], table_id: int) -> int:
    row = cursor.execute(_SQL.table_ducklake_id, {"table_id": table_id}).fetchone()
    assert row is not None
    return int(row[0])
