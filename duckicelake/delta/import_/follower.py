"""A background thread that syncs followed Delta tables soon after new versions appear."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Final

from duckicelake.catalog.context.background_threads import Failed, LeaderTask, run_as_leader
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.delta.import_ import sources
from duckicelake.delta.import_.sources import DeltaSource
from duckicelake.delta.import_.sync import SYNCER, sync
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.errors import NoSuchTableError
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.postgres.notify import NotificationListener
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.threads import run_in_parallel

_IDLE_SECONDS: Final = 1.0
"""Seconds between two looks for tables to follow, while there are none."""
_LIST_SECONDS: Final = 60.0
"""Seconds after which a log is listed although its next version isn't there: it may have been replaced."""
_RETRY_SECONDS: Final = 10.0

DeltaTableFailed = Callable[[DeltaSource, Exception], object]


def follow_delta_in_background(
    services: Services, seconds: float, failed: Failed, table_failed: DeltaTableFailed
) -> AbstractContextManager[None]:
    """Follow Delta tables in a thread until the block ends, looking every `seconds`.

    table_failed: called with each new reason why a table can't go on. failed: called with errors that concern all.
    """
    follower = DeltaFollower(replace(services, caller=SYNCER), table_failed)
    work = partial(_follow, follower, seconds)
    duty = LeaderTask("delta-follower", None, sources.is_follower_free, sources.take_lead, work)
    return run_as_leader(services, duty, failed)


def _follow(follower: "DeltaFollower", seconds: float, notices: NotificationListener, cursor: Transaction) -> None:
    while not notices.is_closed:
        followed = sources.read_sources(cursor, followed=True)
        with notices.kept_alive():
            came = follower.look(followed, lambda: notices.is_closed)
        if not came:
            notices.rest(seconds if followed else _IDLE_SECONDS)


@dataclass(slots=True)
class _FollowedTable:
    """State of a table between two looks. listed, rests_until: by the monotonic clock."""

    root: str
    log: DeltaLog | None = None
    listed: float = float("-inf")
    rests_until: float = 0.0


class DeltaFollower:
    """Looks at followed tables repeatedly, in one thread."""

    def __init__(self, services: Services, table_failed: DeltaTableFailed) -> None:
        self._services = services
        self._table_failed = table_failed
        self._known: dict[int, _FollowedTable] = {}

    def look(self, followed: list[DeltaSource], is_ended: Callable[[], bool] = lambda: False) -> bool:
        """Import new versions of each table, of long logs a part; return whether there may be more at once."""
        self._known = {source.table_id: self._of(source) for source in followed}
        ahead = run_in_parallel(self._may_be_ahead, followed)
        came = False
        for source, is_ahead in zip(followed, ahead, strict=True):
            if is_ahead and not is_ended():
                came |= self._sync(source)
        return came

    def _of(self, source: DeltaSource) -> _FollowedTable:
        known = self._known.get(source.table_id)
        return known if known is not None and known.root == source.root else _FollowedTable(source.root)

    def _may_be_ahead(self, source: DeltaSource) -> bool:
        known, now = self._known[source.table_id], monotonic()
        if now < known.rests_until:
            return False
        if known.log is None or source.error is not None or now - known.listed > _LIST_SECONDS:
            return True
        try:
            return known.log.has_next(source.position.version)
        except Exception:  # noqa: BLE001 - syncing reports the error
            return True

    def _sync(self, source: DeltaSource) -> bool:
        known = self._known[source.table_id]
        try:
            if known.log is None:
                known.log = DeltaLog(self._services.store, source.root)
                self._load(source)
            after = sync(self._services, source, known.log)
        except NoSuchTableError:  # renamed or dropped since it was listed
            return False
        except Exception as error:  # noqa: BLE001 - whatever it was, other tables are followed
            known.rests_until = monotonic() + _RETRY_SECONDS
            self._fail(source, error)
            return False
        known.listed = monotonic()
        if source.error is not None and after.error is not None:
            with self._services.database.statement() as cursor:
                sources.clear_failure(cursor, source)
        return after.position.version > source.position.version

    def _load(self, source: DeltaSource) -> None:
        """Load a table before its next version comes: the first load of a long history takes a while."""
        load_current_table(self._services, parse_schema_name(source.schema_name), source.table_name)

    def _fail(self, source: DeltaSource, error: Exception) -> None:
        self._services.meter.task_failed("delta")
        with self._services.database.statement() as cursor:
            is_new = sources.record_failure(cursor, source, str(error) or type(error).__name__)
        if is_new:
            self._table_failed(source, error)
