"""Ids for new rows of the side tables, taken in batches before any lock; what a commit leaves the next one takes."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from duckicelake.lake.side_tables import reader
from duckicelake.postgres.database import Database, Transaction

MIN_POOL_IDS: Final = 128
MAX_POOL_IDS: Final = 4096


@dataclass(slots=True)
class IdPool:
    """Ids of one sequence that this process has taken and not used yet; ascending, safe to share between threads."""

    take: Callable[[Transaction, int], list[int]]
    _taken: deque[int] = field(default_factory=deque)
    _lock: Lock = field(default_factory=Lock)

    def endless(self, database: Database) -> Iterator[int]:
        """Ids without end, of which whoever wants many gets larger and larger batches."""
        batch = MIN_POOL_IDS
        while True:
            with self._lock:
                if not self._taken:
                    self._refill(database, batch)
                    batch = min(2 * batch, MAX_POOL_IDS)
                following = self._taken.popleft()
            yield following

    def _refill(self, database: Database, batch: int) -> None:
        with database.transaction() as cursor:
            self._taken.extend(self.take(cursor, batch))


@dataclass(frozen=True, slots=True)
class IdPools:
    """What a process has of both kinds of ids."""

    files: IdPool = field(default_factory=lambda: IdPool(reader.allocate_file_ids))
    manifests: IdPool = field(default_factory=lambda: IdPool(reader.allocate_manifest_ids))
