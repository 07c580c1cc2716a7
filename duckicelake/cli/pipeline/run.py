"""One run of a pipeline command: catalog, Spark session, summary and progress."""

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

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

from duckicelake.pipeline.launcher import ICEBERG_AWS_PACKAGE
from duckicelake.pipeline.progress import Reporter, SilentReporter, TaskProgress, watch_tasks
from duckicelake.pipeline.session import ListenerMode, build_listener_settings, build_parent_conf, open_spark_session
from duckicelake.pipeline.sources import parse_pairs
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection

_SECONDS_BETWEEN_LINES = 10.0
Summary = Mapping[str, Any] | None
"""What a command did, as JSON values; None: it has told it already."""
_ID_FIELDS = frozenset({"upto"})
"""Numbers of a summary that nobody counts."""


class Display(Reporter, Protocol):
    """A reporter that also shows what Spark does meanwhile."""

    def tasks(self, tasks: TaskProgress | None) -> None:
        """How far Spark is; None: it is idle."""


@contextmanager
def open_display(*, as_json: bool) -> Iterator[Display]:
    """What shows a command's progress."""
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
    """How much is done, of how much, as far as there is anything to count."""

    def render(self, task: Task) -> Text:
        done = f"{task.completed:,.0f}" if task.total or task.completed else ""
        return Text(f"{done}/{task.total:,.0f}" if task.total else done, style="progress.download")


class SilentDisplay(SilentReporter):
    """Shows nothing."""

    def tasks(self, tasks: TaskProgress | None) -> None:
        pass


class BarDisplay:
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

    def tasks(self, tasks: TaskProgress | None) -> None:
        if tasks is not None:
            far = f"{self._done_so_far()}, " if self._what and self._total is not None else ""
            self._sometimes(
                f"{self._what or 'Spark'}: {far}{tasks.done:,} of {tasks.total:,} tasks, {_describe_reads(tasks)}"
            )

    def _done_so_far(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        return f"{self._sofar:,}{of} {self._unit}".rstrip()

    def _sometimes(self, line: str) -> None:
        if time.monotonic() - self._told > _SECONDS_BETWEEN_LINES:
            self._told = time.monotonic()
            self.say(line)


def _describe_reads(tasks: TaskProgress) -> str:
    return f"{tasks.rows:,} rows and {decimal(tasks.bytes)} read"


@dataclass(frozen=True)
class PipelineRun:
    """One command that runs."""

    connection: Connection
    reporter: Display
    as_json: bool
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    lineage: ListenerMode = "auto"

    @cached_property
    def client(self) -> CatalogClient:
        return CatalogClient(self.connection)

    @contextmanager
    def spark(self, packages: Sequence[str] = ()) -> Iterator[Any]:
        """A session of Spark with the catalog `lake`, for as long as the context lasts."""
        config = self.client.config()  # a wrong address or password shows at once, not after Spark's attempts
        on_s3 = "S3FileIO" in config.get("defaults", {}).get("io-impl", "")
        conf = {**build_parent_conf(os.environ), **self.conf}
        listener = build_listener_settings(self.lineage, self.connection, self.client.logged_in(), conf)
        needed = (*packages, *listener.packages, *((ICEBERG_AWS_PACKAGE,) if on_s3 else ()))
        self.reporter.begin("starting Spark")
        told = open_spark_session(self.connection, master=self.master, conf=listener.conf, packages=needed)
        with _disable_logging(), told as session:
            self.reporter.done()
            with watch_tasks(session, self.reporter.tasks):
                yield session

    def tell(self, summary: Summary) -> None:
        """Print the summary: one JSON object, or lines for people."""
        if summary is None:
            return
        if self.as_json:
            typer.echo(json.dumps(summary, default=str))
            return
        for name, value in summary.items():
            if value not in (None, [], (), {}):
                typer.echo(f"{name.replace('_', ' '):20} {value if name in _ID_FIELDS else _format_value(value)}")


@contextmanager
def _disable_logging() -> Iterator[None]:
    """Without the lines that pyspark and py4j log about what they also raise."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def open_run(
    *, master: str | None, conf: Sequence[str] | None, lineage: ListenerMode, as_json: bool, **where: Any
) -> Iterator[PipelineRun]:
    """The run of these options; BadInput for a wrong one."""
    settings = parse_pairs("--conf", conf, "spark.driver.memory=4g")
    with open_display(as_json=as_json) as reporter:
        yield PipelineRun(Connection(**where), reporter, as_json, master, settings, lineage)


def _format_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
