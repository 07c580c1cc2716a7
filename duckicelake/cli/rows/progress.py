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
"""Gets the number of bytes read so far."""


@contextmanager
def show_progress(writer: Writer, what: str, size: int | None) -> Iterator[ReadCallback]:
    """Show the progress of the writer during the block. size: bytes of the input, None if unknown."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _build_line_printer(writer)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), RowsColumn(writer), TimeElapsedColumn())
    # Transient, because the summary repeats it. Unredirected output for a file or pipe must not go to the terminal.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bars:
        task = bars.add_task(what, total=size)
        yield lambda bytes_: bars.update(task, completed=bytes_)


class RowsColumn(ProgressColumn):
    """Shows rows, rows per second, and trouble of the writer, as of each redraw of the bar."""

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer

    def render(self, task: Task) -> Text:
        return Text(describe_progress(self._writer.progress, task.elapsed or 0.0))


def describe_progress(progress: Written, seconds: float) -> str:
    """Describe the progress after some seconds in one line."""
    parts = [f"{progress.written:,} rows", f"{progress.written / max(seconds, 1e-3):,.0f} rows/s"]
    if progress.skipped:
        parts.append(f"{progress.skipped:,} skipped")
    parts.append(f"{progress.retries:,} retries")
    if progress.trouble:
        parts.append(f"waiting: {progress.trouble}")
    return ", ".join(parts)


def _build_line_printer(writer: Writer) -> ReadCallback:
    began = last = time.monotonic()

    def print_line(_: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            typer.echo(describe_progress(writer.progress, now - began), err=True)

    return print_line
