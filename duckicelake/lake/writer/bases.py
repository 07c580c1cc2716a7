"""Check that nothing changed since a commit was computed, also right after this process's own commit."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from psycopg import Cursor

from duckicelake.errors import ReadOnlyTableError
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.ducklake.native import parse_kinds
from duckicelake.lake.ducklake.snapshots import SnapshotClaim, SnapshotCounters
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "write")


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


class LastOwnSnapshot:
    """Remembers the newest snapshot, if this process made it."""

    def __init__(self) -> None:
        self._row: SnapshotCounters | None = None

    def take(self) -> SnapshotCounters | None:
        """Return the snapshot once: the next commit puts its own, and another process's is unknown."""
        row, self._row = self._row, None
        return row

    def put(self, row: SnapshotCounters) -> None:
        self._row = row


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
