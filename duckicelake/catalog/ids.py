"""Ids for new rows of the side tables, taken in batches before any lock; those of a commit that fails stay unused."""

from collections.abc import Callable, Iterator

from duckicelake.catalog.services import Services
from duckicelake.lake import reader
from duckicelake.lake.database import Transaction

BATCH = 32


def file_ids(services: Services, batch: int = BATCH) -> Iterator[int]:
    """Ids for `duckicelake_file`, without end."""
    return _ids(services, reader.new_file_ids, batch)


def manifest_ids(services: Services, batch: int = BATCH) -> Iterator[int]:
    """Ids for `duckicelake_manifest`, without end."""
    return _ids(services, reader.new_manifest_ids, batch)


def _ids(services: Services, take: Callable[[Transaction, int], list[int]], batch: int) -> Iterator[int]:
    while True:
        with services.database.transaction() as cursor:
            taken = take(cursor, batch)
        yield from taken
