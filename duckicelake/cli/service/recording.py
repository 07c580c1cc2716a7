"""The thread of `duckicelake serve` that writes down what engines read."""

import sys
from contextlib import AbstractContextManager, nullcontext

from duckicelake.catalog.lineage.reads import recording_in_background
from duckicelake.catalog.services import Services
from duckicelake.server.telemetry.logging import make_logger
from duckicelake.settings import Settings


def recorder_of(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Writes for as long as the context lasts, unless lineage is off."""
    if settings.lineage == "off":
        return nullcontext()
    log = make_logger(sys.stderr, settings.log_format)

    def failed(error: Exception) -> None:
        services.meter.task_failed("reads")
        log.warning("what engines read could not be noted", error=str(error), kind=type(error).__name__)

    return recording_in_background(services.reads, services.database, failed)
