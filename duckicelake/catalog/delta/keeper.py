"""A thread that keeps Delta logs in step with the tables that want one, soon after each commit, ours or DuckDB's.

While no table wants one, it hears of no commit, and looks for such a table now and then.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final

from duckicelake.catalog.access.principal import Caller, Principal
from duckicelake.catalog.delta.log import keep_in_step
from duckicelake.catalog.delta.log_files import mend, remove
from duckicelake.catalog.leading import Duty, Failed, leading
from duckicelake.catalog.loads.loading import current_table
from duckicelake.catalog.services import Services
from duckicelake.errors import CatalogError, NoSuchTable
from duckicelake.iceberg.names import namespace_of
from duckicelake.lake import delta_logs, ownership
from duckicelake.lake.chronicle.entries import SNAPSHOTS
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.notices import Notices

_UNWOKEN: Final = 5.0
"""Seconds after which tables are looked at though nobody has said that the lake changed."""
_REST: Final = 9
"""Times as long as a look takes: that makes a tenth of a processor."""
_LONGEST_REST: Final = 0.5
_IDLE: Final = 1.0
"""Seconds, at least, between two looks while no table wants a log."""
_IDLE_REST: Final = 99
"""As `_REST`, of those looks."""
_KEEPER: Final = Caller(Principal("duckicelake", ()), operation="keep_delta_log")

TableFailed = Callable[[str, Exception], object]


def keeping_delta_logs(services: Services, failed: Failed, table_failed: TableFailed) -> AbstractContextManager[None]:
    """Keep Delta logs for as long as the context lasts.

    `table_failed` hears, with its name, of each new reason why a table's can't be kept; `failed` of what keeps all.
    """
    keeper = Keeper(replace(services, caller=_KEEPER), table_failed)
    duty = Duty("delta-keeper", None, delta_logs.is_free, delta_logs.lead, partial(_keep, keeper))
    return leading(services, duty, failed)


def _keep(keeper: "Keeper", notices: Notices, cursor: Transaction) -> None:
    while not notices.is_closed:
        began = monotonic()
        if keeper.look(cursor, lambda: notices.is_closed):
            if notices.hear(SNAPSHOTS):
                continue
            notices.rest(min(_REST * (monotonic() - began), _LONGEST_REST))
            notices.wait(_UNWOKEN)
        else:
            notices.hear(None)
            notices.rest(min(max(_IDLE_REST * (monotonic() - began), _IDLE), _UNWOKEN))


class Keeper:
    """Looks at the tables again and again; for one thread."""

    def __init__(self, services: Services, table_failed: TableFailed) -> None:
        self._services = services
        self._table_failed = table_failed
        self._versions: Mapping[int, int] = {}
        self._enabled: frozenset[int] = frozenset()
        self._failures: dict[int, str] = {}
        self._mended: set[int] = set()

    def look(self, cursor: Transaction, is_ended: Callable[[], bool] = lambda: False) -> bool:
        """Bring each log up to date, and take away those that aren't wanted any more; whether any is wanted."""
        versions = delta_logs.versions(cursor)
        changed = {table_id for table_id, version in versions.items() if self._versions.get(table_id) != version}
        same = self._enabled & versions.keys() - changed
        self._enabled, self._versions = same | delta_logs.enabled(cursor, changed), versions
        for table_id in delta_logs.abandoned(cursor):
            remove(self._services, table_id)
        for table_id in sorted(self._enabled):
            if not is_ended():
                self._look_at(cursor, table_id)
        return bool(self._enabled)

    def _look_at(self, cursor: Transaction, table_id: int) -> None:
        named = ownership.name_of(cursor, table_id)
        if named is None:
            return
        name = f"{named[0]}.{named[1]}"
        try:
            table = current_table(self._services, namespace_of(named[0]), named[1]).materialized
            keep_in_step(self._services, table)
            if table_id not in self._mended:
                mend(self._services, table_id)
                self._mended.add(table_id)
            self._failures.pop(table_id, None)
        except NoSuchTable:  # it was dropped, or renamed, which the next look finds
            return
        except CatalogError as error:
            if self._failures.get(table_id) != str(error):
                self._failures[table_id] = str(error)
                self._table_failed(name, error)
