"""Writes ChangeSets into the catalog, by DuckLake's commit protocol (`ducklake-facts.md` §0, design §6.13).

The order of locks is fixed: our advisory lock, a snapshot row, the tables' side rows by id, then DuckLake's tables.
Whatever a change was computed from is checked after a snapshot row is ours, when nobody else can commit any more.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import orjson
import psycopg
from psycopg import Cursor

from duckicelake.errors import CatalogError
from duckicelake.lake import artifacts, native, reader, runs
from duckicelake.lake.changes import ChangeSet, Creation, LakeStep, Progress, Written
from duckicelake.lake.model import NameMap
from duckicelake.lake.names import check_name_is_free, check_name_is_new
from duckicelake.lake.postgres.database import Row, is_retryable
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.rows import absorbed as absorbed_rows
from duckicelake.lake.rows import producers
from duckicelake.lake.snapshots import (
    Counters,
    NewSnapshot,
    Wanted,
    claim,
    insert_snapshots,
    lock,
    quoted,
    record_changes,
)
from duckicelake.lake.writing import copying, definition, files, long_changes, side_tables
from duckicelake.lake.writing.bases import lock_bases
from duckicelake.lake.writing.files import StaleBase
from duckicelake.lake.writing.following import LastSnapshot, bases_of, claim_after, follows
from duckicelake.lake.writing.late_numbers import at_later

_SQL = queries("write")


@dataclass(frozen=True, slots=True)
class _Begun:
    """A change with the snapshots of its steps, and where there are none the newest one; `schema_id` of a creation."""

    change: ChangeSet
    snapshots: tuple[NewSnapshot, ...]
    newest: int
    schema_id: int | None


def write(cursor: Cursor[Row], change: ChangeSet) -> Written:
    """Write one client's commit to one table; StaleBase if the table changed since it was computed."""
    is_long = long_changes.is_long(change)
    with cursor.connection.pipeline():
        lock(cursor)
        group = Group(cursor, [[change]])
        commits = [] if is_long else group.write()
    (written,) = group.write(by_copy=True) if is_long else commits
    if isinstance(written, Exception):
        raise written
    return written[0]


