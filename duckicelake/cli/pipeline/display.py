"""Progress of a pipeline command: bars on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

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

from duckicelake.errors import format_count
from duckicelake.pipeline.progress import Reporter, SilentReporter, TaskProgress

_SECONDS_BETWEEN_LINES: Final = 10.0


class Display(Reporter, Protocol):
    """A reporter that also shows what Spark does meanwhile."""

    def tasks(self, tasks: TaskProgress | None) -> None:
        """Show how far Spark is. tasks: None if it is idle."""


@contextmanager
def open_display(*, as_json: bool) -> Iterator[Display]:
    """Open the display for a command's progress: bars on a terminal, lines elsewhere, nothing with --json."""
    console = Console(stderr=True, highlight=False)
    if as_json:
        yield SilentDisplay()
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            CountColumn(),
            TextColumn("{task.fields[unit]}"),
        )
        with Progress(
            *columns,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            redirect_stdout=sys.stdout.isatty(),  # else what goes to a file would go to the terminal
        ) as progress:
            yield BarDisplay(progress)
    else:
        yield LineDisplay()


class CountColumn(ProgressColumn):
    """Shows how much is done, of how much."""

    def render(self, task: Task) -> Text:
        done = f"{task.completed:,.0f}" if task.total or task.completed else ""
        return Text(f"{done}/{task.total:,.0f}" if task.total else done, style="progress.download")


class SilentDisplay(SilentReporter):
    """Shows nothing."""

    def tasks(self, tasks: TaskProgress | None) -> None:
        pass


class BarDisplay:
    """Shows a bar for each step, and one below the current step for Spark's tasks; bars of finished steps stay."""

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

    def tasks(self, tasks: TaskProgress | None) -> None:
        if self._spark is not None and tasks is None:
            self._progress.remove_task(self._spark)
            self._spark = None
        elif tasks is not None:
            if self._spark is None:
                self._spark = self._progress.add_task("  Spark", unit="")
            self._progress.update(
                self._spark, completed=tasks.done, total=tasks.total, unit=f"tasks, {_describe_reads(tasks)}"
            )


class LineDisplay:
    """Prints a line when a step begins and when it is done, and one every ten seconds in between."""

    def __init__(self) -> None:
        self._what, self._unit = "", ""
        self._total: int | None = None
        self._sofar = 0
        self._began = self._last_printed = time.monotonic()

    def begin(self, what: str, total: int | None = None, unit: str = "") -> None:
        self.done()
        self._what, self._total, self._unit, self._sofar = what, total, unit, 0
        self._began = self._last_printed = time.monotonic()
        self.say(f"{what} …" if total is None else f"{what}: {total:,} {unit}".rstrip())

    def advance(self, amount: int = 1) -> None:
        self._sofar += amount
        self._say_rarely(f"{self._what}: {self._done_so_far()}")

    def say(self, line: str) -> None:
        typer.echo(line, err=True)

    def done(self) -> None:
        if self._what:
            self.say(f"{self._what}: done in {time.monotonic() - self._began:.1f} s")
            self._what = ""

    def tasks(self, tasks: TaskProgress | None) -> None:
        if tasks is not None:
            far = f"{self._done_so_far()}, " if self._what and self._total is not None else ""
            counted = f"{tasks.done:,} of {format_count(tasks.total, 'task')}"
            self._say_rarely(f"{self._what or 'Spark'}: {far}{counted}, {_describe_reads(tasks)}")

    def _done_so_far(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        return f"{self._sofar:,}{of} {self._unit}".rstrip()

    def _say_rarely(self, line: str) -> None:
        if time.monotonic() - self._last_printed > _SECONDS_BETWEEN_LINES:
            self._last_printed = time.monotonic()
            self.say(line)


def _describe_reads(tasks: TaskProgress) -> str:
    return f"{format_count(tasks.rows, 'row')} and {decimal(tasks.bytes)} read"
