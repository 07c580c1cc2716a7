"""Write change sets into the catalog in a fixed order of locks (`ducklake-facts.md` §0, design §6.13)."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import orjson
import psycopg
from psycopg import Cursor

from duckicelake.errors import CatalogError
from duckicelake.lake.changes import CatchUpProgress, ChangeSet, Creation, LakeStep, WrittenCommit, shift_snapshot_ids
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import column_names, data_files, definition, native
from duckicelake.lake.ducklake.schemas import check_name_free, check_name_new
from duckicelake.lake.ducklake.snapshots import (
    SnapshotAllocation,
    SnapshotClaim,
    SnapshotCounters,
    claim_snapshot,
    insert_snapshots,
    lock_writers,
    quote_name,
    record_changes,
)
from duckicelake.lake.inlined import inserts as absorbed_rows
from duckicelake.lake.model import NameMap
from duckicelake.lake.side_tables import idempotency, reader, writer, written_files
from duckicelake.lake.writer import bulk_copy
from duckicelake.lake.writer.bases import LastOwnSnapshot, claim_snapshot_after, is_successor, lock_bases, predict_bases
from duckicelake.postgres.database import is_retryable
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "write")


@dataclass(frozen=True, slots=True)
class _BegunChange:
    """A change with the snapshots of its steps, the newest one before, and the schema's id for a creation."""

    change: ChangeSet
    snapshots: tuple[SnapshotAllocation, ...]
    newest: int
    schema_id: int | None


def write_change_set(cursor: Cursor[Row], change: ChangeSet) -> WrittenCommit:
    """Write one client's commit to one table; StaleBaseError if the table changed since it was computed."""
    is_long = bulk_copy.is_long_change(change)
    with cursor.connection.pipeline():
        lock_writers(cursor)
        group = ChangeSetGroup(cursor, [[change]])
        commits = [] if is_long else group.write()
    (written,) = group.write(by_copy=True) if is_long else commits
    if isinstance(written, Exception):
        raise written
    return written[0]


class ChangeSetGroup:
    """Commits, each to one or several tables, that share a transaction, with snapshots of their own in this order.

    The constructor takes a snapshot id and checks all commits; one that doesn't hold any more gets no snapshot.
    `lock_writers` is held, and the connection is best in a pipeline, which saves waits.
    """

    def __init__(
        self, cursor: Cursor[Row], commits: Sequence[Sequence[ChangeSet]], memory: LastOwnSnapshot | None = None
    ) -> None:
        """Take a snapshot id and check the commits.

        memory: the last snapshot of this process; if it serves, no wait comes before COMMIT.
        """
        self._cursor = cursor
        self._memory = memory or LastOwnSnapshot()
        self._claiming: Cursor[Row] | None = None
        last, changes = self._memory.take(), [change for commit in commits for change in commit]
        if last is not None and is_successor(commits, last):
            self._claim_after(changes[0], last)
        else:
            self._ask(changes)
        self._rows: list[SnapshotCounters] = []
        self._taken: set[int | str] = set()
        self._admitted = [self._admit(commit) for commit in commits]

    def _claim_after(self, change: ChangeSet, last: SnapshotCounters) -> None:
        """Claim the snapshot id after this process's last one, and expect the bases of that moment."""
        wanted = _build_claim(change.steps[0])
        self._claiming = claim_snapshot_after(self._cursor, wanted, last, change)
        self._claimed: SnapshotCounters | None = wanted.apply_to(last)[1]
        self._last: SnapshotCounters | None = last
        self._bases = predict_bases(change, last)

    def _ask(self, changes: Sequence[ChangeSet]) -> None:
        """Claim the next snapshot id, if the commits need one, and ask what the tables are then."""
        self._claimed = self._last = None
        steps = [step for change in changes for step in change.steps]
        ask = partial(lock_bases, self._cursor, changes)
        if steps:
            wanted = _build_claim(steps[0])
            self._claimed, _, bases = claim_snapshot(self._cursor, wanted, ask)
            self._last = wanted.revert_from(self._claimed)
        else:
            bases = ask()
        self._bases = bases(self._last.snapshot_id if self._last else native.read_newest_snapshot(self._cursor))

    def write(self, *, by_copy: bool = False) -> list[list[WrittenCommit] | StaleBaseError | CatalogError]:
        """Write the commits; return the outcome of each, or the error that keeps it from being written.

        Raises errors of the whole group, and the first commit's error if no commit can use the claimed snapshot id: it
        must not stay. by_copy: the commits are long, and the connection has left its pipeline.
        """
        if self._claimed is not None and not self._rows:
            raise next(outcome for outcome in self._admitted if isinstance(outcome, Exception))
        if self._claimed is not None:
            insert_snapshots(self._cursor, self._claimed, self._rows)
        return [
            outcome
            if isinstance(outcome, Exception)
            else [_write_begun(self._cursor, begun, by_copy=by_copy) for begun in outcome]
            for outcome in self._admitted
        ]

    def finish(self) -> None:
        """Do nothing: `write` has written all."""

    def remember_snapshot(self) -> None:
        """Remember the last snapshot."""
        row = self._claiming.fetchone() if self._claiming is not None else None
        if row is not None:
            self._memory.put(SnapshotCounters(*row))
        elif self._rows:
            self._memory.put(self._rows[-1])

    def _admit(self, commit: Sequence[ChangeSet]) -> list[_BegunChange] | StaleBaseError | CatalogError:
        rows, last = len(self._rows), self._last
        try:
            begun = [self._begin(change, commit[:index]) for index, change in enumerate(commit)]
        except (StaleBaseError, CatalogError) as error:
            del self._rows[rows:]
            self._last = last
            return error
        self._taken.update(map(_get_identity, commit))
        return begun

    def _begin(self, change: ChangeSet, before: Sequence[ChangeSet]) -> _BegunChange:
        """Check a change and allocate its snapshots. before: the earlier changes of the same commit."""
        if _get_identity(change) in self._taken:
            raise StaleBaseError(f"table {_get_identity(change)} is another commit's in the same transaction")
        schema_id = None
        if change.table_id is None:
            creation = _find_creation(change)
            schema_id, recorded = check_name_free(self._cursor, creation.schema_name, creation.table_name)
            check_name_new(_get_new_name(change), [_get_new_name(other) for other in before if other.table_id is None])
            first = replace(change.steps[0], creation=replace(creation, recorded_schema=recorded))
            change = replace(change, steps=(first, *change.steps[1:]))
        elif (problem := self._bases.find_problem(change)) is not None:
            raise StaleBaseError(problem)
        change = self._shift_ids(change)
        return _BegunChange(change, tuple(map(self._snapshot, change.steps)), self._bases.newest, schema_id)

    def _shift_ids(self, change: ChangeSet) -> ChangeSet:
        """Return the change with the snapshot ids that it gets. Raises StaleBaseError if it must be computed again."""
        expected = change.steps[0].ducklake_id if change.steps else None
        if expected is None or self._last is None or expected == self._last.snapshot_id + 1:
            return change
        numbered = shift_snapshot_ids(change, self._last.snapshot_id + 1 - expected)
        if numbered is None:
            raise StaleBaseError(
                f"computed for DuckLake snapshot {expected}, but {self._last.snapshot_id + 1} was assigned"
            )
        return numbered

    def _snapshot(self, step: LakeStep) -> SnapshotAllocation:
        assert self._last is not None
        made, self._last = _build_claim(step).apply_to(self._last)
        if step.ducklake_id not in (None, made.id):
            raise StaleBaseError(f"computed for DuckLake snapshot {step.ducklake_id}, but {made.id} was assigned")
        self._rows.append(self._last)
        return made


