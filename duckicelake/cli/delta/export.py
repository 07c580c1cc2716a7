"""What `duckicelake delta export` does, and the thread of `duckicelake serve` that keeps Delta logs."""

import sys
from contextlib import AbstractContextManager
from pathlib import Path

import typer

from duckicelake.catalog.delta.export import export
from duckicelake.catalog.delta.keeper import keeping_delta_logs
from duckicelake.catalog.services import Services
from duckicelake.cli.assembly.opened import opened
from duckicelake.server.telemetry.logging import make_logger
from duckicelake.settings import Settings, read_settings


def export_table(*, name: str, lake: Path | None) -> None:
    """Bring the log up to date and tell where it is. Raises as `export`, StartupError."""
    with opened(read_settings({"lake": lake})) as services:
        log = export(services, name)
        typer.echo(log.root.removeprefix("file://"))
        typer.echo(f"{name}: versions {log.oldest} to {log.version}", err=True)


def delta_keeper_of(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Keeps Delta logs for as long as the context lasts."""
    log = make_logger(sys.stderr, settings.log_format)

    def failed(error: Exception) -> None:
        services.meter.task_failed("delta_log")
        log.warning("Delta logs could not be kept", error=str(error), kind=type(error).__name__)

    def table_failed(name: str, error: Exception) -> None:
        log.warning("a Delta log could not be kept", table=name, error=str(error), kind=type(error).__name__)

    return keeping_delta_logs(services, failed, table_failed)
