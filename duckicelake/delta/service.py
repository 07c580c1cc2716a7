"""Background tasks of Delta Lake in a server: sync followed tables, and keep Delta logs."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.cli.serve.hooks import FeatureService, TaskReporter
from duckicelake.delta.export.keeper import keep_delta_logs_in_background
from duckicelake.delta.import_.follower import follow_delta_in_background
from duckicelake.delta.import_.sources import DeltaSource
from duckicelake.settings.model import Settings


class DeltaService(FeatureService):
    """Syncs followed tables unless the settings disable it, and keeps Delta logs."""

    @contextmanager
    def run_tasks(self, settings: Settings, services: Services, report: TaskReporter) -> Iterator[None]:
        """Run both tasks for as long as the context lasts."""
        warn_of_table = report.on_warning("a Delta table could not be followed")
        warn_of_log = report.on_warning("a Delta log could not be kept")

        def table_failed(source: DeltaSource, error: Exception) -> None:
            warn_of_table(error, table=source.name, delta=source.root, version=source.position.version)

        def log_failed(name: str, error: Exception) -> None:
            warn_of_log(error, table=name)

        follow_failed = report.on_failure("delta", "Delta tables could not be followed")
        seconds = settings.delta_sync_seconds
        with (
            follow_delta_in_background(services, seconds, follow_failed, table_failed) if seconds else nullcontext(),
            keep_delta_logs_in_background(
                services, report.on_failure("delta_log", "Delta logs could not be kept"), log_failed
            ),
        ):
            yield


SERVICE: Final = DeltaService()
