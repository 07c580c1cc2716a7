"""A thread that brings the versions of the Delta tables that are followed, soon after they are there.

It asks the store for the next version by its name, which costs one request, and lists a log only when that is there or
every now and then. A table that can't go on is left alone for a while, and the others aren't kept by it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Final

from duckicelake.catalog.delta.sync import SYNCER, sync
from duckicelake.catalog.leading import Duty, Failed, leading
from duckicelake.catalog.loads.loading import current_table
from duckicelake.catalog.services import Services
from duckicelake.delta.log import DeltaLog
from duckicelake.errors import NoSuchTable
from duckicelake.iceberg.names import namespace_of
from duckicelake.lake import delta_sources
from duckicelake.lake.delta_sources import Source
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.notices import Notices
from duckicelake.storage.parallel import in_parallel

_IDLE: Final = 1.0
"""Seconds between two looks for tables to follow, while there are none."""
_LIST_EVERY: Final = 60.0
"""Seconds after which a log is listed although its next version isn't there: it may have been replaced."""
_AFTER_FAILURE: Final = 10.0

TableFailed = Callable[[Source, Exception], object]


def following_delta(
    services: Services, seconds: float, failed: Failed, table_failed: TableFailed
) -> AbstractContextManager[None]:
    """Follow Delta tables for as long as the context lasts, looking every so many seconds.

    `table_failed` hears of each new reason why a table can't go on, `failed` of what keeps all of them.
    """
    follower = Follower(replace(services, caller=SYNCER), table_failed)
    work = partial(_follow, follower, seconds)
    duty = Duty("delta-follower", None, delta_sources.is_free, delta_sources.lead, work)
    return leading(services, duty, failed)


def _follow(follower: "Follower", seconds: float, notices: Notices, cursor: Transaction) -> None:
    while not notices.is_closed:
        followed = delta_sources.sources(cursor, followed=True)
        came = follower.look(followed, lambda: notices.is_closed)
        if not came:
            notices.rest(seconds if followed else _IDLE)


@dataclass(slots=True)
class _Followed:
    """What is known of a table between two looks; `listed` and `rests_until` by the monotonic clock."""

    root: str
    log: DeltaLog | None = None
    listed: float = float("-inf")
    rests_until: float = 0.0


class Follower:
    """Looks at followed tables again and again; for one thread."""

    def __init__(self, services: Services, table_failed: TableFailed) -> None:
        self._services = services
        self._table_failed = table_failed
        self._known: dict[int, _Followed] = {}

    def look(self, followed: list[Source], is_ended: Callable[[], bool] = lambda: False) -> bool:
        """Bring what is there of each, a portion of those with much; whether there may be more at once."""
        self._known = {each.table_id: self._of(each) for each in followed}
        ahead = in_parallel(self._may_be_ahead, followed)
        came = False
        for source, is_ahead in zip(followed, ahead, strict=True):
            if is_ahead and not is_ended():
                came |= self._sync(source)
        return came

    def _of(self, source: Source) -> _Followed:
        known = self._known.get(source.table_id)
        return known if known is not None and known.root == source.root else _Followed(source.root)

    def _may_be_ahead(self, source: Source) -> bool:
        known, now = self._known[source.table_id], monotonic()
        if now < known.rests_until:
            return False
        if known.log is None or source.error is not None or now - known.listed > _LIST_EVERY:
            return True
        try:
            return known.log.has_next(source.position.version)
        except Exception:  # noqa: BLE001 - what it is will be told by syncing
            return True

    def _sync(self, source: Source) -> bool:
        known = self._known[source.table_id]
        try:
            if known.log is None:
                known.log = DeltaLog(self._services.store, source.root)
                self._load(source)
            after = sync(self._services, source, known.log)
        except NoSuchTable:  # renamed or dropped since it was listed
            return False
        except Exception as error:  # noqa: BLE001 - whatever it was, other tables are followed
            known.rests_until = monotonic() + _AFTER_FAILURE
            self._fail(source, error)
            return False
        known.listed = monotonic()
        if source.error is not None and after.error is not None:
            with self._services.database.statement() as cursor:
                delta_sources.recover(cursor, source)
        return after.position.version > source.position.version

    def _load(self, source: Source) -> None:
        """Have the table ready before its next version comes: the first load of a long history takes a while."""
        current_table(self._services, namespace_of(source.schema_name), source.table_name)

    def _fail(self, source: Source, error: Exception) -> None:
        self._services.meter.task_failed("delta")
        with self._services.database.statement() as cursor:
            is_new = delta_sources.fail(cursor, source, str(error) or type(error).__name__)
        if is_new:
            self._table_failed(source, error)
