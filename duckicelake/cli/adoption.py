"""What `duckicelake adopt` does and says."""

from pathlib import Path

import typer

from duckicelake.catalog import warehouse
from duckicelake.cli.assembly.opened import opened
from duckicelake.settings import read_settings


def adopt(*, lake: Path | None) -> None:
    """Put the lake's marker into the warehouse, and say whose it was. Raises StartupError, Unavailable."""
    with opened(read_settings({"lake": lake})) as services:
        for sentence in warehouse.adopt(services) or ["The warehouse is this lake's: nothing has changed."]:
            typer.echo(sentence)
