"""Groups of commits in one transaction: claim snapshot ids, and check that nothing changed since they were computed."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

from psycopg import Cursor

from duckicelake.errors import CatalogError, ReadOnlyTableError
from duckicelake.lake.changes import ChangeSet, LakeStep, WrittenCommit, shift_snapshot_ids
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.native import parse_kinds
from duckicelake.lake.ducklake.schemas import check_name_free, check_name_new
from duckicelake.lake.ducklake.snapshots import (
    SnapshotAllocation,
    SnapshotClaim,
    SnapshotCounters,
    claim_snapshot,
    insert_snapshots,
    lock_writers,
)
from duckicelake.lake.inlined.last_commit import CommittedState, LastCommit
from duckicelake.lake.writer import bulk_copy
from duckicelake.lake.writer.change_sets import find_creation, write_change
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "write")
WriteChange = Callable[..., WrittenCommit]
"""Writes a change whose snapshots are claimed; takes `by_copy`."""


@dataclass(frozen=True, slots=True)
class CommitBases:
    """The tables of some changes as they are at the newest DuckLake snapshot.

    `versions` are (version, progress) by table id; `made` is what snapshots since then changed, by id; `begun` are
    (table id, snapshot) where one got a name; `refusals` say why a table mustn't be written.
    """

    newest: int
    versions: Mapping[int, tuple[int, int]]
    made: Mapping[int, str | None]
    begun: AbstractSet[tuple[int, int]]
    refusals: Mapping[int, str | None]

    def find_problem(self, change: ChangeSet) -> str | None:
        """Return why the table isn't what the change was computed from, if so. Raises ReadOnlyTableError."""
        table_id, base = change.table_id, (change.base_version, change.caught_up_to)
        assert table_id is not None
        if (refusal := self.refusals.get(table_id)) is not None:
            raise ReadOnlyTableError(refusal)
        if self.versions.get(table_id) != base:
            return f"table {table_id} is at version and progress {self.versions.get(table_id)}"
        for at in range(_get_known_upto(change) + 1, self.newest + 1):
            if at not in self.made or parse_kinds(self.made[at], table_id, begins=(table_id, at) in self.begun):
                return f"DuckDB changed table {table_id}"
        return None


def lock_bases(cursor: Cursor[Row], changes: Sequence[ChangeSet]) -> Callable[[int], CommitBases]:
    """Lock the tables' rows, and ask what the changes must hold for.

    The returned function answers for the newest DuckLake snapshot, the last before one that this transaction has
    claimed.
    """
    bases = [change for change in changes if change.table_id is not None]
    parameters = {
        "table_ids": sorted({change.table_id for change in bases if change.table_id is not None}),
        "after": min(map(_get_known_upto, bases), default=None),
    }
    asked = cursor.connection.cursor().execute(_SQL.lock_bases, parameters)
    return lambda newest: _parse_bases(asked, newest)


def _parse_bases(asked: Cursor[Row], newest: int) -> CommitBases:
    found = asked.fetchone()
    assert found is not None
    versions, made, begun, refusals = found
    return CommitBases(
        newest=newest,
        versions={table_id: (version, caught_up_to) for table_id, version, caught_up_to in versions},
        made=dict(made),
        begun={(table_id, at) for table_id, at in begun},
        refusals=dict(refusals),
    )


def _get_known_upto(change: ChangeSet) -> int:
    return max(change.caught_up_to, change.checked_upto)


def is_successor(commits: Sequence[Sequence[ChangeSet]], last: SnapshotCounters | None) -> bool:
    """Return whether the only change has one step, with files written for the snapshot right after this one."""
    if last is None or len(commits) != 1 or len(commits[0]) != 1:
        return False
    (change,) = commits[0]
    return change.files is not None and change.files.snapshots == (last.snapshot_id + 1,)


def claim_snapshot_after(
    cursor: Cursor[Row], wanted: SnapshotClaim, last: SnapshotCounters, change: ChangeSet
) -> Cursor[Row]:
    """Claim the snapshot after `last`, as `claim_snapshot`; its row comes with the next answer.

    The transaction fails if another snapshot is the newest, or the table mustn't be written: with StaleSnapshotError,
    or as `is_retryable` says where a DuckDB client has just taken the id.
    """
    parameters = {
        "snapshot_id": last.snapshot_id,
        "time": last.time,
        "schema_changes": int(wanted.schema_change),
        "catalog_ids": wanted.catalog_ids,
        "file_ids": wanted.file_ids,
        "table_id": change.table_id,
    }
    return cursor.connection.cursor().execute(load_queries("lake", "write").claim_after, parameters)


