"""Files that nobody needs: of commits that never came, of processes that were killed, temporary ones.

Looked for in the lake's two zones, in files that have lain there for a while: a commit's files are there before it is.
A file stays if any row of DuckLake's or ours has its name, whether live, scheduled for deletion or of the past.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from duckicelake.catalog.lake_files import TABLE_SUFFIXES, find_unneeded, is_lake_file, list_lake_files, read_kept_files
from duckicelake.catalog.loads.loading import refresh
from duckicelake.catalog.services import Services
from duckicelake.errors import CatalogError, NoSuchTable
from duckicelake.lake import garbage
from duckicelake.storage.objects import StoredFile
from duckicelake.storage.parallel import in_parallel
from duckicelake.storage.policy import at_and_above, is_within

_ASKED_AT_ONCE: Final = 10_000
_DELETED_AT_ONCE: Final = 1_000
"""Few, so that little happens between the last look at the catalog and the deletion."""


def find_orphans(
    services: Services, before_ms: int, looked_at: Callable[[int], object] = lambda _: None
) -> list[StoredFile]:
    """The files last written before a moment, in milliseconds since the epoch, that nobody needs.

    Deletes nothing, but brings tables up to date whose orphans might be files that they have yet to claim: as a load
    does. `looked_at` hears of how many more files the lake was found to have. Raises Unavailable.
    """
    found: list[StoredFile] = []
    kept = read_kept_files(services)
    for batch in _batches(list_lake_files(services), _ASKED_AT_ONCE):
        looked_at(len(batch))
        found += find_unneeded(services, kept, [file for file in batch if file.modified_ms < before_ms])
    return list(_still_unneeded(services, _claimed_by_nobody(services, found)))


def unneeded(services: Services, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Those of some canonical files in the Iceberg zone that nobody needs; tables are brought up to date as above."""
    of_tables = [
        file
        for file in files
        if is_lake_file(file, TABLE_SUFFIXES) and is_within(file.location, services.policy.data_zone)
    ]
    found = find_unneeded(services, read_kept_files(services), of_tables)
    return list(_still_unneeded(services, _claimed_by_nobody(services, found)))


def unnamed(services: Services, files: Sequence[StoredFile]) -> list[StoredFile]:
    """Those of some canonical files that no row names, and that lie where nobody else may keep files."""
    return list(_still_unneeded(services, files))


def delete_orphans(
    services: Services, orphans: Sequence[StoredFile], deleted: Callable[[StoredFile], object] = lambda _: None
) -> None:
    """Delete those that are still nobody's; `deleted` hears of each. Raises Unavailable."""

    def delete(file: StoredFile) -> None:
        services.store.delete(file.location)
        deleted(file)

    for batch in _batches(orphans, _DELETED_AT_ONCE):
        in_parallel(delete, _still_unneeded(services, batch))


def _still_unneeded(services: Services, files: Iterable[StoredFile]) -> Iterator[StoredFile]:
    for batch in _batches(files, _ASKED_AT_ONCE):
        yield from find_unneeded(services, read_kept_files(services), batch)


def _claimed_by_nobody(services: Services, files: Sequence[StoredFile]) -> Iterator[StoredFile]:
    """The files but for those of live tables that can't be brought up to date.

    What a killed server has written gets the same name again, and is found there, when the next one writes it.
    """
    with services.database.reading() as cursor:
        tables = garbage.live_tables(cursor)
    is_settled: dict[int, bool] = {}
    for file in files:
        owners = {tables[place] for place in at_and_above(file.location) if place in tables}
        for table_id in owners - is_settled.keys():
            is_settled[table_id] = _settle(services, table_id)
        if all(is_settled[table_id] for table_id in owners):
            yield file


def _settle(services: Services, table_id: int) -> bool:
    """Let the table claim the files that it needs; whether it could."""
    try:
        refresh(services, table_id)
    except NoSuchTable:
        return True
    except CatalogError:
        return False
    return True


def _batches(files: Iterable[StoredFile], size: int) -> Iterator[list[StoredFile]]:
    rest = iter(files)
    while batch := list(islice(rest, size)):
        yield batch
