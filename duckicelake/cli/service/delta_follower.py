"""The thread of `duckicelake serve` that brings new versions of Delta tables."""

import sys
from contextlib import AbstractContextManager, nullcontext

from duckicelake.catalog.delta.follower import following_delta
from duckicelake.catalog.services import Services
from duckicelake.lake.delta_sources import Source
from duckicelake.server.telemetry.logging import make_logger
from duckicelake.settings import Settings


def delta_follower_of(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Follows Delta tables for as long as the context lasts, if the settings say so."""
    if not settings.delta_sync_seconds:
        return nullcontext()
    log = make_logger(sys.stderr, settings.log_format)

    def failed(error: Exception) -> None:
        services.meter.task_failed("delta")
        log.warning("Delta tables could not be followed", error=str(error), kind=type(error).__name__)

    def table_failed(source: Source, error: Exception) -> None:
        facts = {"table": source.name, "delta": source.root, "version": source.position.version}
        log.warning("a Delta table could not be followed", **facts, error=str(error), kind=type(error).__name__)

    return following_delta(services, settings.delta_sync_seconds, failed, table_failed)
