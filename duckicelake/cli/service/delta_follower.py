"""The thread of `duckicelake serve` that brings new versions of Delta tables."""

from contextlib import AbstractContextManager, nullcontext

from duckicelake.catalog.delta.follower import following_delta
from duckicelake.catalog.services import Services
from duckicelake.cli.service.failures import failing, warning
from duckicelake.lake.delta_sources import Source
from duckicelake.settings import Settings


def delta_follower_of(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Follows Delta tables for as long as the context lasts, if the settings say so."""
    if not settings.delta_sync_seconds:
        return nullcontext()
    failed = failing(settings, services, "delta", "Delta tables could not be followed")
    warn = warning(settings, "a Delta table could not be followed")

    def table_failed(source: Source, error: Exception) -> None:
        warn(error, table=source.name, delta=source.root, version=source.position.version)

    return following_delta(services, settings.delta_sync_seconds, failed, table_failed)
