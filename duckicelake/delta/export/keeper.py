"""A background thread that updates Delta logs soon after each commit, whichever client made it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final

from duckicelake.catalog.context.background_threads import Failed, LeaderTask, run_as_leader
from duckicelake.catalog.context.caller import Caller, Principal
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.changelog.entries import SNAPSHOTS
from duckicelake.delta.export import logs
from duckicelake.delta.export.exporter import update_delta_log
from duckicelake.delta.export.files import remove_log, repair_log
from duckicelake.errors import CatalogError, NoSuchTableError
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.lake.side_tables import locations
from duckicelake.postgres.notify import NotificationListener
from duckicelake.postgres.queries import Transaction

_WAKE_SECONDS: Final = 5.0
"""Seconds after which tables are looked at without a notification."""
_REST_SECONDS: Final = 9
"""The pause as a multiple of a look's time: that makes a tenth of a processor."""
_MAX_REST_SECONDS: Final = 0.5
_IDLE_SECONDS: Final = 1.0
"""Seconds, at least, between two looks while no table wants a log."""
_IDLE_REST_SECONDS: Final = 99
"""As `_REST_SECONDS`, for these looks."""
_KEEPER_CALLER: Final = Caller(Principal("duckicelake", ()), operation="keep_delta_log")

LogFailed = Callable[[str, Exception], object]


def keep_delta_logs_in_background(
    services: Services, failed: Failed, table_failed: LogFailed
) -> AbstractContextManager[None]:
    """Keep Delta logs up to date in a thread, until the block ends.

    table_failed: called with a table's name and each new reason why its log can't be kept. failed: called with errors
    that concern all.
    """
    keeper = DeltaLogKeeper(replace(services, caller=_KEEPER_CALLER), table_failed)
    duty = LeaderTask("delta-keeper", None, logs.is_keeper_free, logs.take_lead, partial(_run_keeper, keeper))
    return run_as_leader(services, duty, failed)


def _run_keeper(keeper: "DeltaLogKeeper", notices: NotificationListener, cursor: Transaction) -> None:
    while not notices.is_closed:
        began = monotonic()
        if keeper.look(cursor, lambda: notices.is_closed, notices.kept_alive):
            if notices.listen_to(SNAPSHOTS):
                continue
            notices.rest(min(_REST_SECONDS * (monotonic() - began), _MAX_REST_SECONDS))
            notices.wait(_WAKE_SECONDS)
        else:
            notices.listen_to(None)
            notices.rest(min(max(_IDLE_REST_SECONDS * (monotonic() - began), _IDLE_SECONDS), _WAKE_SECONDS))


class DeltaLogKeeper:
    """Looks at the tables repeatedly, in one thread."""

    def __init__(self, services: Services, table_failed: LogFailed) -> None:
        self._services = services
        self._table_failed = table_failed
        self._versions: Mapping[int, int] = {}
        self._enabled: frozenset[int] = frozenset()
        self._failures: dict[int, str] = {}
        self._mended: set[int] = set()

    def look(
        self,
        cursor: Transaction,
        is_ended: Callable[[], bool] = lambda: False,
        kept_alive: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> bool:
        """Bring each log up to date, and remove logs that aren't wanted any more; return whether any is wanted.

        kept_alive: opens a block in which the cursor isn't used.
        """
        versions = logs.read_versions(cursor)
        changed = {table_id for table_id, version in versions.items() if self._versions.get(table_id) != version}
        same = self._enabled & versions.keys() - changed
        self._enabled, self._versions = same | logs.find_enabled(cursor, changed), versions
        abandoned = logs.find_abandoned(cursor)
        with kept_alive():
            for table_id in abandoned:
                remove_log(self._services, table_id)
            for table_id in sorted(self._enabled):
                if not is_ended():
                    self._look_at(table_id)
        return bool(self._enabled)

    def _look_at(self, table_id: int) -> None:
        with self._services.database.statement() as cursor:
            named = locations.read_last_name(cursor, table_id)
        if named is None:
            return
        name = f"{named[0]}.{named[1]}"
        try:
            table = load_current_table(self._services, parse_schema_name(named[0]), named[1])
            update_delta_log(self._services, table)
            if table_id not in self._mended:
                repair_log(self._services, table_id)
                self._mended.add(table_id)
            self._failures.pop(table_id, None)
        except NoSuchTableError:  # it was dropped, or renamed, which the next look finds
            return
        except CatalogError as error:
            if self._failures.get(table_id) != str(error):
                self._failures[table_id] = str(error)
                self._table_failed(name, error)
