"""How commands say what went wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from duckicelake.errors import CatalogError


def one_line(error: Exception) -> str:
    """What it says, without line breaks."""
    return " ".join(str(error).split())


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What people can mend is said in one line on stderr, with exit code 2; only bugs show a traceback."""
    try:
        yield
    except CatalogError as error:
        typer.echo(f"duckicelake: {one_line(error)}", err=True)
        raise typer.Exit(2) from error
