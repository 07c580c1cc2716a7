"""How far Spark is with what it does now: tasks, rows and bytes, out of its own status."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Tasks:
    """Of the stages that run, and those that ran since Spark was last idle: tasks, and rows and bytes read."""

    done: int
    total: int
    rows: int
    bytes: int


@contextmanager
def watching(spark: SparkSession, tell: Callable[[Tasks | None], None]) -> Iterator[None]:
    """Tell, from a thread, how far Spark is while the block runs; None when it has become idle, or the block ends."""
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(spark.sparkContext, tell, over), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(context: Any, tell: Callable[[Tasks | None], None], over: threading.Event) -> None:
    stages: set[int] = set()
    with suppress(Exception):  # Spark has died, which others tell better
        while not over.wait(_SECONDS):
            active = set(context.statusTracker().getActiveStageIds())
            if active:
                stages |= active
                tell(_tasks(context, stages))
            elif stages:
                stages.clear()
                tell(None)
    if stages:
        tell(None)


def _tasks(context: Any, stages: set[int]) -> Tasks:
    done = total = rows = read = 0
    store = context._jsc.sc().statusStore()  # noqa: SLF001
    for stage in stages:
        with suppress(Exception):  # Spark forgets old stages
            attempt = store.lastStageAttempt(stage)
            done += attempt.numCompleteTasks()
            total += attempt.numTasks()
            rows += attempt.inputRecords()
            read += attempt.inputBytes()
    return Tasks(done, total, rows, read)
