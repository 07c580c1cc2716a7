"""What every use case needs, made once by the entry point and passed down."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from duckicelake.catalog.access.principal import NOBODY_IN_PARTICULAR, Caller
from duckicelake.catalog.access.storage_access import NO_ACCESS, StorageAccess
from duckicelake.catalog.auditing import origin, unheard
from duckicelake.catalog.commits.groups import CommitQueue
from duckicelake.catalog.commits.id_pools import Ids
from duckicelake.catalog.commits.turns import Lanes
from duckicelake.catalog.files.recording import Recorder
from duckicelake.catalog.idempotency import Once, run_once
from duckicelake.catalog.lineage.reads import ReadLog
from duckicelake.catalog.loads.cache import TableCache
from duckicelake.catalog.measuring import UNMEASURED, Meter
from duckicelake.catalog.rows.cache import RowTargets
from duckicelake.lake import audit
from duckicelake.lake.audit import Entry, Touched
from duckicelake.lake.postgres.database import Database, Transaction
from duckicelake.storage.measured import MeasuredStore
from duckicelake.storage.objects import ObjectStore
from duckicelake.storage.policy import LocationPolicy

T = TypeVar("T")


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
    recorder: Recorder = field(default_factory=Recorder)
    """Written files of one process wait here to be recorded."""
    ids: Ids = field(default_factory=Ids)
    """Ids that this process has taken for rows to come."""
    appends: Lanes = field(default_factory=Lanes)
    """Appends to one table wait here for each other."""
    rows: RowTargets = field(default_factory=RowTargets)
    """Tables that rows were posted to, as far as posting needs to know them."""
    once: Once | None = None
    """The request that these services are for, if it must not run twice."""
    caller: Caller = NOBODY_IN_PARTICULAR
    """Who asks. The routes have checked that they may, except for what only a use case can know."""
    access: StorageAccess = NO_ACCESS
    """What clients are given to get at the files of a lake on S3."""
    journal: Callable[[Sequence[Entry]], None] = unheard
    """Hears of entries of the audit trail that are there for good."""
    maintenance: Mapping[str, str] = field(default_factory=dict)
    """How tables are maintained that don't say otherwise: policies, as table properties have them."""
    reads: ReadLog = field(default_factory=ReadLog)
    """Where it is noted what applications read."""
    meter: Meter = UNMEASURED
    """Hears how long the phases of a use case took."""

    def measured_by(self, meter: Meter) -> "Services":
        """The same services, about whose work and object store the meter hears."""
        return replace(self, meter=meter, store=MeasuredStore(self.store, meter.store_call))

    def run_once(self, act: Callable[[], T], again: Callable[[Any], T], *, is_new: bool = False) -> T:
        """Run `act`; or, if the request has come to its end before, answer by `again` from what it was settled with.

        is_new: as in the function of this name.
        """
        return act() if self.once is None else run_once(self.database, self.once, act, again, is_new=is_new)

    def settle(
        self, cursor: Transaction, touched: Sequence[Touched], result: Any = None, outcome: str = audit.OK
    ) -> None:
        """Note in the transaction of the change, as its last step, that the request is done, and what it touched.

        result: JSON, all that answering again needs. outcome: what the audit trail calls it.
        """
        if self.once is not None:
            self.once.settle(cursor, result)
        entries = audit.record(cursor, origin(self.caller), touched, outcome)
        self.database.after_commit(cursor, lambda: self.journal(entries()))

    def settle_unchanged(self, touched: Sequence[Touched], result: Any = None) -> None:
        """Note that the request is done though it changes nothing and has no transaction."""
        with self.database.transaction() as cursor:
            self.settle(cursor, touched, result, audit.UNCHANGED)

    def note(self, touched: Sequence[Touched], outcome: str) -> None:
        """Note in the audit trail what came of a request that changes nothing in the lake: a refusal, or keys given."""
        with self.database.transaction() as cursor:
            entries = audit.record(cursor, origin(self.caller), touched, outcome, is_change=False)
            self.database.after_commit(cursor, lambda: self.journal(entries()))
