"""Delete files that a table no longer needs: aborted writes, expired files."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from duckicelake.catalog.context.services import Services
from duckicelake.errors import CommitStateUnknownError
from duckicelake.lake.ducklake.snapshots import SnapshotCounters, retry_transaction
from duckicelake.lake.side_tables import locations
from duckicelake.lake.writer import change_sets


@contextmanager
def discard_on_error(services: Services, locations: Iterable[str]) -> Iterator[None]:
    """Discard the files if the block fails for certain. The block may add files to the list."""
    try:
        yield
    except CommitStateUnknownError:
        raise
    except Exception:
        discard(services, locations)
        raise


def discard(services: Services, locations: Iterable[str]) -> None:
    """Delete files that nothing lists; a file that can't be deleted is an orphan."""
    for location in locations:
        with suppress(Exception):
            services.store.delete(location)


def release_files(services: Services, table_id: int) -> int | None:
    """Release the files of snapshots that left history; return the DuckLake snapshot that did, None if there were none.

    It runs after a commit that removed snapshots. If it fails, the next release takes the files.
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
    """Release such files of all tables."""
    with services.database.reading() as cursor:
        table_ids = locations.find_unreleased_tables(cursor)
    for table_id in table_ids:
        release_files(services, table_id)
