"""Open the process that reads and writes a task's files, keep it for the next task, and slow it down beside writers."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Lock, Timer
from typing import Final

from duckicelake.catalog.context.background_threads import run_in_thread
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.upkeep_tasks import TaskControl
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.query.processes import OpenOrder, QueryLimits, QueryProcess
from duckicelake.query.queries import build_open_order
from duckicelake.query.reach import build_secrets, is_in_buckets
from duckicelake.rewrites.catalog_copy import attach_postgres
from duckicelake.rewrites.rows import RewriteProcess

_WORKER: Final = Path(__file__).with_name("worker.py")
_STATEMENT_SECONDS: Final = 5 * 3600.0
"""Of one statement, which reads one group of files, or some columns, and rests most of the time beside writers."""
_THREAD_BYTES: Final = 128 * 1024 * 1024
"""Of memory for each thread of DuckDB's, which holds row groups that it reads and writes."""
KEPT_SECONDS: Final = 10.0
"""For which a process is kept that has no task."""
_WORK_SECONDS: Final = 0.05
"""For which a process works at a time where it is to rest."""


class ProcessKeeper:
    """Keeps the process of the last task for a while: to start one takes as long as 200 files."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: tuple[_ProcessKey, QueryProcess] | None = None

    def take(self, key: "_ProcessKey") -> QueryProcess | None:
        """Return the kept process if it is alive and opened the same lake in the same way; else end it."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is None:
            return None
        if kept[0] == key and kept[1].is_alive:
            return kept[1]
        kept[1].kill()
        return None

    def keep(self, key: "_ProcessKey", process: QueryProcess) -> None:
        """Keep a process that has nothing to do, in the place of the one before."""
        process.used_at = time.monotonic()
        with self._lock:
            before, self._kept = self._kept, (key, process)
        if before is not None:
            before[1].kill()
        timer = Timer(KEPT_SECONDS, self._end_unused)
        timer.daemon = True
        timer.start()

    def _end_unused(self) -> None:
        with self._lock:
            kept = self._kept
            if kept is None or time.monotonic() - kept[1].used_at < KEPT_SECONDS:
                return
            self._kept = None
        kept[1].kill()


_ProcessKey = tuple[OpenOrder, QueryLimits]
_KEEPER: Final = ProcessKeeper()


@contextmanager
def open_process(
    services: Services,
    control: TaskControl,
    namespace: Namespace,
    name: str,
    *,
    has_wide_rows: bool = False,
) -> Iterator[RewriteProcess]:
    """Have a process that reads versions of a table for as long as the block. MissingExtraError without `queries`.

    control: of the task; beside writers the process works a share of the time. has_wide_rows: one thread writes small
    row groups, where there was no memory for those of several.

    A new one starts beside the block. It is kept for the next task unless a statement fails.
    """
    limits = QueryLimits(1, control.memory_bytes, control.scratch_bytes, _STATEMENT_SECONDS, 0)
    order = attach_postgres(services, build_open_order(services, is_restricted=False))
    cores = os.cpu_count() or 1
    threads = 1 if has_wide_rows else max(1, min(cores, limits.memory_bytes // _THREAD_BYTES))
    order = replace(order, settings={**order.settings, "preserve_insertion_order": True, "threads": threads})
    kept = _KEEPER.take((order, limits))
    process = kept or QueryProcess(_WORKER)
    try:
        keys = build_secrets(services, [(namespace, name)]) if is_in_buckets(services) else {}
        if kept is None:
            process.begin_open(order, limits)
        opened = RewriteProcess(process, limits, has_wide_rows, keys, is_open=kept is not None)
        with run_in_thread("upkeep-pace", partial(_take_turns, opened, control, cores / threads)):
            yield opened
    except BaseException:
        process.kill()
        raise
    if opened.is_open and not opened.has_failed:
        _KEEPER.keep((order, limits), process)
    else:
        process.kill()


def _take_turns(opened: RewriteProcess, control: TaskControl, cores_per_thread: float, ended: Event) -> None:
    """Have a process rest so much of the time that it has the task's share of the cores, until the event."""
    while not ended.wait(_WORK_SECONDS):
        share = control.share * cores_per_thread
        if opened.is_open and share < 1:
            with opened.turn, opened.process.pause():
                ended.wait(_WORK_SECONDS / share - _WORK_SECONDS)
