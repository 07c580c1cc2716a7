"""Services of every use case, made once by the entry point; ids for side-table rows."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from time import time_ns
from typing import Any, Final, Literal, TypeVar

from duckicelake.catalog.context.audit_notes import ignore_entry, origin
from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.caller import SERVER_CALLER, Caller
from duckicelake.catalog.context.combiner import CombiningQueues, VersionRecorder
from duckicelake.catalog.context.commit_queue import CommitQueue
from duckicelake.catalog.context.hooks import UNOBSERVED, ReadObserver
from duckicelake.catalog.context.idempotency import Once, run_once
from duckicelake.catalog.context.meter import NO_METER, Meter
from duckicelake.catalog.context.row_targets import RowTargets
from duckicelake.catalog.context.storage_access import NO_ACCESS, StorageAccess
from duckicelake.lake.side_tables import audit, reader
from duckicelake.lake.side_tables.audit import AuditedResource, AuditEntry
from duckicelake.postgres.database import Database, Transaction
from duckicelake.storage.policy import LocationPolicy
from duckicelake.storage.protocol import MeasuredStore, ObjectStore

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


T = TypeVar("T")


def read_clock_ms() -> int:
    """Read the clock, in milliseconds since the epoch."""
    return time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Services:
    database: Database
    store: ObjectStore
    policy: LocationPolicy
    snapshot_ids: Literal["client", "ducklake"]
    clock: Callable[[], int]  # now, in milliseconds since the epoch
    cache: TableCache = field(default_factory=TableCache)
    commits: CommitQueue = field(default_factory=CommitQueue)
    """Commits of one process wait here for Postgres, so that the waiting ones hold no connection that others need."""
    recorder: VersionRecorder = field(default_factory=VersionRecorder)
    """Written files of one process wait here to be recorded."""
    ids: IdPools = field(default_factory=IdPools)
    """Ids that this process has taken for rows to come."""
    appends: CombiningQueues = field(default_factory=CombiningQueues)
    """Appends to one table wait here for each other."""
    rows: RowTargets = field(default_factory=RowTargets)
    """Tables that rows were posted to, as far as posting needs to know them."""
    once: Once | None = None
    """The request that these services are for, if it must not run twice."""
    caller: Caller = SERVER_CALLER
    """Who asks. The routes have checked that they may, except for what only a use case can know."""
    access: StorageAccess = NO_ACCESS
    """What clients are given to get at the files of a lake on S3."""
    journal: Callable[[Sequence[AuditEntry]], None] = ignore_entry
    """Hears of entries of the audit trail that are there for good."""
    maintenance: Mapping[str, str] = field(default_factory=dict)
    """How tables are maintained that don't say otherwise: policies, as table properties have them."""
    reads: ReadObserver = UNOBSERVED
    """Notes what applications read."""
    meter: Meter = NO_METER
    """Hears how long the phases of a use case took."""

    def with_meter(self, meter: Meter) -> "Services":
        """The same services, about whose work and object store the meter hears."""
        return replace(self, meter=meter, store=MeasuredStore(self.store, meter.store_call))

    def run_once(self, act: Callable[[], T], again: Callable[[Any], T], *, is_new: bool = False) -> T:
        """Run `act`; or, if the request has come to its end before, answer by `again` from what it was settled with.

        is_new: as in the function of this name.
        """
        return act() if self.once is None else run_once(self.database, self.once, act, again, is_new=is_new)

    def settle(
        self,
        cursor: Transaction,
        touched: Sequence[AuditedResource],
        result: Any = None,
        outcome: str = audit.OK_RESULT,
    ) -> None:
        """Note in the transaction of the change, as its last step, that the request is done, and what it touched.

        result: JSON, all that answering again needs. outcome: what the audit trail calls it.
        """
        if self.once is not None:
            self.once.settle(cursor, result)
        entries = audit.record_entries(cursor, origin(self.caller), touched, outcome)
        self.database.after_commit(cursor, lambda: self.journal(entries()))

    def settle_unchanged(self, touched: Sequence[AuditedResource], result: Any = None) -> None:
        """Note that the request is done though it changes nothing and has no transaction."""
        with self.database.transaction() as cursor:
            self.settle(cursor, touched, result, audit.UNCHANGED_RESULT)

    def note(self, touched: Sequence[AuditedResource], outcome: str) -> None:
        """Note in the audit trail what came of a request that changes nothing in the lake: a refusal, or keys given."""
        with self.database.transaction() as cursor:
            entries = audit.record_entries(cursor, origin(self.caller), touched, outcome, is_change=False)
            self.database.after_commit(cursor, lambda: self.journal(entries()))


def take_file_ids(services: Services) -> Iterator[int]:
    """Ids for `duckicelake_file`, without end."""
    return services.ids.files.endless(services.database)


def take_manifest_ids(services: Services) -> Iterator[int]:
    """Ids for `duckicelake_manifest`, without end."""
    return services.ids.manifests.endless(services.database)
