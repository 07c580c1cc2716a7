"""`duckicelake init` and `adopt`: make a lake, take a warehouse over."""

from pathlib import Path

import typer

from duckicelake.catalog import warehouse
from duckicelake.cli.wiring.location import run_postgres
from duckicelake.cli.wiring.services import open_lake, open_services, prepare_lake, warn_of_others
from duckicelake.lake.model import FORMAT_VERSION
from duckicelake.settings.sources import read_settings


def init(*, lake: Path | None) -> None:
    """Make a lake, or look whether it can be served. Raises as `open_services` and `prepare_lake`."""
    with run_postgres(read_settings({"lake": lake})) as settings, open_services(settings) as services:
        warn_of_others(services)
        data_path = prepare_lake(services, creates=True)
        services.database.gate.require_open()
        typer.echo(f"DuckLake {FORMAT_VERSION} catalog is ready; DuckDB's files go to {data_path}")


def adopt(*, lake: Path | None) -> None:
    """Put the lake's marker into the warehouse, and say whose it was. Raises StartupError, Unavailable."""
    with open_lake(read_settings({"lake": lake})) as services:
        for sentence in warehouse.adopt(services) or ["The warehouse is this lake's: nothing has changed."]:
            typer.echo(sentence)