class Group:
    """Commits, each to one or several tables, that share a transaction, with snapshots of their own in this order.

    To make one takes a snapshot id and checks all of them; one that doesn't hold any more gets no snapshot. `lock` is
    held, and the connection is best in a pipeline: then little is waited for.
    """

    def __init__(
        self, cursor: Cursor[Row], commits: Sequence[Sequence[ChangeSet]], memory: LastSnapshot | None = None
    ) -> None:
        """memory: of the last snapshot of this process; if that serves, nothing is waited for before COMMIT."""
        self._cursor = cursor
        self._memory = memory or LastSnapshot()
        self._claiming: Cursor[Row] | None = None
        last, changes = self._memory.take(), [change for commit in commits for change in commit]
        if last is not None and follows(commits, last):
            self._follow(changes[0], last)
        else:
            self._ask(changes)
        self._rows: list[Counters] = []
        self._taken: set[int | str] = set()
        self._admitted = [self._admit(commit) for commit in commits]

    def _follow(self, change: ChangeSet, last: Counters) -> None:
        """Take the snapshot id after this process's last one, and go on from what it must be then."""
        wanted = _wanted(change.steps[0])
        self._claiming = claim_after(self._cursor, wanted, last, change)
        self._claimed: Counters | None = wanted.after(last)[1]
        self._last: Counters | None = last
        self._bases = bases_of(change, last)

    def _ask(self, changes: Sequence[ChangeSet]) -> None:
        """Take the next snapshot id, if one is wanted, and hear what the tables are then."""
        self._claimed = self._last = None
        steps = [step for change in changes for step in change.steps]
        ask = partial(lock_bases, self._cursor, changes)
        if steps:
            wanted = _wanted(steps[0])
            self._claimed, _, bases = claim(self._cursor, wanted, ask)
            self._last = wanted.before(self._claimed)
        else:
            bases = ask()
        self._bases = bases(self._last.snapshot_id if self._last else native.newest_snapshot(self._cursor))

    def write(self, *, by_copy: bool = False) -> list[list[Written] | StaleBase | CatalogError]:
        """Write them; in the place of one that can't be written is why. What is raised is of all of them.

        The first reason is raised if the snapshot id is of no use to those that hold: it must not stay. by_copy: they
        are long, and the connection isn't in a pipeline any more.
        """
        if self._claimed is not None and not self._rows:
            raise next(each for each in self._admitted if isinstance(each, Exception))
        if self._claimed is not None:
            insert_snapshots(self._cursor, self._claimed, self._rows)
        return [
            each if isinstance(each, Exception) else [_write(self._cursor, begun, by_copy=by_copy) for begun in each]
            for each in self._admitted
        ]

    def finish(self) -> None:
        """Nothing: all is written."""

    def committed(self) -> None:
        """Have the last snapshot remembered."""
        row = self._claiming.fetchone() if self._claiming is not None else None
        if row is not None:
            self._memory.put(Counters(*row))
        elif self._rows:
            self._memory.put(self._rows[-1])

    def _admit(self, commit: Sequence[ChangeSet]) -> list[_Begun] | StaleBase | CatalogError:
        rows, last = len(self._rows), self._last
        try:
            begun = [self._begin(change, commit[:index]) for index, change in enumerate(commit)]
        except (StaleBase, CatalogError) as error:
            del self._rows[rows:]
            self._last = last
            return error
        self._taken.update(map(_identity, commit))
        return begun

    def _begin(self, change: ChangeSet, before: Sequence[ChangeSet]) -> _Begun:
        """`before` are those of the same commit that come before."""
        if _identity(change) in self._taken:
            raise StaleBase(f"table {_identity(change)} is another commit's in the same transaction")
        schema_id = None
        if change.table_id is None:
            creation = _creation_of(change)
            schema_id = check_name_is_free(self._cursor, creation.schema_name, creation.table_name)
            check_name_is_new(_name_of(change), [_name_of(each) for each in before if each.table_id is None])
        elif (problem := self._bases.problem(change)) is not None:
            raise StaleBase(problem)
        change = self._numbered(change)
        return _Begun(change, tuple(map(self._snapshot, change.steps)), self._bases.newest, schema_id)

    def _numbered(self, change: ChangeSet) -> ChangeSet:
        """The change for the snapshot ids that it gets; StaleBase if it has to be computed again for them."""
        expected = change.steps[0].ducklake_id if change.steps else None
        if expected is None or self._last is None or expected == self._last.snapshot_id + 1:
            return change
        numbered = at_later(change, self._last.snapshot_id + 1 - expected)
        if numbered is None:
            raise StaleBase(f"computed for DuckLake snapshot {expected}, but {self._last.snapshot_id + 1} was assigned")
        return numbered

    def _snapshot(self, step: LakeStep) -> NewSnapshot:
        assert self._last is not None
        made, self._last = _wanted(step).after(self._last)
        if step.ducklake_id not in (None, made.id):
            raise StaleBase(f"computed for DuckLake snapshot {step.ducklake_id}, but {made.id} was assigned")
        self._rows.append(self._last)
        return made


def _wanted(step: LakeStep) -> Wanted:
    return Wanted(
        schema_change=bool(step.definition) or step.creation is not None or step.divides_files or step.makes_inlined,
        catalog_ids=definition.catalog_ids(step.definition) + (step.creation is not None),
        file_ids=step.file_ids,
    )


def _write(cursor: Cursor[Row], begun: _Begun, *, by_copy: bool) -> Written:
    change, snapshots = begun.change, begun.snapshots
    ids = tuple(snapshot.id for snapshot in snapshots)
    table_id = change.table_id
    if table_id is None:
        assert begun.schema_id is not None
        table_id, at = snapshots[0].first_catalog_id, snapshots[0].id
        definition.create_table(cursor, _creation_of(change), table_id, begun.schema_id, at)
    side_tables.give_row_ids(cursor, change.row_ids)
    maps = _name_maps(cursor, change)
    steps = list(zip(change.steps, snapshots, strict=True))
    if by_copy:
        _write_runs(cursor, steps, table_id, maps)
    else:
        for step, snapshot in steps:
            _write_step(cursor, step, table_id, snapshot, maps)
    _finish(cursor, change, table_id, ids or (begun.newest,))
    written = Written(table_id, ids, ids[-1] if ids else begun.newest, change)
    ready = change.files if change.files is not None and change.files.fit(written) else None
    if ready is not None:
        artifacts.record_with(cursor, table_id, ready.files)
    elif change.table_id is not None:
        artifacts.forget_lists(cursor, table_id, [each.snapshot_id for step in change.steps for each in step.snapshots])
    paths = [file.path for step in change.steps for file in step.side.files]
    paths += [file.path for step in change.steps for file in step.data_files if not file.path_is_relative]
    side_tables.unschedule(cursor, [*paths, *(file.path for file in (ready.files if ready else ()))])
    return replace(written, has_files=ready is not None)


