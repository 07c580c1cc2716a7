"""Delete files that a table no longer needs: aborted writes, expired files."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.errors import CommitStateUnknownError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.updates import RemoveSnapshots, TableUpdate
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.ducklake.snapshots import SnapshotCounters, retry_transaction
from duckicelake.lake.side_tables import locations
from duckicelake.lake.writer import change_sets

SELDOM: Final = 10


@contextmanager
def discard_on_error(services: Services, locations: Iterable[str]) -> Iterator[None]:
    """Discard the files, of which the block may write more, if it comes to nothing for certain."""
    try:
        yield
    except CommitStateUnknownError:
        raise
    except Exception:
        discard(services, locations)
        raise


def discard(services: Services, locations: Iterable[str]) -> None:
    """Delete files that nothing lists, as well as it goes; what isn't deleted is an orphan."""
    for location in locations:
        with suppress(Exception):
            services.store.delete(location)


def is_due(updates: Sequence[TableUpdate], base: TableMetadata, change: ChangeSet) -> bool:
    """Return whether what the snapshots held that a change takes out of history is to be let go of at once.

    Where they leave by themselves, out of appends alone, it is metadata files, and a transaction for those is soon
    enough after every tenth of such changes.
    """
    gone = change.target.removed_snapshots
    is_asked_for = any(isinstance(update, RemoveSnapshots) for update in updates)
    if not gone or is_asked_for or any(snapshot.operation != "append" for snapshot in base.snapshots):
        return bool(gone)
    return change.base_version // len(gone) % SELDOM == 0


def release_files(services: Services, table_id: int) -> int | None:
    """Release what snapshots that left history held; the DuckLake snapshot that did, None if there was nothing.

    Runs after a commit that removed some; if it never does, the files stay and the next release takes them.
    """

    def attempt() -> SnapshotCounters | None:
        with services.database.transaction() as cursor:
            return change_sets.release_held_files(cursor, table_id)

    made = retry_transaction(attempt)
    if made is None:
        return None
    services.commits.note_snapshot(made)
    return made.snapshot_id


def release_all(services: Services) -> None:
    """The same for every table that has such files still, if no commit has released them since."""
    with services.database.reading() as cursor:
        table_ids = locations.find_unreleased_tables(cursor)
    for table_id in table_ids:
        release_files(services, table_id)
