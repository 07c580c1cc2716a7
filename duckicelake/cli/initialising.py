"""What `duckicelake init` does."""

from pathlib import Path

import typer

from duckicelake.cli.assembly.opening import open_services, prepare_lake, warn_of_others
from duckicelake.cli.assembly.postgres import running_postgres
from duckicelake.lake.model import FORMAT_VERSION
from duckicelake.settings import read_settings


def init(*, lake: Path | None) -> None:
    """Make a lake, or look whether it can be served. Raises as `open_services` and `prepare_lake`."""
    with running_postgres(read_settings({"lake": lake})) as settings, open_services(settings) as services:
        warn_of_others(services)
        data_path = prepare_lake(services, creates=True)
        services.database.gate.require_open()
        typer.echo(f"DuckLake {FORMAT_VERSION} catalog is ready; DuckDB's files go to {data_path}")
