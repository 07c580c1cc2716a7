"""Services of every use case, built once by the entry point, and pools of ids for side tables."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from time import time_ns
from typing import Any, Final, Literal, TypeVar

from duckicelake.catalog.context.audit_notes import PublishEntries, build_origin, ignore_entry
from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.caller import SERVER_CALLER, Caller
from duckicelake.catalog.context.combiner import CombiningQueues, VersionRecorder
from duckicelake.catalog.context.commit_queue import CommitQueue
from duckicelake.catalog.context.hooks import UNOBSERVED, ReadObserver
from duckicelake.catalog.context.idempotency import Once, run_once
from duckicelake.catalog.context.meter import NO_METER, Meter
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.row_targets import RowTargets
from duckicelake.catalog.context.scan_cache import ScanCache
from duckicelake.catalog.context.storage_access import NO_ACCESS, StorageAccess
from duckicelake.iceberg.identifiers import parse_schema_name, to_schema_name
from duckicelake.lake.side_tables import audit, grants, reader
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.policy import LocationPolicy
from duckicelake.storage.protocol import MeasuredStore, ObjectStore

MIN_POOL_IDS: Final = 128
MAX_POOL_IDS: Final = 4096


@dataclass(slots=True)
class IdPool:
    """Unused ids of one sequence, allocated to this process; ascending, thread-safe."""

    take: Callable[[Transaction, int], list[int]]
    _taken: deque[int] = field(default_factory=deque)
    _lock: Lock = field(default_factory=Lock)

    def endless(self, database: Database) -> Iterator[int]:
        """Iterate over ids without end; batches double, so that a large commit allocates few times."""
        batch = MIN_POOL_IDS
        while True:
            with self._lock:
                if not self._taken:
                    self._refill(database, batch)
                    batch = min(2 * batch, MAX_POOL_IDS)
                following = self._taken.popleft()
            yield following

    def _refill(self, database: Database, batch: int) -> None:
        with database.statement() as cursor:  # a sequence belongs to no transaction
            self._taken.extend(self.take(cursor, batch))


@dataclass(frozen=True, slots=True)
class IdPools:
    """The pools of file ids and manifest ids of a process."""

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
    """The queue of commits."""
    recorder: VersionRecorder = field(default_factory=VersionRecorder)
    """Records written versions."""
    ids: IdPools = field(default_factory=IdPools)
    """Ids for new rows of side tables."""
    appends: CombiningQueues = field(default_factory=CombiningQueues)
    """Queues of appends, by table."""
    rows: RowTargets = field(default_factory=RowTargets)
    """Cache of tables that rows are posted to."""
    scans: ScanCache = field(default_factory=ScanCache)
    """Cache of what plans of scans read."""
    once: Once | None = None
    """The idempotency key of the request that these services are for."""
    caller: Caller = SERVER_CALLER
    """The principal and origin of the request. Routes check permissions; use cases check what only they can know."""
    access: StorageAccess = NO_ACCESS
    """Credentials that clients get for files on S3."""
    publish_audit: PublishEntries = ignore_entry
    """Called with committed entries of the audit trail."""
    maintenance: Mapping[str, str] = field(default_factory=dict)
    """Default maintenance policies, as table properties."""
    reads: ReadObserver = UNOBSERVED
    """Notes what applications read."""
    meter: Meter = NO_METER
    """Measures the phases of a use case."""
    rights: RightsCache | None = None
    """What principals may do where grants are on; None for commands that no principal gives."""
    trino_catalog: str | None = None
    """What Trino calls the lake; None: views of DuckDB's get no SQL of Trino's."""
    warehouse: str = ""
    """The name of the warehouse; nothing for the first."""
    prefix: str = ""
    """What stands in paths of routes between `v1/` and the rest: the warehouse and a slash, nothing for the first."""

    def with_meter(self, meter: Meter) -> "Services":
        """Return the same services, measured by the meter."""
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
        entries = audit.record_entries(cursor, build_origin(self.caller), touched, outcome)
        self.database.after_commit(cursor, lambda: self.publish_audit(entries()))

    def own_new(self, cursor: Transaction, made: Sequence[AuditedResource]) -> None:
        """Make the caller the owner of what it has made in the transaction, where grants are on."""
        rights = self.caller.principal.rights
        if self.rights is None or rights is None or rights.owner_id is None:
            return
        levels = [parse_schema_name(resource.resource) for resource in made]
        names = [(to_schema_name(level[:-1]), level[-1], to_schema_name(level)) for level in levels]
        if names:
            grants.own_new(cursor, self.rights.place, rights.owner_id, names)

    def settle_unchanged(self, touched: Sequence[AuditedResource], result: Any = None) -> None:
        """Note that the request is done though it changes nothing and has no transaction."""
        with self.database.transaction() as cursor:
            self.settle(cursor, touched, result, audit.UNCHANGED_RESULT)

    def note(self, touched: Sequence[AuditedResource], outcome: str) -> None:
        """Note in the audit trail what came of a request that changes nothing in the lake: a refusal, or keys given."""
        with self.database.transaction() as cursor:
            entries = audit.record_entries(cursor, build_origin(self.caller), touched, outcome, is_change=False)
            self.database.after_commit(cursor, lambda: self.publish_audit(entries()))


def take_file_ids(services: Services) -> Iterator[int]:
    """Iterate over new ids for `duckicelake_file`."""
    return services.ids.files.endless(services.database)


def take_manifest_ids(services: Services) -> Iterator[int]:
    """Iterate over new ids for `duckicelake_manifest`."""
    return services.ids.manifests.endless(services.database)
