"""Print tables and progress bars; read times and print counts as people write them."""

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Final

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.text import Text

from duckicelake.errors import InvalidRequest

_AGE_PATTERN = re.compile(r"(\d+)\s*([smhdw])")
_UNIT_NAMES = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PIPE_WIDTH_COLUMNS: Final = 500
"""Columns of what is no terminal: there every entry is one line."""


def format_count(number: int, what: str) -> str:
    """As 1 file, 0 files, 1,200 files."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def parse_time(text: str) -> datetime:
    """A time so long ago (`2h`, `90d`), or in ISO form, in UTC unless it says otherwise. InvalidRequest for others."""
    age = _AGE_PATTERN.fullmatch(text.strip())
    try:
        if age:
            return datetime.now(UTC) - timedelta(**{_UNIT_NAMES[age[2]]: int(age[1])})
        parsed = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InvalidRequest(f"{text!r} is neither an age, as 2h or 90d, nor a time, as 2026-05-01T12:00") from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def print_renderable(told: RenderableType) -> None:
    """Print it, as wide as the terminal is."""
    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH_COLUMNS)).print(told)


def open_progress(*columns: str | ProgressColumn) -> Progress:
    """A bar on stderr where a person looks on; it goes when it is done."""
    console = Console(stderr=True)
    return Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),  # else what goes to a file or a pipe would go to the terminal
    )


def make_printable(text: str) -> Text:
    """Names are whatever clients wrote: nothing in them may steer the terminal."""
    return Text("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text))
