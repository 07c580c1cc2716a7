"""Progress of a writer of rows: a bar on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from duckicelake.client.stream import Progress as Written
from duckicelake.client.writer import Writer

_SECONDS_BETWEEN_LINES: Final = 10.0

ReadCallback = Callable[[int], None]
"""Told how many bytes have been read so far."""


@contextmanager
def show_progress(writer: Writer, what: str, size: int | None) -> Iterator[ReadCallback]:
    """Show how far the writer is while the block runs. size: bytes to be read, if that is known."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _build_line_printer(writer)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), RowsColumn(writer), TimeElapsedColumn())
    # Transient, as the summary says the same. Redirected, what goes to a file or pipe would go to the terminal.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bars:
        task = bars.add_task(what, total=size)
        yield lambda bytes_: bars.update(task, completed=bytes_)


class RowsColumn(ProgressColumn):
    """Rows, rows a second, and what is wrong, asked of the writer each time the bar is drawn."""

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer

    def render(self, task: Task) -> Text:
        return Text(describe_progress(self._writer.progress, task.elapsed or 0.0))


def describe_progress(progress: Written, seconds: float) -> str:
    """A line that says how far it is after so many seconds."""
    parts = [f"{progress.written:,} rows", f"{progress.written / max(seconds, 1e-3):,.0f} rows/s"]
    if progress.skipped:
        parts.append(f"{progress.skipped:,} skipped")
    parts.append(f"{progress.retries:,} retries")
    if progress.trouble:
        parts.append(f"waiting: {progress.trouble}")
    return ", ".join(parts)


def _build_line_printer(writer: Writer) -> ReadCallback:
    began = last = time.monotonic()

    def tell(_: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            typer.echo(describe_progress(writer.progress, now - began), err=True)

    return tell
