"""How far a job is: bars on a terminal, plain lines elsewhere, nothing with --json. All of it goes to stderr."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from duckicelake.pipeline.progress import Tasks
from duckicelake.pipeline.reporting import Reporter, Silent

_SECONDS_BETWEEN_LINES = 10.0


class Display(Reporter, Protocol):
    """A reporter that also shows what Spark does meanwhile."""

    def tasks(self, tasks: Tasks | None) -> None:
        """How far Spark is; None: it is idle."""


@contextmanager
def display(*, as_json: bool) -> Iterator[Display]:
    """What shows a command's progress."""
    console = Console(stderr=True, highlight=False)
    if as_json:
        yield Nothing()
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            Count(),
            TextColumn("{task.fields[unit]}"),
        )
        with Progress(
            *columns,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            redirect_stdout=sys.stdout.isatty(),  # else what goes to a file would go to the terminal
        ) as progress:
            yield Bars(progress)
    else:
        yield Lines()


class Count(ProgressColumn):
    """How much is done, of how much, as far as there is anything to count."""

    def render(self, task: Task) -> Text:
        done = f"{task.completed:,.0f}" if task.total or task.completed else ""
        return Text(f"{done}/{task.total:,.0f}" if task.total else done, style="progress.download")


class Nothing(Silent):
    """Shows nothing."""

    def tasks(self, tasks: Tasks | None) -> None:
        pass


class Bars:
    """A bar for the step that is under way, and one below it for Spark's tasks; steps that are done stay."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._step: TaskID | None = None
        self._spark: TaskID | None = None

    def begin(self, what: str, total: int | None = None, unit: str = "") -> None:
        self.done()
        self._step = self._progress.add_task(what, total=total, unit=unit)

    def advance(self, amount: int = 1) -> None:
        if self._step is not None:
            self._progress.advance(self._step, amount)

    def say(self, line: str) -> None:
        self._progress.console.print(line, markup=False)

    def done(self) -> None:
        if self._step is not None:
            task = self._progress.tasks[self._progress.task_ids.index(self._step)]
            self._progress.update(self._step, total=task.completed if task.total is None else task.total)
            self._progress.stop_task(self._step)
            self._step = None

    def tasks(self, tasks: Tasks | None) -> None:
        if self._spark is not None and tasks is None:
            self._progress.remove_task(self._spark)
            self._spark = None
        elif tasks is not None:
            if self._spark is None:
                self._spark = self._progress.add_task("  Spark", unit="")
            self._progress.update(self._spark, completed=tasks.done, total=tasks.total, unit=f"tasks, {_read(tasks)}")


class Lines:
    """A line when a step begins and one when it is done, and now and then one in between."""

    def __init__(self) -> None:
        self._what, self._unit = "", ""
        self._total: int | None = None
        self._sofar = 0
        self._began = self._told = time.monotonic()

    def begin(self, what: str, total: int | None = None, unit: str = "") -> None:
        self.done()
        self._what, self._total, self._unit, self._sofar = what, total, unit, 0
        self._began = self._told = time.monotonic()
        self.say(f"{what} …" if total is None else f"{what}: {total:,} {unit}".rstrip())

    def advance(self, amount: int = 1) -> None:
        self._sofar += amount
        self._sometimes(f"{self._what}: {self._done_so_far()}")

    def say(self, line: str) -> None:
        typer.echo(line, err=True)

    def done(self) -> None:
        if self._what:
            self.say(f"{self._what}: done in {time.monotonic() - self._began:.1f} s")
            self._what = ""

    def tasks(self, tasks: Tasks | None) -> None:
        if tasks is not None:
            far = f"{self._done_so_far()}, " if self._what and self._total is not None else ""
            self._sometimes(f"{self._what or 'Spark'}: {far}{tasks.done:,} of {tasks.total:,} tasks, {_read(tasks)}")

    def _done_so_far(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        return f"{self._sofar:,}{of} {self._unit}".rstrip()

    def _sometimes(self, line: str) -> None:
        if time.monotonic() - self._told > _SECONDS_BETWEEN_LINES:
            self._told = time.monotonic()
            self.say(line)


def _read(tasks: Tasks) -> str:
    return f"{tasks.rows:,} rows and {decimal(tasks.bytes)} read"
