"""Keep all lakes of a server in a process of its own: plan those that are due, and do their tasks."""

import os
import signal
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from multiprocessing import parent_process
from types import FrameType
from typing import Final

from duckicelake.catalog import warehouse
from duckicelake.catalog.context.background_threads import run_in_thread
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouses import (
    Warehouse,
    WarehouseWiring,
    close_warehouse,
    list_warehouses,
    open_warehouse,
    prepare_warehouse,
)
from duckicelake.cli.serve.process import end_on_signals
from duckicelake.cli.wiring.services import build_warehouse_wiring, open_services
from duckicelake.errors import CatalogError, UnavailableError
from duckicelake.lake.setup.format import require_known
from duckicelake.postgres.database import Database
from duckicelake.postgres.shared_pools import SchemaDatabase
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.settings.model import Settings
from duckicelake.storage.threads import DaemonCall
from duckicelake.upkeep import queue
from duckicelake.upkeep.planner import keeps_itself, plan_lake
from duckicelake.upkeep.sources import SourcePlanner, list_presence
from duckicelake.upkeep.worker import Worker, WorkerLimits

LOOK_SECONDS: Final = 2.0
"""Between two looks at a lake that has just had something to do."""
MAX_LOOK_SECONDS: Final = 60.0
_MIN_PAUSE_SECONDS: Final = 0.05
STOP_SECONDS: Final = 5.0
"""For which a task may go on after SIGTERM until it is given back and the process ends."""


class LakeRounds:
    """Goes round the lakes of a server: the first and its other warehouses. An idle one is looked at less often."""

    def __init__(self, first: Services, wiring: WarehouseWiring, worker: Worker, settings: Settings) -> None:
        self._first = first
        self._wiring = wiring
        self._worker = worker
        self._settings = settings
        self._open: OrderedDict[str, tuple[Warehouse, Services]] = OrderedDict()
        self._pauses: dict[str, tuple[float, float]] = {}
        """By lake: when it is looked at next, and after how long the time after that."""
        self._sources: dict[str, SourcePlanner] = {}
        self._rows: list[Warehouse] = []
        self._names: dict[str, str] = {}
        """Of the lakes in the first one's database, by schema."""
        self._notices = first.database.open_listener(queue.CHANNEL)

    def run(self, idle_seconds: float | None = None) -> None:
        """Go round until it is stopped, or until nothing was to be done for so many seconds.

        Where Postgres is away, wait for it if there is no such number, else raise UnavailableError.
        """
        try:
            while not self._worker.stopped.is_set():
                try:
                    with self._notices.connect() as cursor, run_in_thread("upkeep-notes", self._note_until):
                        self._names[queue.read_schema(cursor)] = ""
                        self._go_round_until(idle_seconds)
                except UnavailableError as error:
                    if idle_seconds is not None:
                        raise
                    sys.stderr.write(f"upkeep: {error}\n")
                    self._notices.rest(LOOK_SECONDS)
                else:
                    return
        finally:
            self._notices.release()
            for name in [*self._open]:
                self._close(name)

    def stop(self) -> None:
        """End a pause of `run`, in which it then finds that the worker is stopped; from another thread."""
        self._notices.close()

    def _go_round_until(self, idle_seconds: float | None) -> None:
        used_at = time.monotonic()
        while not self._worker.stopped.is_set():
            if self._go_round():
                used_at = time.monotonic()
            elif idle_seconds is not None and time.monotonic() - used_at > idle_seconds:
                return
            else:
                for schema in self._notices.wait(self._find_pause()) & self._names.keys():
                    self._pauses.pop(self._names[schema], None)

    def _find_pause(self) -> float:
        """Find after how many seconds to go round again at the latest."""
        open_lakes = (planner for name, planner in self._sources.items() if self._is_open(name) and planner.is_used)
        next_at = min((planner.next_at for planner in open_lakes), default=inf)
        return max(_MIN_PAUSE_SECONDS, min(LOOK_SECONDS / 2, next_at - time.monotonic()))

    def _go_round(self) -> bool:
        """Do one task of each lake that has one; return whether any had."""
        self._rows = rows = [row for row in list_warehouses(self._first) if row.is_active]
        self._names |= {row.schema_name: row.name for row in rows if row.database_url is None}
        found = self._look("", lambda: self._first)
        for row in rows:
            if self._worker.stopped.is_set():
                break
            found |= self._look(row.name, lambda row=row: self._reach(row))  # type: ignore[misc]
        for name in set(self._open) - {row.name for row in rows}:
            self._close(name)
        return found

    def _note_until(self, ended: threading.Event) -> None:
        """Note again and again that this process looks at its lakes, while a task keeps it from that."""
        calls: dict[str, DaemonCall[None]] = {}
        while not ended.wait(queue.HEARTBEAT_SECONDS):
            for server, databases in self._list_databases().items() if self._worker.is_busy else ():
                if server not in calls or calls[server].wait(0):
                    calls[server] = DaemonCall(partial(_note_presence, databases, list_presence(self._settings)))

    def _list_databases(self) -> dict[str, list[Database]]:
        """List the databases of lakes: of all that are in the first one's, and of others that are open."""
        database = self._first.database
        beside = [SchemaDatabase(database, row.schema_name) for row in self._rows if row.database_url is None]
        elsewhere = {row.name: [lake.database] for row, lake in [*self._open.values()] if row.database_url is not None}
        return {"": [database, *beside], **elsewhere}

    def _look(self, name: str, reach: Callable[[], Services]) -> bool:
        at, pause = self._pauses.get(name, (0.0, LOOK_SECONDS))
        sources = self._sources.get(name)
        if sources is None:
            sources = self._sources[name] = SourcePlanner(self._settings, partial(_report, name))
        is_look = time.monotonic() >= at
        if not is_look and not self._is_source_due(name, sources):
            return False
        try:
            found = self._keep(reach(), sources, is_look=is_look)
        except Exception as error:  # noqa: BLE001 - the lakes of a server fail one by one, whatever it was
            _report(name, error)
            found, is_look = False, True
            sources.rest(pause)
        if is_look or found:
            pause = LOOK_SECONDS if found else min(2 * pause, MAX_LOOK_SECONDS)
            self._pauses[name] = (time.monotonic() + (0 if found else pause), pause)
        return found

    def _is_source_due(self, name: str, sources: SourcePlanner) -> bool:
        """Return whether a feature is due that looks at a lake; none opens a lake again that was closed for others."""
        return self._is_open(name) and sources.is_used and time.monotonic() >= sources.next_at

    def _is_open(self, name: str) -> bool:
        return not name or name in self._open

    def _keep(self, services: Services, sources: SourcePlanner, *, is_look: bool) -> bool:
        """Plan a lake if that is due, and do one of its tasks; return whether there was one."""
        if not plan_if_due(services, sources, self._settings.upkeep_seconds, is_look=is_look):
            return False
        warehouse.look(services)
        return self._worker.work(services)

    def _reach(self, row: Warehouse) -> Services:
        known = self._open.get(row.name)
        if known is not None and known[0] == row:
            self._open.move_to_end(row.name)
            return known[1]
        self._close(row.name)
        if len(self._open) >= self._settings.open_warehouses:
            self._close(next(iter(self._open)))
        services = open_warehouse(self._first, self._wiring, row)
        try:
            prepare_warehouse(services)  # no server may have opened it since its upgrade
        except BaseException:
            close_warehouse(self._first, services)
            raise
        self._open[row.name] = row, services
        return services

    def _close(self, name: str) -> None:
        found = self._open.pop(name, None)
        if found is not None:
            close_warehouse(self._first, found[1])


