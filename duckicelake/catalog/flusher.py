"""Which tables are to be flushed, and a thread that flushes them in the background.

It takes none of the places in which requests are served, and holds no lock while it reads and writes files. Workers
share the tables: who has a table's lease flushes it, and the others pass by.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from duckicelake.catalog.access.principal import Caller, Principal
from duckicelake.catalog.background import in_thread
from duckicelake.catalog.flush import Flushed, flush_rows
from duckicelake.catalog.services import Services
from duckicelake.errors import NoSuchTable
from duckicelake.iceberg.names import namespace_of
from duckicelake.lake import flush, maintenance
from duckicelake.lake.maintenance import Waiting

PAUSE: Final = 5.0
"""Seconds between two looks at the tables."""
_AFTER_FAILURE: Final = 300
"""Seconds for which a table is left alone that couldn't be flushed."""
_FLUSHER: Final = Caller(Principal("duckicelake", ()), operation="flush_table_rows")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From when on a table is flushed: any one of them is enough; None: never for that. age in milliseconds."""

    rows: int | None = None
    bytes: int | None = None
    age: int | None = None

    @property
    def any(self) -> bool:
        """Whether there is one at all."""
        return (self.rows, self.bytes, self.age) != (None, None, None)

    def reached(self, waiting: Waiting) -> bool:
        """Whether the table has waited for long enough. Deletes of rows in files go with the rows, or of age."""
        is_old = self.age is not None and (waiting.age_ms is None or waiting.age_ms >= self.age)
        is_long = self.rows is not None and waiting.rows >= self.rows
        return is_long or is_old or (self.bytes is not None and waiting.bytes >= self.bytes)


def waiting_tables(services: Services, name: str | None = None) -> list[Waiting]:
    """Tables with something to flush: all, or those of a namespace and below it, or the one table of that name.

    name: as DuckLake has it, `namespace` or `namespace.table`. NoSuchTable if it is neither.
    """
    with services.database.statement() as cursor:
        found = maintenance.tables(cursor, name, None, 0, None)
        if name is not None and not found:
            schema, _, table = name.rpartition(".")
            found = maintenance.tables(cursor, schema, table, 0, None)
            if not found:
                raise NoSuchTable(f"{name} is neither a table nor a namespace with tables")
        return maintenance.waiting(cursor, [table_id for table_id, _ in found])


def flush_waiting(services: Services, table: Waiting) -> Flushed:
    """Flush one of them; raises what `flush_rows` does."""
    return flush_rows(services, namespace_of(table.schema_name), table.table_name)


def flush_if_free(services: Services, table: Waiting) -> Flushed | None:
    """Flush a table unless another process is at it; what errors there may be `flush_rows` tells."""
    with services.database.statement() as cursor, flush.lease(cursor, table.table_id) as is_ours:
        return flush_waiting(services, table) if is_ours else None


def flushing_in_background(
    services: Services, thresholds: Thresholds, failed: Callable[[Waiting | None, Exception], object]
) -> AbstractContextManager[None]:
    """Flush tables that reach a threshold, for as long as the context lasts; `failed` hears of those that can't be."""
    if not thresholds.any:
        return nullcontext()
    return in_thread("flusher", _Flusher(replace(services, caller=_FLUSHER), thresholds, failed).run)


class _Flusher:
    """Looks at the tables again and again."""

    def __init__(
        self,
        services: Services,
        thresholds: Thresholds,
        failed: Callable[[Waiting | None, Exception], object],
    ) -> None:
        self._services = services
        self._thresholds = thresholds
        self._failed = failed
        self._left_alone: dict[int, float] = {}

    def run(self, ended: threading.Event) -> None:
        """Until the event is set: a flush under way comes to its end."""
        while not ended.wait(PAUSE):
            try:
                for table in waiting_tables(self._services):
                    if ended.is_set():
                        return
                    self._look_at(table)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look may find it gone
                self._tell(None, error)

    def _look_at(self, table: Waiting) -> None:
        if self._left_alone.get(table.table_id, 0) > monotonic() or not self._thresholds.reached(table):
            return
        try:
            flushed = flush_if_free(self._services, table)
        except NoSuchTable:  # it was dropped or renamed since it was listed
            return
        except Exception as error:  # noqa: BLE001 - whatever it was, the other tables are to be flushed
            self._leave_alone(table)
            self._tell(table, error)
            return
        if flushed is not None and flushed.snapshot_id is None:
            self._leave_alone(table)

    def _leave_alone(self, table: Waiting) -> None:
        self._left_alone[table.table_id] = monotonic() + _AFTER_FAILURE

    def _tell(self, table: Waiting | None, error: Exception) -> None:
        self._services.meter.task_failed("flush")
        with suppress(Exception):  # who can't hear of it doesn't keep rows from being flushed
            self._failed(table, error)
