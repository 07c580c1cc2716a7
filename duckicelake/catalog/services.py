"""What every use case needs, made once by the entry point and passed down."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import RLock
from typing import Literal

from duckicelake.catalog.cache import TableCache
from duckicelake.lake.database import Database
from duckicelake.storage.objects import ObjectStore
from duckicelake.storage.policy import LocationPolicy


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
