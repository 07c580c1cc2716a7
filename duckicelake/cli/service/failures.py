"""How the threads of `duckicelake serve` say what went wrong."""

import sys
from collections.abc import Callable
from typing import Any

from duckicelake.catalog.measuring import Task
from duckicelake.catalog.services import Services
from duckicelake.server.telemetry.logging import make_logger
from duckicelake.settings import Settings


def warning(settings: Settings, text: str) -> Callable[..., None]:
    """Logs an error, with facts if there are any."""
    log = make_logger(sys.stderr, settings.log_format)

    def warn(error: Exception, **facts: Any) -> None:
        log.warning(text, **facts, error=str(error), kind=type(error).__name__)

    return warn


def failing(settings: Settings, services: Services, task: Task, text: str) -> Callable[[Exception], None]:
    """The same of one that keeps a task from being done, which is counted."""
    warn = warning(settings, text)

    def failed(error: Exception) -> None:
        services.meter.task_failed(task)
        warn(error)

    return failed
