"""How commands say what went wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from duckicelake.errors import CatalogError


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What people can mend is said in one line on stderr, with exit code 2; only bugs show a traceback."""
    try:
        yield
    except CatalogError as error:
        typer.echo(f"duckicelake: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from error
