"""`duckicelake version`."""

from typing import Final

import typer

from duckicelake.cli.console.command import read_own_version
from duckicelake.lake.model import FORMAT_VERSION

EXAMPLES: Final = ("duckicelake version",)


def version() -> None:
    """Print the version."""
    typer.echo(f"duckicelake {read_own_version()} (DuckLake {FORMAT_VERSION})")
