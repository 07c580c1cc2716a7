"""What commits were computed from, looked at again when nobody else of ours can write."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from psycopg import Cursor

from duckicelake.errors import ReadOnlyTable
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.native import kinds_of
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries

_SQL = queries("write")


@dataclass(frozen=True, slots=True)
class Bases:
    """The tables of some changes as they are at the newest DuckLake snapshot.

    `versions` are (version, progress) by table id; `made` is what snapshots since then changed, by id; `begun` are
    (table id, snapshot) where one got a name; `refusals` say why a table mustn't be written.
    """

    newest: int
    versions: Mapping[int, tuple[int, int]]
    made: Mapping[int, str | None]
    begun: AbstractSet[tuple[int, int]]
    refusals: Mapping[int, str | None]

    def problem(self, change: ChangeSet) -> str | None:
        """Why the table isn't what the change was computed from, if so. ReadOnlyTable."""
        table_id, base = change.table_id, (change.base_version, change.caught_up_to)
        assert table_id is not None
        if (refusal := self.refusals.get(table_id)) is not None:
            raise ReadOnlyTable(refusal)
        if self.versions.get(table_id) != base:
            return f"table {table_id} is at version and progress {self.versions.get(table_id)}"
        for at in range(_known_upto(change) + 1, self.newest + 1):
            if at not in self.made or kinds_of(self.made[at], table_id, begins=(table_id, at) in self.begun):
                return f"DuckDB changed table {table_id}"
        return None


def lock_bases(cursor: Cursor[Row], changes: Sequence[ChangeSet]) -> Callable[[int], Bases]:
    """Ask what the changes of tables must hold for; the tables' rows stay locked.

    The answer is had of the newest DuckLake snapshot, the last before one that this transaction has claimed.
    """
    bases = [change for change in changes if change.table_id is not None]
    parameters = {
        "table_ids": sorted({change.table_id for change in bases if change.table_id is not None}),
        "after": min(map(_known_upto, bases), default=None),
    }
    asked = cursor.connection.cursor().execute(_SQL.lock_bases, parameters)
    return lambda newest: _bases(asked, newest)


def _bases(asked: Cursor[Row], newest: int) -> Bases:
    found = asked.fetchone()
    assert found is not None
    versions, made, begun, refusals = found
    return Bases(
        newest=newest,
        versions={table_id: (version, caught_up_to) for table_id, version, caught_up_to in versions},
        made=dict(made),
        begun={(table_id, at) for table_id, at in begun},
        refusals=dict(refusals),
    )


def _known_upto(change: ChangeSet) -> int:
    return max(change.caught_up_to, change.checked_upto)
