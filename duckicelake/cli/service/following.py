"""The thread of `duckicelake serve` that follows the lake."""

import sys
from contextlib import AbstractContextManager

from duckicelake.catalog.chronicle.following import following
from duckicelake.catalog.services import Services
from duckicelake.server.telemetry.logging import make_logger
from duckicelake.settings import Settings


def follower_of(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Follows the lake for as long as the context lasts."""
    log = make_logger(sys.stderr, settings.log_format)

    def failed(error: Exception) -> None:
        services.meter.task_failed("follow")
        log.warning("the lake could not be followed", error=str(error), kind=type(error).__name__)

    return following(services, failed)
