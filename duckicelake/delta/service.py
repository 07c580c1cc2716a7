"""The background task of Delta Lake in a server: keep Delta logs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.cli.serve.hooks import FeatureService, TaskReporter
from duckicelake.delta.export.keeper import keep_delta_logs_in_background
from duckicelake.settings.model import Settings


class DeltaService(FeatureService):
    """Keeps Delta logs."""

    @contextmanager
    def run_tasks(self, settings: Settings, services: Services, report: TaskReporter) -> Iterator[None]:  # noqa: ARG002
        """Keep Delta logs for as long as the context lasts."""
        warn = report.on_warning("a Delta log could not be kept")

        def log_failed(name: str, error: Exception) -> None:
            warn(error, table=name)

        failed = report.on_failure("delta_log", "Delta logs could not be kept")
        with keep_delta_logs_in_background(services, failed, log_failed):
            yield


SERVICE: Final = DeltaService()