def _note_presence(databases: Sequence[Database], settings: Sequence[str]) -> None:
    for database in databases:
        with suppress(Exception), database.statement() as cursor:  # the look at a lake says what is wrong with it
            queue.note_presence(cursor, settings)


def _report(name: str, error: Exception) -> None:
    message = str(error) if isinstance(error, CatalogError) else f"{type(error).__name__}: {error}"
    sys.stderr.write(f"upkeep of {name or 'the first warehouse'}: {message}\n")


def plan_if_due(services: Services, sources: SourcePlanner, seconds: float, *, is_look: bool = True) -> bool:
    """Plan a lake that keeps itself, if that is due, and what features want; return whether a task may be taken.

    is_look: also ask the features that are asked at each look.
    """
    sources.plan(services, is_look=is_look)
    with services.database.statement() as cursor:
        found = queue.watch_lake(cursor)
    is_planned = bool(found.is_plan_due and keeps_itself(services, found.policies) and plan_lake(services, seconds))
    return is_planned or found.has_open_task


def build_limits(settings: Settings) -> WorkerLimits:
    """Build what a worker may take from the settings."""
    return WorkerLimits(
        settings.upkeep_memory_bytes, settings.upkeep_disk_bytes, settings.upkeep_tasks, settings.upkeep_share
    )


def work(settings: Settings, log: Callable[[str], object], idle_seconds: float | None = None) -> None:
    """Keep the lakes of a server until SIGTERM or SIGINT, or until nothing was to be done for so many seconds.

    settings: with the database's URL and the warehouse's folder. Raises UnavailableError, StartupError.
    """
    worker = Worker(build_limits(settings), log)
    with open_services(settings) as services:
        require_known(services.database)
        rounds = LakeRounds(services, build_warehouse_wiring(settings), worker, settings)
        with _stopped_by_signals(worker, rounds):
            rounds.run(idle_seconds)


@contextmanager
def _stopped_by_signals(worker: Worker, rounds: LakeRounds) -> Iterator[None]:
    """Stop the worker at a signal, and soon after it end the process."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        worker.stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    ended = threading.Event()
    threading.Thread(target=_end_late, args=(worker, rounds, ended), name="upkeep-deadline", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_late(worker: Worker, rounds: LakeRounds, ended: threading.Event) -> None:
    worker.stopped.wait()
    rounds.stop()
    if not ended.wait(STOP_SECONDS):
        worker.abandon()
        os._exit(0)


def run_child(settings: Settings, idle_seconds: float | None) -> None:
    """Run in a process that a server or command has started, for as long as that lives."""
    end_on_signals()
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.join,), name="parent-watch", daemon=True).start()
    log = make_logger(sys.stderr, settings.log_format)
    try:
        work(settings, lambda text: log.info("upkeep", task=text), idle_seconds)
    except CatalogError as error:
        log.warning("upkeep could not go on", error=str(error))


def _end_with(join: Callable[[], object]) -> None:
    join()
    os.kill(os.getpid(), signal.SIGTERM)