def predict_bases(change: ChangeSet, last: SnapshotCounters) -> CommitBases:
    """Return the bases that the change was computed from; `writer.update_table` fails if the table has changed."""
    assert change.table_id is not None
    versions = {change.table_id: (change.base_version, change.caught_up_to)}
    return CommitBases(last.snapshot_id, versions, made={}, begun=frozenset(), refusals={})


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
        self, cursor: Cursor[Row], commits: Sequence[Sequence[ChangeSet]], last: LastCommit | None = None
    ) -> None:
        """Take a snapshot id and check the commits.

        last: this process's last commit; if it serves, no wait comes before COMMIT.
        """
        self._cursor = cursor
        self._last_commit = last or LastCommit()
        self._claiming: Cursor[Row] | None = None
        before, self._changes = self._last_commit.take_snapshot(), [change for commit in commits for change in commit]
        if before is not None and is_successor(commits, before):
            self._claim_after(self._changes[0], before)
        else:
            self._ask()
        self._rows: list[SnapshotCounters] = []
        self._taken: set[int | str] = set()
        self._admitted = [self._admit(commit) for commit in commits]

    def _claim_after(self, change: ChangeSet, before: SnapshotCounters) -> None:
        """Claim the snapshot id after this process's last one, and expect the bases of that moment."""
        wanted = _build_claim(change.steps[0])
        self._claiming = claim_snapshot_after(self._cursor, wanted, before, change)
        self._claimed: SnapshotCounters | None = wanted.apply_to(before)[1]
        self._before: SnapshotCounters | None = before
        self._last: SnapshotCounters | None = before
        self._bases = predict_bases(change, before)

    def _ask(self) -> None:
        """Claim the next snapshot id, if the commits need one, and ask what the tables are then."""
        self._claimed = self._before = self._last = None
        steps = [step for change in self._changes for step in change.steps]
        ask = partial(lock_bases, self._cursor, self._changes)
        if steps:
            self._claimed, self._before, bases = claim_snapshot(self._cursor, _build_claim(steps[0]), ask)
            self._last = replace(self._before, time=self._claimed.time)
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
            outcome if isinstance(outcome, Exception) else [write(by_copy=by_copy) for write in outcome]
            for outcome in self._admitted
        ]

    def finish(self) -> None:
        """Do nothing: `write` has written all."""

    def remember_snapshot(self) -> None:
        """Remember the state of the lake after this group."""
        row = self._claiming.fetchone() if self._claiming is not None else None
        newest = self._rows[-1:] if row is None else [SnapshotCounters(*row)]
        if newest and self._before is not None:
            changed = {change.table_id for change in self._changes if change.table_id is not None}
            self._last_commit.put(self._before, CommittedState(newest[0]), changed)

    def _admit(self, commit: Sequence[ChangeSet]) -> list[WriteChange] | StaleBaseError | CatalogError:
        rows, last = len(self._rows), self._last
        try:
            begun = [self._begin(change, commit[:index]) for index, change in enumerate(commit)]
        except (StaleBaseError, CatalogError) as error:
            del self._rows[rows:]
            self._last = last
            return error
        self._taken.update(map(_get_identity, commit))
        return begun

    def _begin(self, change: ChangeSet, before: Sequence[ChangeSet]) -> WriteChange:
        """Check a change and allocate its snapshots; return what writes it.

        before: the earlier changes of the same commit.
        """
        if _get_identity(change) in self._taken:
            raise StaleBaseError(f"table {_get_identity(change)} is another commit's in the same transaction")
        schema_id = None
        if change.table_id is None:
            creation = find_creation(change)
            schema_id, recorded = check_name_free(self._cursor, creation.schema_name, creation.table_name)
            check_name_new(_get_new_name(change), [_get_new_name(other) for other in before if other.table_id is None])
            first = replace(change.steps[0], creation=replace(creation, recorded_schema=recorded))
            change = replace(change, steps=(first, *change.steps[1:]))
        elif (problem := self._bases.find_problem(change)) is not None:
            raise StaleBaseError(problem)
        change = self._shift_ids(change)
        snapshots = [self._snapshot(step) for step in change.steps]
        return partial(write_change, self._cursor, change, snapshots, self._bases.newest, schema_id)

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
    return SnapshotClaim(step.changes_schema, step.catalog_ids, step.file_ids)


def _get_new_name(change: ChangeSet) -> tuple[str, str]:
    creation = find_creation(change)
    return creation.schema_name, creation.table_name


def _get_identity(change: ChangeSet) -> int | str:
    """Return the table's id, or the name of one that is created, which must be unique."""
    if change.table_id is not None:
        return change.table_id
    creation = find_creation(change)
    return f"{creation.schema_name}.{creation.table_name}".lower()
