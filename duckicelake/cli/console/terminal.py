"""Print tables, JSON and progress bars; read times and print counts as people write them."""

from __future__ import annotations

import io
import os
import re
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import typer

from duckicelake.errors import InvalidRequestError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table
    from rich.text import Text

_AGE_PATTERN = re.compile(r"(\d+)\s*([smhdw])")
_UNIT_NAMES = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PIPE_WIDTH_COLUMNS: Final = 500
"""Width where the output is no terminal: each entry is one line there."""
_GAP_COLUMNS: Final = 2
"""Between the columns of a table without lines."""
_LEAST_COLUMNS: Final = 8
"""Of a text that is cut."""
CLOSED_OUTPUT_EXIT_CODE: Final = 141
"""Of a program that SIGPIPE ends, as shells say it."""
_WATCH_MILLISECONDS: Final = 500
_GRACE_SECONDS: Final = 0.5
RowPrinter = Callable[[Sequence[str], Sequence[Sequence[str]], frozenset[int]], None]
ROW_PRINTER: Final[ContextVar[RowPrinter | None]] = ContextVar("row_printer", default=None)
"""What prints the rows of descriptions in place of `print_rows`, as the shell does in its format."""


HAS_PAGER: Final[ContextVar[bool]] = ContextVar("has_pager", default=True)
"""Whether what is longer than the terminal goes through $PAGER; `duckicelake --no-pager` says no."""
_LESS_OPTIONS: Final = "FRX"
"""Of less, unless LESS is set, as git has it: leave if all fits, show colours, leave the screen as it is."""


class OutputFile(io.FileIO):
    """Standard output, which keeps why it couldn't be written."""

    problem: OSError | None = None

    @classmethod
    def open(cls) -> OutputFile | None:
        """Have `sys.stdout` write to one; None if that is no file."""
        before = sys.stdout
        if before is not sys.__stdout__ or not isinstance(before, io.TextIOWrapper):
            return None
        found = cls(before.fileno(), "wb", closefd=False)
        is_raw = isinstance(before.buffer, io.RawIOBase)
        sys.stdout = io.TextIOWrapper(
            cast("Any", found if is_raw else io.BufferedWriter(found)),
            encoding=before.encoding,
            errors=before.errors,
            line_buffering=before.line_buffering,
            write_through=before.write_through,
        )
        return found

    def write(self, content: Any) -> int:
        """Write bytes; what prevents that is kept, and raised."""
        try:
            return super().write(content)
        except OSError as error:
            self.problem = error
            raise

    def close_output(self) -> OSError | None:
        """Write what remains, give `sys.stdout` back, and return what prevented to write."""
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        sys.stdout = cast("io.TextIOWrapper", sys.__stdout__)
        return self.problem


@contextmanager
def follow_until_interrupted() -> Iterator[None]:
    """Run the block until Ctrl-C, or until the reader of standard output leaves: then exit as if SIGPIPE ended it."""
    with suppress(KeyboardInterrupt), _watch_reader():
        yield


@contextmanager
def _watch_reader() -> Iterator[None]:
    """Exit when the reader of standard output leaves, even while the block waits and writes nothing."""
    output = _find_pipe()
    if output is None:
        yield
        return
    has_left, has_ended, thread = Event(), Event(), threading.get_ident()

    def watch() -> None:
        poll = select.poll()
        poll.register(output.fileno(), 0)  # errors alone
        while not has_ended.is_set():
            if not poll.poll(_WATCH_MILLISECONDS):
                continue
            if not has_ended.wait(_GRACE_SECONDS) and output.problem is None:  # what the block writes fails by itself
                has_left.set()
                signal.pthread_kill(thread, signal.SIGPIPE)
            return

    def leave(*_: Any) -> None:
        if has_left.is_set():  # else a socket was closed, which its writer learns
            raise SystemExit(CLOSED_OUTPUT_EXIT_CODE)

    before = signal.signal(signal.SIGPIPE, leave)
    Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        has_ended.set()
        signal.signal(signal.SIGPIPE, before)


def _find_pipe() -> OutputFile | None:
    """Return standard output if that is a pipe."""
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if not isinstance(raw, OutputFile) or not stat.S_ISFIFO(os.fstat(raw.fileno()).st_mode):
        return None
    return raw


class _PagedText(io.StringIO):
    """A terminal's text, kept until all of it is there."""

    def isatty(self) -> bool:
        return True


@contextmanager
def open_pager() -> Iterator[None]:
    """Show what the block prints by the pager, if it goes to a terminal and is longer than that."""
    if not (HAS_PAGER.get() and sys.stdout.isatty()):
        yield
        return
    text, terminal = _PagedText(), sys.stdout
    try:
        with redirect_stdout(text):
            yield
    finally:
        sys.stdout = terminal
        page_text(text.getvalue())


def page_text(text: str) -> None:
    """Show a text by $PAGER, else by less; print it where there is neither, or where it fits on the terminal."""
    pager: Sequence[str] = shlex.split(os.environ.get("PAGER", "less"))
    is_short = text.count("\n") < shutil.get_terminal_size().lines
    if is_short or not pager or shutil.which(pager[0]) is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    environment = {"LESS": _LESS_OPTIONS, **os.environ}
    subprocess.run(pager, input=text, text=True, env=environment, check=False)  # noqa: S603 - the user's own pager


