"""What people are shown on a terminal, or find in a file or a pipe."""

import sys
from typing import Final

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.text import Text

_NO_WIDTH: Final = 500
"""Columns of what is no terminal: there every entry is one line."""


def show(told: RenderableType) -> None:
    """Print it, as wide as the terminal is."""
    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=_NO_WIDTH)).print(told)


def progress(*columns: str | ProgressColumn) -> Progress:
    """A bar on stderr where a person looks on; it goes when it is done."""
    console = Console(stderr=True)
    return Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),  # else what goes to a file or a pipe would go to the terminal
    )


def plain(text: str) -> Text:
    """Names are whatever clients wrote: nothing in them may steer the terminal."""
    return Text("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text))