def _name_maps(cursor: Cursor[Row], change: ChangeSet) -> dict[NameMap, int]:
    """Those that the table has, if the change needs any."""
    if change.table_id is None or not any(step.name_maps for step in change.steps):
        return {}
    return native.newest_name_maps(cursor, change.table_id)


def _creation_of(change: ChangeSet) -> Creation:
    creation = change.steps[0].creation
    assert creation is not None
    return creation


def _name_of(change: ChangeSet) -> tuple[str, str]:
    creation = _creation_of(change)
    return creation.schema_name, creation.table_name


def _identity(change: ChangeSet) -> int | str:
    """The table's id, or what must be unique of one that is created."""
    if change.table_id is not None:
        return change.table_id
    creation = _creation_of(change)
    return f"{creation.schema_name}.{creation.table_name}".lower()


def write_caught_up(cursor: Cursor[Row], change: ChangeSet, progress: Progress) -> None:
    """Write what catching up found: side tables only, no DuckLake snapshot. StaleBase if another worker was first.

    The rows that may be many come first: who has locked a table's row makes commits to it wait, and so all others.
    """
    assert change.table_id is not None
    is_long = long_changes.is_long(change)
    with nullcontext() if is_long else cursor.connection.pipeline():
        row = _write_and_lock(cursor, change, change.table_id, by_copy=is_long)
        if row != (change.base_version, change.caught_up_to):
            raise StaleBase(f"table {change.table_id} was caught up by another worker")
        side_tables.hold_longer(cursor, change.table_id)
        for held in (step.hold for step in change.steps if step.hold is not None):
            side_tables.hold(cursor, change.table_id, held)
        realised = change.steps[-1].ducklake_id if change.steps else None
        side_tables.update_table(cursor, change, change.table_id, realised, progress.upto)
        if is_long:
            copying.copy_log(cursor, change.table_id, change.target.log_added)
        target = replace(change.target, log_added=()) if is_long else change.target
        side_tables.write_history(cursor, change.table_id, target)
        side_tables.see_deletes(cursor, change.table_id, progress.seen_deletes)
        cursor.execute(_SQL.set_epoch, {"table_id": change.table_id, "epoch": progress.epoch})


def _write_and_lock(cursor: Cursor[Row], change: ChangeSet, table_id: int, *, by_copy: bool) -> Row | None:
    """The version and progress of the table once its new rows are there."""
    try:
        if by_copy:
            copying.copy_steps(cursor, table_id, change.steps)
        else:
            for step in change.steps:
                assert step.ducklake_id is not None
                side_tables.write_step(cursor, table_id, step, 0, step.ducklake_id)
        return cursor.execute(_SQL.lock_table, {"table_id": table_id}).fetchone()
    except psycopg.Error as error:
        if not is_retryable(error):
            raise
        raise StaleBase(f"table {table_id} was caught up by another worker") from error


def advance(cursor: Cursor[Row], table_id: int, after: int, progress: Progress) -> None:
    """Note that nothing since `after` changes what Iceberg clients see of the table; StaleBase if others were first."""
    parameters = {"table_id": table_id, "after": after, "upto": progress.upto, "epoch": progress.epoch}
    if not cursor.execute(_SQL.advance, parameters).rowcount:
        raise StaleBase(f"table {table_id} was caught up by another worker")
    side_tables.hold_longer(cursor, table_id)
    side_tables.see_deletes(cursor, table_id, progress.seen_deletes)


def release(cursor: Cursor[Row], table_id: int) -> Counters | None:
    """Have DuckDB's next cleanup delete what only snapshots held that left history; None if there is nothing.

    Takes ids for the files from DuckLake's counter, with a snapshot that changes nothing (design §6.1), whose row is
    returned. A table that says `gc.enabled=false` lets go of nothing: another catalog may need the files.
    """
    lock(cursor)
    if side_tables.is_guarded(cursor, table_id):
        return None
    paths = side_tables.forget_unlisted(cursor, table_id)
    if not paths:
        return None
    made, *_ = claim(cursor, Wanted(schema_change=False, file_ids=len(paths)), lambda: None)
    side_tables.schedule(cursor, paths, made.next_file_id - len(paths))
    record_changes(cursor, made.snapshot_id, [])
    return made


