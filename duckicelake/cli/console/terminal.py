"""Print tables, JSON and progress bars; read times and print counts as people write them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

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
RowPrinter = Callable[[Sequence[str], Sequence[Sequence[str]], frozenset[int]], None]
ROW_PRINTER: Final[ContextVar[RowPrinter | None]] = ContextVar("row_printer", default=None)
"""What prints the rows of descriptions in place of `print_rows`, as the shell does in its format."""


def format_count(number: int, noun: str) -> str:
    """Format a count, as 1 file, 0 files, 1,200 files."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def read_secret(what: str) -> str:
    """Read a secret: the first line of stdin, or what is typed unseen. what: of the prompt."""
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=True))
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


def print_json(*objects: Any) -> None:
    """Print objects as JSON, one per line. Times are in ISO form."""
    import json

    for one in objects:
        typer.echo(json.dumps(encode_object(one), default=str))


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
    from rich.table import Table

    table, numbers = Table(box=None, pad_edge=False, show_header=has_headings), frozenset(right)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(make_printable, row))
    print_whole_words(table)


def _spell(name: str) -> str:
    return name.removeprefix("is_").rstrip("_").replace("_", "-")
