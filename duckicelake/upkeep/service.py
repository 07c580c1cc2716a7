"""The upkeep of a server: a thread for each open lake plans it, and starts processes while there are tasks."""

import fcntl
import hashlib
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import IO, Final

from duckicelake.catalog.context.background_threads import run_in_thread
from duckicelake.catalog.context.services import Services
from duckicelake.cli.serve.hooks import FeatureService, TaskReporter
from duckicelake.errors import CatalogError
from duckicelake.settings.model import Settings
from duckicelake.upkeep import queue
from duckicelake.upkeep.planner import keeps_itself
from duckicelake.upkeep.process import STOP_SECONDS, plan_if_due, run_child
from duckicelake.upkeep.sources import SourcePlanner, explain_missing_worker, list_presence

_LOOK_SECONDS: Final = 5.0
_IDLE_LOOK_SECONDS: Final = 30.0
"""Between two looks at a lake that doesn't keep itself and has no task."""
_CHILD_IDLE_SECONDS: Final = 120.0
"""After which a process ends that has nothing to do: more than between two plans, as its start takes 2 s."""
_STATES: Final = ("queued", "running", "waiting", "blocked", "failed", "done")


class WorkerProcesses:
    """Processes that do tasks, shared by the lakes and the workers of a server.

    A lock on a file in the folder for temporary files is a place: there are as many as the server may have processes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._children: list[tuple[BaseProcess, IO[str]]] = []

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep the processes for as long as any such context lasts."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._end()

    def start(self, settings: Settings) -> None:
        """Start processes in the places that are free. The server's workers have one parent, and so the same places."""
        with self._lock:
            self._remove_ended()
            for number in range(settings.upkeep_workers):
                place = _take_place(settings, number)
                if place is None:
                    continue
                context = multiprocessing.get_context("spawn")
                child = context.Process(target=run_child, args=(settings, _CHILD_IDLE_SECONDS), name="upkeep")
                child.start()
                self._children.append((child, place))

    def _remove_ended(self) -> None:
        for child, place in [*self._children]:
            if not child.is_alive():
                child.join()
                place.close()
                self._children.remove((child, place))

    def _end(self) -> None:
        for child, _ in self._children:
            child.terminate()
        for child, place in self._children:
            child.join(STOP_SECONDS + 1)
            if child.is_alive():
                child.kill()
                child.join()
            place.close()
        self._children.clear()


def _take_place(settings: Settings, number: int) -> IO[str] | None:
    parent = multiprocessing.parent_process()
    server = os.getpid() if parent is None else parent.pid
    key = hashlib.sha256(f"{settings.database_url} {server} {number}".encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"duckicelake-upkeep-{os.getuid()}-{key}.lock")
    place = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "w")
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        place.close()
        return None
    return place


_PROCESSES: Final = WorkerProcesses()
_PLANNERS: Final[set["LakePlanner"]] = set()
"""Those of the lakes that are open."""


def wake_planner(services: Services) -> None:
    """Have this server look at a lake at once, as a task was asked for."""
    for planner in [*_PLANNERS]:
        if planner.looks_at(services):
            planner.wake()


class UpkeepService(FeatureService):
    """Plans each open lake, and starts processes for its tasks."""

    @contextmanager
    def run_tasks(self, settings: Settings, services: Services, report: TaskReporter) -> Iterator[None]:
        """Plan the lake for as long as the context lasts."""
        _warn_of_missing_worker(services, report, list_presence(settings) if settings.upkeep_workers else ())
        if settings.upkeep_workers == 0:
            yield
            return
        planner = LakePlanner(settings, services, report.on_failure("upkeep", "the lake's upkeep could not be planned"))
        with _PROCESSES.hold(), run_in_thread("upkeep", planner.run):
            _PLANNERS.add(planner)
            try:
                yield
            finally:
                _PLANNERS.discard(planner)
                planner.stop()


def _warn_of_missing_worker(services: Services, report: TaskReporter, presence: Sequence[str]) -> None:
    """Log what nothing does in the lake: neither this server, which looks by these settings, nor another process."""
    with suppress(CatalogError), services.database.statement(only_reads=True) as cursor:
        missing = explain_missing_worker(cursor, presence)
        if missing is not None:
            report.log_warning(missing.detail, advice=missing.advice, warehouse=services.warehouse or "default")


class LakePlanner:
    """Looks at one lake again and again: plans it, counts its tasks, and starts processes for them."""

    def __init__(self, settings: Settings, services: Services, failed: Callable[[Exception], object]) -> None:
        self._settings = settings
        self._services = services
        self._failed = failed
        self._sources = SourcePlanner(settings, failed)
        self._look_at = 0.0
        """When the lake is looked at next, by `monotonic`."""
        self._failures: dict[str, int] = {}
        self._news = threading.Event()
        self._is_stopped = False

    def looks_at(self, services: Services) -> bool:
        """Return whether it plans the lake of these services, whoever asks by them."""
        return services.database is self._services.database

    def wake(self) -> None:
        """End the pause until the next look."""
        self._news.set()

    def stop(self) -> None:
        """End the pause, and `run` with it."""
        self._is_stopped = True
        self._news.set()

    def run(self, ended: threading.Event) -> None:
        """Look until it is stopped, or the event is set."""
        pause = _LOOK_SECONDS
        while True:
            is_woken = self._news.wait(pause)
            self._news.clear()
            if self._is_stopped or ended.is_set():
                return
            try:
                pause = self._plan(is_woken=is_woken)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look may find it gone
                self._failed(error)
                pause = self._find_pause()

    def _plan(self, *, is_woken: bool) -> float:
        """Look at the lake, or only ask the features that are due; return the seconds until either is due again."""
        if is_woken or monotonic() >= self._look_at:
            self._look_at = monotonic() + _IDLE_LOOK_SECONDS  # if it fails, following goes on until the next
            self._look_at = monotonic() + self._look()
        elif self._sources.plan(self._services, is_look=False):
            _PROCESSES.start(self._settings)
        return self._find_pause()

    def _find_pause(self) -> float:
        return max(0.0, min(self._look_at, self._sources.next_at) - monotonic())

    def _look(self) -> float:
        """Look once; return the seconds until the next look."""
        has_task = plan_if_due(self._services, self._sources, self._settings.upkeep_seconds)
        with self._services.database.statement() as cursor:
            totals = {total.state: total for total in queue.count_tasks(cursor)}
            policies = queue.read_policies(cursor)
            failures = queue.count_failures(cursor) if totals else {}
        open_states = [totals[state] for state in ("queued", "waiting") if state in totals]
        oldest = max((total.age for total in open_states), default=0.0)
        counts = {state: totals[state].tasks if state in totals else 0 for state in _STATES}
        self._services.meter.upkeep_queued(self._services.warehouse or "default", counts, oldest)
        self._failures = dict.fromkeys(self._failures, 0) | failures
        self._services.meter.upkeep_failed(self._services.warehouse or "default", self._failures)
        if has_task:
            _PROCESSES.start(self._settings)
        return _LOOK_SECONDS if totals or keeps_itself(self._services, policies) else _IDLE_LOOK_SECONDS


SERVICE: Final = UpkeepService()
