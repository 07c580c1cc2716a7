"""What every use case needs, made once by the entry point and passed down."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Literal, TypeVar

from duckicelake.catalog.cache import TableCache
from duckicelake.catalog.idempotency import Once, run_once
from duckicelake.catalog.principal import NOBODY_IN_PARTICULAR, Caller
from duckicelake.lake.database import Database, Transaction
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
    commit_turn: AbstractContextManager[object] = field(default_factory=RLock)
    """Commits of one process wait here for Postgres, so that the waiting ones hold no connection that others need."""
    once: Once | None = None
    """The request that these services are for, if it must not run twice."""
    caller: Caller = NOBODY_IN_PARTICULAR
    """Who asks. The routes have checked that they may, except for what only a use case can know."""

    def run_once(self, act: Callable[[], T], again: Callable[[Any], T]) -> T:
        """Run `act`; or, if the request has come to its end before, answer by `again` from what it was settled with."""
        return act() if self.once is None else run_once(self.database, self.once, act, again)

    def settle(self, cursor: Transaction, result: Any = None) -> None:
        """Note in the transaction of the change, as its last step, that the request is done.

        result: JSON, all that answering again needs.
        """
        if self.once is not None:
            self.once.settle(cursor, result)

    def settle_unchanged(self, result: Any = None) -> None:
        """Note that the request is done though it changes nothing and has no transaction."""
        if self.once is not None:
            with self.database.transaction() as cursor:
                self.once.settle(cursor, result)