def read_secret(what: str, *, has_lines: bool = False) -> str:
    """Read a secret: the first line of stdin, or all of it, or what is typed unseen. what: of the prompt."""
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=True))
    if has_lines:
        return sys.stdin.read().strip()
    return sys.stdin.readline().rstrip("\r\n")


def parse_time(text: str) -> datetime:
    """Parse an age (`2h`, `90d`) or a time in ISO form, which is in UTC unless it has an offset.

    Raises InvalidRequestError.
    """
    age = _AGE_PATTERN.fullmatch(text.strip())
    try:
        if age:
            return datetime.now(UTC) - timedelta(**{_UNIT_NAMES[age[2]]: int(age[1])})
        parsed = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InvalidRequestError(
            f"{text!r} is neither an age, as 2h or 90d, nor a time, as 2026-05-01T12:00"
        ) from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def parse_age(text: str) -> timedelta:
    """Parse an age (`2h`, `90d`). Raises InvalidRequestError."""
    age = _AGE_PATTERN.fullmatch(text.strip())
    if age is None:
        raise InvalidRequestError(f"{text!r} is no age, as 2h or 90d")
    return timedelta(**{_UNIT_NAMES[age[2]]: int(age[1])})


def print_renderable(renderable: RenderableType) -> None:
    """Print a table or tree, as wide as the terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH_COLUMNS)).print(renderable)


def print_whole_words(renderable: Table | Text) -> None:
    """Print a table or text as wide as the terminal, or wider where a word would be broken.

    A table has no lines; where it is too wide, headings and texts of the first column wrap, and numbers don't.
    """
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    console = Console(highlight=False)
    width = console.width if console.is_terminal else _PIPE_WIDTH_COLUMNS
    wide = console.options.update(width=_PIPE_WIDTH_COLUMNS)

    def measure(content: RenderableType) -> Measurement:
        return Measurement.get(console, wide, content)

    needed = measure(renderable).minimum
    if isinstance(renderable, Table) and measure(renderable).maximum > width:
        first, *others = renderable.columns
        for column in others:
            cells = [measure(cell).maximum for cell in column.cells]
            column.width = max(measure(column.header).minimum, *cells, 0)
        taken = sum((column.width or 0) + _GAP_COLUMNS for column in others)
        least = max(measure(cell).minimum for cell in (first.header, *first.cells))
        first.width = max(width - taken, least)
        needed = first.width + taken
    Console(highlight=False, width=max(width, needed)).print(renderable)


def open_progress(*columns: str | ProgressColumn) -> Progress:
    """Open a progress bar on standard error, if that is a terminal. The bar disappears at the end."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),  # else output for a file or pipe would go to the terminal
    )


def make_printable(text: str) -> Text:
    """Return a text without control characters: clients choose names, and no name may control the terminal."""
    from rich.text import Text

    return Text(replace_controls(text))


def replace_controls(text: str) -> str:
    """Replace control characters, and others that aren't printable."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def print_json(*objects: Any, is_error: bool = False) -> None:
    """Print objects as JSON, one per line, errors on standard error. Times are in ISO form."""
    import json

    for one in objects:
        typer.echo(json.dumps(encode_object(one), default=str), err=is_error)


def encode_object(value: Any) -> Any:
    """Encode an object of the client for JSON, its names in kebab-case; mappings keep the names that users chose."""
    from dataclasses import fields, is_dataclass

    if is_dataclass(value):
        return {_spell(field.name): encode_object(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list | tuple):
        return [encode_object(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


def print_rows(
    headings: Iterable[str], rows: Iterable[Iterable[str]], *, right: Iterable[int] = (), has_headings: bool = True
) -> None:
    """Print a table without lines. right: numbers of the columns that are aligned to the right."""
    printer = ROW_PRINTER.get()
    if printer is not None:
        printer(tuple(headings), [tuple(row) for row in rows], frozenset(right))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table, numbers = Table(box=None, pad_edge=False, show_header=has_headings), frozenset(right)
    names, cells = list(headings), [[replace_controls(cell) for cell in row] for row in rows]
    console = Console(highlight=False)
    widths = _fit_widths(names if has_headings else [], cells, numbers, console.width) if console.is_terminal else None
    for number, heading in enumerate(names):
        justify: Literal["left", "right"] = "right" if number in numbers else "left"
        width = None if widths is None else widths[number]
        table.add_column(heading, justify=justify, overflow="ellipsis", no_wrap=True, width=width)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    print_whole_words(table) if widths is None else console.print(table)


def _fit_widths(
    names: Sequence[str], rows: Sequence[Sequence[str]], whole: frozenset[int], width: int
) -> list[int] | None:
    """Find the widths of columns that fit on the terminal; None if all fit as they are, or can't.

    The widest text is cut first, the first column last, no column below its heading, and those in `whole` never.
    """
    from rich.cells import cell_len

    columns = list(zip(*(names, *rows) if names else rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    least = [min(wide, max(_LEAST_COLUMNS, cell_len(names[n]) if names else 0)) for n, wide in enumerate(widths)]
    gaps = _GAP_COLUMNS * (len(widths) - 1)
    over = sum(widths) + gaps - width
    if over <= 0:
        return None
    while over > 0:
        free = [n for n, wide in enumerate(widths) if wide > least[n] and n not in whole]
        if not free:
            return None
        widest = max([n for n in free if n > 0] or free, key=widths.__getitem__)
        widths[widest] -= 1
        over -= 1
    return widths


def _spell(name: str) -> str:
    return name.removeprefix("is_").rstrip("_").replace("_", "-")
