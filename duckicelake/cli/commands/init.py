"""`duckicelake init`: a lake that can be served."""

from typing import Final

import typer

from duckicelake.cli.assembly.opening import open_services, prepare_lake, running_postgres
from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.lake_option import LakeOption
from duckicelake.lake.format import FORMAT_VERSION
from duckicelake.settings import read_settings

EXAMPLES: Final = ("duckicelake init --lake /data/lake",)


def init(lake: LakeOption = None) -> None:
    """Create the lake, or check that an existing one can be served, and stop again."""
    with (
        one_line_errors(),
        running_postgres(read_settings({"lake": lake})) as settings,
        open_services(settings) as services,
    ):
        data_path = prepare_lake(services)
        typer.echo(f"DuckLake {FORMAT_VERSION} catalog is ready; DuckDB's files go to {data_path}")