def check_base(cursor: Cursor[Row], table_id: int, expected: tuple[int, int], upto: int) -> None:
    """StaleBase unless the table has this (version, progress) and no DuckDB client changed it up to a snapshot."""
    row = cursor.execute(_SQL.lock_table, {"table_id": table_id}).fetchone()
    if row != expected:
        raise StaleBase(f"table {table_id} is at version and progress {row}")
    if native.changes(cursor, table_id, expected[1], upto):
        raise StaleBase(f"DuckDB changed table {table_id}")


def _write_runs(
    cursor: Cursor[Row],
    steps: Sequence[tuple[LakeStep, NewSnapshot]],
    table_id: int,
    maps: dict[NameMap, int],
) -> None:
    for (first, snapshot), *others in long_changes.together(steps):
        run = [(_begin_step(cursor, first, table_id, snapshot), snapshot), *others]
        long_changes.write(cursor, table_id, run, maps)
        said = ((made.id, _tokens(step, table_id), _extra_info(step, table_id)) for step, made in run)
        copying.copy_changes(cursor, said)


def _write_step(
    cursor: Cursor[Row], step: LakeStep, table_id: int, snapshot: NewSnapshot, maps: dict[NameMap, int]
) -> None:
    step = _begin_step(cursor, step, table_id, snapshot)
    if step.stats is not None:
        files.write_stats(cursor, table_id, step.stats)
    side_tables.write_step(cursor, table_id, step, snapshot.first_file_id, snapshot.id)
    runs.note(cursor, table_id, step.snapshots)
    producers.note_snapshots(cursor, table_id, step.snapshots, snapshot.id)
    _write_files(cursor, step, table_id, snapshot, maps)
    record_changes(cursor, snapshot.id, _tokens(step, table_id), extra_info=_extra_info(step, table_id))


def _begin_step(cursor: Cursor[Row], step: LakeStep, table_id: int, snapshot: NewSnapshot) -> LakeStep:
    """Write what must be there before what the step adds; the step with what its files hold of inlined rows."""
    files.end_files(cursor, table_id, step, snapshot.id)
    if step.definition or step.creation:
        first_id = snapshot.first_catalog_id + (step.creation is not None)
        definition.write_definition(cursor, table_id, step.definition, snapshot, first_id)
    if step.divides_files and not definition.begins_version(step.definition):
        definition.name_version(cursor, table_id, snapshot)
    return absorbed_rows.insert(cursor, table_id, step, snapshot.id)


def _write_files(
    cursor: Cursor[Row], step: LakeStep, table_id: int, snapshot: NewSnapshot, maps: dict[NameMap, int]
) -> None:
    """Ids are given to data files, delete files and name maps in this order; `maps` are those that the table has."""
    first_delete = snapshot.first_file_id + len(step.data_files)
    files.write_name_maps(cursor, table_id, step.name_maps, first_delete + len(step.delete_files), maps)
    files.write_data_files(cursor, table_id, step, snapshot.first_file_id, maps, snapshot.id)
    files.write_delete_files(cursor, table_id, step.delete_files, first_delete, snapshot.id)


def _tokens(step: LakeStep, table_id: int) -> list[str]:
    created = [_created(step.creation)] if step.creation else []
    return created + [f"{kind}:{table_id}" for kind in step.kinds]


def _extra_info(step: LakeStep, table_id: int) -> str | None:
    newest = step.snapshots[-1].snapshot_id if step.snapshots else None
    return None if newest is None else orjson.dumps({"iceberg": {str(table_id): newest}}).decode()


def _created(creation: Creation) -> str:
    return f"created_table:{quoted(creation.schema_name, creation.table_name)}"


def _finish(cursor: Cursor[Row], change: ChangeSet, table_id: int, snapshots: Sequence[int]) -> None:
    """`snapshots` are those of the steps, or the newest one where there are no steps."""
    newest, main_step = snapshots[-1], change.main_step
    if change.table_id is None:
        uuid, epoch = _creation_of(change).table_uuid, reader.epoch(cursor)
        realised = snapshots[0] if main_step is None else snapshots[main_step]
        side_tables.insert_table(cursor, table_id, uuid, change.target, realised, newest, epoch)
    else:
        moved_at = None if main_step is None else snapshots[main_step]
        side_tables.update_table(cursor, change, table_id, moved_at, newest)
    side_tables.write_history(cursor, table_id, change.target)
