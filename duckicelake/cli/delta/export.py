"""What `duckicelake delta export` does."""

from pathlib import Path

import typer

from duckicelake.catalog.delta.export import export
from duckicelake.cli.assembly.opened import opened
from duckicelake.settings import read_settings
from duckicelake.storage.policy import canonical


def export_table(*, name: str, lake: Path | None) -> None:
    """Bring the log up to date and tell where it is. Raises as `export`, StartupError."""
    with opened(read_settings({"lake": lake}), "export_delta_log") as services:
        log = export(services, name)
        typer.echo(canonical(log.root).removeprefix("file://"))
        typer.echo(f"{name}: versions {log.oldest} to {log.version}", err=True)
