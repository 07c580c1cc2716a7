"""The reporter protocol of jobs, and Spark's progress in tasks, rows and bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS: Final = 0.5


class Reporter(Protocol):
    """Hears of one step of work at a time."""

    def begin(self, what: str, total: int | None = None, unit: str = "") -> None:
        """Begin a step, as `reading flights.csv`; total: how much there is to do, None if unknown."""

    def advance(self, amount: int = 1) -> None:
        """Advance the step by so much."""

    def say(self, line: str) -> None:
        """Print a line that stays."""

    def done(self) -> None:
        """End the step."""


class SilentReporter:
    """Reports nothing."""

    def begin(self, what: str, total: int | None = None, unit: str = "") -> None:
        pass

    def advance(self, amount: int = 1) -> None:
        pass

    def say(self, line: str) -> None:
        pass

    def done(self) -> None:
        pass


SILENT: Final = SilentReporter()


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Of the stages that run, and those that ran since Spark was last idle: tasks, and rows and bytes read."""

    done: int
    total: int
    rows: int
    bytes: int


@contextmanager
def watch_tasks(spark: SparkSession, report: Callable[[TaskProgress | None], None]) -> Iterator[None]:
    """Report from a thread how far Spark is while the block runs; None when it is idle, or the block ends."""
    over = threading.Event()
    thread = threading.Thread(
        target=_watch_until_over, args=(spark.sparkContext, report, over), name="progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch_until_over(context: Any, report: Callable[[TaskProgress | None], None], over: threading.Event) -> None:
    stages: set[int] = set()
    with suppress(Exception):  # Spark has died, which others tell better
        while not over.wait(_POLL_SECONDS):
            active = set(context.statusTracker().getActiveStageIds())
            if active:
                stages |= active
                report(_read_tasks(context, stages))
            elif stages:
                stages.clear()
                report(None)
    if stages:
        report(None)


def _read_tasks(context: Any, stages: set[int]) -> TaskProgress:
    done = total = rows = read = 0
    store = context._jsc.sc().statusStore()  # noqa: SLF001
    for stage in stages:
        with suppress(Exception):  # Spark forgets old stages
            attempt = store.lastStageAttempt(stage)
            done += attempt.numCompleteTasks()
            total += attempt.numTasks()
            rows += attempt.inputRecords()
            read += attempt.inputBytes()
    return TaskProgress(done, total, rows, read)
