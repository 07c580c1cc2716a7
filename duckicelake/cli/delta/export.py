"""`duckicelake delta export`, and the thread of `duckicelake serve` that keeps Delta logs."""

import sys
from contextlib import AbstractContextManager
from typing import Annotated, Final

import typer

from duckicelake.catalog.delta.export import export
from duckicelake.catalog.delta.keeper import keeping_delta_logs
from duckicelake.catalog.services import Services
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.lake_option import LakeOption
from duckicelake.server.telemetry.logging import make_logger
from duckicelake.settings import Settings, read_settings

EXPORT_EXAMPLES: Final = ("duckicelake delta export sales.orders",)


def export_table(
    name: Annotated[str, typer.Argument(help="The table, as sales.orders.")], lake: LakeOption = None
) -> None:
    """Bring the Delta log of a table up to date at once, write again what of it got lost, and print the table's folder.

    The table must have the property delta.enabled=true. A running server does the same soon after each commit.
    """
    with one_line_errors(), opened(read_settings({"lake": lake})) as services:
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
