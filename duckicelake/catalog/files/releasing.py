"""Letting go of files that no listed snapshot needs: they go with DuckDB's next cleanup."""

from collections.abc import Sequence
from typing import Final

from duckicelake.catalog.services import Services
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.updates import RemoveSnapshots, TableUpdate
from duckicelake.lake import garbage
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.snapshots import Counters, retrying
from duckicelake.lake.writing import writer

SELDOM: Final = 10


def is_due(updates: Sequence[TableUpdate], base: TableMetadata, change: ChangeSet) -> bool:
    """Whether what the snapshots held that a change takes out of history is to be let go of at once.

    Where they leave by themselves, out of appends alone, it is metadata files, and a transaction for those is soon
    enough after every tenth of such changes.
    """
    gone = change.target.removed_snapshots
    is_asked_for = any(isinstance(each, RemoveSnapshots) for each in updates)
    if not gone or is_asked_for or any(each.operation != "append" for each in base.snapshots):
        return bool(gone)
    return change.base_version // len(gone) % SELDOM == 0


def release_files(services: Services, table_id: int) -> int | None:
    """Release what snapshots that left history held; the DuckLake snapshot that did, None if there was nothing.

    Runs after a commit that removed some; if it never does, the files stay and the next release takes them.
    """

    def attempt() -> Counters | None:
        with services.database.transaction() as cursor:
            return writer.release(cursor, table_id)

    made = retrying(attempt)
    if made is None:
        return None
    services.commits.note_snapshot(made)
    return made.snapshot_id


def release_all(services: Services) -> None:
    """The same for every table that has such files still, as nobody has committed to it since."""
    with services.database.reading() as cursor:
        table_ids = garbage.unreleased(cursor)
    for table_id in table_ids:
        release_files(services, table_id)