def _build_claim(step: LakeStep) -> SnapshotClaim:
    return SnapshotClaim(
        schema_change=bool(step.definition)
        or step.creation is not None
        or step.divides_files
        or step.has_new_inlined_table,
        catalog_ids=definition.count_catalog_ids(step.definition) + (step.creation is not None),
        file_ids=step.file_ids,
    )


def _write_begun(cursor: Cursor[Row], begun: _BegunChange, *, by_copy: bool) -> WrittenCommit:
    change, snapshots = begun.change, begun.snapshots
    ids = tuple(snapshot.id for snapshot in snapshots)
    table_id = change.table_id
    if table_id is None:
        assert begun.schema_id is not None
        table_id, at = snapshots[0].first_catalog_id, snapshots[0].id
        definition.create_table(cursor, _find_creation(change), table_id, begun.schema_id, at)
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
    return column_names.read_newest_name_maps(cursor, change.table_id)


def _find_creation(change: ChangeSet) -> Creation:
    creation = change.steps[0].creation
    assert creation is not None
    return creation


def _get_new_name(change: ChangeSet) -> tuple[str, str]:
    creation = _find_creation(change)
    return creation.schema_name, creation.table_name


def _get_identity(change: ChangeSet) -> int | str:
    """Return the table's id, or the name of one that is created, which must be unique."""
    if change.table_id is not None:
        return change.table_id
    creation = _find_creation(change)
    return f"{creation.schema_name}.{creation.table_name}".lower()


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
    idempotency.record_runs(cursor, table_id, step.snapshots)
    idempotency.record_snapshot_txns(cursor, table_id, step.snapshots, snapshot.id)
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
    return absorbed_rows.insert_absorbed_rows(cursor, table_id, step, snapshot.id)


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
        uuid, epoch = _find_creation(change).table_uuid, reader.read_epoch(cursor)
        made_at = snapshots[0] if main_step is None else snapshots[main_step]
        writer.insert_table(cursor, table_id, uuid, change.target, made_at, newest, epoch)
    else:
        moved_at = None if main_step is None else snapshots[main_step]
        writer.update_table(cursor, change, table_id, moved_at, newest)
    writer.write_history(cursor, table_id, change.target)
