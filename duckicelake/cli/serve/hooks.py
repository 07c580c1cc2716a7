"""What a feature adds to the server process."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from duckicelake.catalog.context.meter import Task
from duckicelake.catalog.context.services import Services
from duckicelake.settings.model import Settings


@dataclass(frozen=True, slots=True)
class TaskReporter:
    """Report what background tasks fail at.

    Attributes:
        on_failure: (task, text) makes a callback that counts and logs a failure of the whole task.
        on_warning: (text) makes a callback that logs an error with facts.
        log_warning: logs a text with facts.

    """

    on_failure: Callable[[Task, str], Callable[[Exception], None]]
    on_warning: Callable[[str], Callable[..., None]]
    log_warning: Callable[..., Any]


class FeatureService:
    """What a feature does in a server process. Each method does nothing unless the feature overrides it."""

    def check(self, settings: Settings) -> None:
        """Check the settings before anything is started; InvalidSettingsError."""

    def prepare(self, settings: Settings, services: Services) -> None:
        """Prepare the lake, once, before any worker serves it."""

    def run_tasks(self, settings: Settings, services: Services, report: TaskReporter) -> AbstractContextManager[None]:  # noqa: ARG002
        """Run the feature's background tasks for as long as the context lasts."""
        return nullcontext()
