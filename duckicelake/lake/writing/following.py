"""A commit right after this process's own last one: it asks for nothing, and fails where somebody came between.

What it depends on was written by that last one, or changes only with a DuckLake snapshot, or with the table's version.
"""

from collections.abc import Sequence

from psycopg import Cursor

from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.snapshots import Counters, Wanted
from duckicelake.lake.writing.bases import Bases


class LastSnapshot:
    """The newest snapshot, if it is one that this process made."""

    def __init__(self) -> None:
        self._row: Counters | None = None

    def take(self) -> Counters | None:
        """It is given once: who commits then puts its own, and of others nothing is known."""
        row, self._row = self._row, None
        return row

    def put(self, row: Counters) -> None:
        self._row = row


def follows(commits: Sequence[Sequence[ChangeSet]], last: Counters | None) -> bool:
    """Whether there is but one change, of one step, that was foreseen to come right after this snapshot."""
    if last is None or len(commits) != 1 or len(commits[0]) != 1:
        return False
    (change,) = commits[0]
    return change.files is not None and change.files.snapshots == (last.snapshot_id + 1,)


def claim_after(cursor: Cursor[Row], wanted: Wanted, last: Counters, change: ChangeSet) -> Cursor[Row]:
    """The next snapshot, as `snapshots.claim` takes it; its row can be fetched with what is next waited for.

    The transaction fails if that isn't the one after `last`, or if the table mustn't be written: with Overtaken, or as
    `is_retryable` says where a DuckDB client has just taken the id.
    """
    parameters = {
        "snapshot_id": last.snapshot_id,
        "time": last.time,
        "schema_changes": int(wanted.schema_change),
        "catalog_ids": wanted.catalog_ids,
        "file_ids": wanted.file_ids,
        "table_id": change.table_id,
    }
    return cursor.connection.cursor().execute(queries("write").claim_after, parameters)


def bases_of(change: ChangeSet, last: Counters) -> Bases:
    """What the change was computed from, as it must be: `side_tables.update_table` fails if the table has changed."""
    assert change.table_id is not None
    versions = {change.table_id: (change.base_version, change.caught_up_to)}
    return Bases(last.snapshot_id, versions, made={}, begun=frozenset(), refusals={})
