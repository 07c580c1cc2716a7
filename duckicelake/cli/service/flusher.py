"""The thread of `duckicelake serve` that flushes tables."""

from contextlib import AbstractContextManager

from duckicelake.catalog.flusher import Thresholds, flushing_in_background
from duckicelake.catalog.services import Services
from duckicelake.cli.service.failures import warning
from duckicelake.lake.maintenance import Waiting
from duckicelake.settings import Settings


def flusher_of(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Flushes what reaches a threshold of the settings, for as long as the context lasts."""
    age = None if settings.flush_age is None else round(settings.flush_age * 1000)
    warn = warning(settings, "rows could not be flushed")

    def failed(table: Waiting | None, error: Exception) -> None:
        warn(error, table=None if table is None else f"{table.schema_name}.{table.table_name}")

    return flushing_in_background(services, Thresholds(settings.flush_rows, settings.flush_bytes, age), failed)
