"""Run the background tasks of a server, and log their failures."""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from duckicelake.catalog import warehouse
from duckicelake.catalog.context.background_threads import run_in_thread
from duckicelake.catalog.context.meter import Task
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.flush import Thresholds, flush_in_background
from duckicelake.catalog.gc import collect_in_background
from duckicelake.catalog.warehouse import WarehouseStanding, describe_server
from duckicelake.catalog.warehouse_options import FLUSH_AGE, FLUSH_BYTES, FLUSH_ROWS
from duckicelake.catalog.warehouses import Warehouse
from duckicelake.changelog.writer import follow_in_background
from duckicelake.cli.serve.hooks import FeatureService, TaskReporter
from duckicelake.errors import CatalogError
from duckicelake.features.registry import load_hooks
from duckicelake.lake.ducklake.maintenance import FlushableRows
from duckicelake.lake.setup.identity import RunningServer
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.settings.model import Settings

_CHECK_SECONDS: Final = 30.0


@contextmanager
def run_background_tasks(
    settings: Settings, services: Services, options: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Run all background tasks for as long as the context lasts. The tasks of features end before the changelog's.

    options: of the warehouse, in place of settings.
    """
    with ExitStack() as tasks:
        tasks.enter_context(watch_warehouse(settings, services))
        tasks.enter_context(write_changelog(settings, services))
        report = build_reporter(settings, services)
        for feature in load_feature_services():
            tasks.enter_context(feature.run_tasks(settings, services, report))
        tasks.enter_context(flush_due_tables(settings, services, options))
        tasks.enter_context(delete_old_uploads(settings, services))
        yield


@contextmanager
def run_warehouse_tasks(settings: Settings, row: Warehouse, services: Services) -> Iterator[None]:
    """Prepare the features of a warehouse beside the first, and run its tasks for as long as the context lasts."""
    for feature in load_feature_services():
        feature.prepare(settings, services)
    with run_background_tasks(settings, services, row.options):
        yield


def write_changelog(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Write the changelog for as long as the context lasts."""
    return follow_in_background(
        services, build_failure_handler(settings, services, "follow", "the lake could not be followed")
    )


def flush_due_tables(
    settings: Settings, services: Services, options: Mapping[str, str]
) -> AbstractContextManager[None]:
    """Flush tables that reach a threshold of the warehouse's options or the settings, while the context lasts."""
    warn = build_warning(settings, "rows could not be flushed")

    def report(table: FlushableRows | None, error: Exception) -> None:
        warn(error, table=None if table is None else f"{table.schema_name}.{table.table_name}")

    return flush_in_background(services, build_thresholds(settings, options), report)


def build_thresholds(settings: Settings, options: Mapping[str, str]) -> Thresholds:
    """Build from when on tables of a warehouse are flushed: by its options, and without one by the settings."""

    def choose(name: str, default: float | None, scale: int = 1) -> int | None:
        value = options.get(name, default)
        return None if value is None else round(float(value) * scale)

    return Thresholds(
        choose(FLUSH_ROWS, settings.flush_rows),
        choose(FLUSH_BYTES, settings.flush_bytes),
        choose(FLUSH_AGE, settings.flush_age, 1000),
    )


def delete_old_uploads(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Delete uploads that no commit needs, for as long as the context lasts."""
    return collect_in_background(
        services, build_failure_handler(settings, services, "uploads", "old uploads could not be deleted")
    )


def load_feature_services() -> tuple[FeatureService, ...]:
    """Import what the installed features do in a server process."""
    return load_hooks(FeatureService, "service")


def build_reporter(settings: Settings, services: Services) -> TaskReporter:
    """Make the reporter of the features' tasks."""
    return TaskReporter(
        partial(build_failure_handler, settings, services),
        partial(build_warning, settings),
        make_logger(sys.stderr, settings.log_format).warning,
    )


def build_warning(settings: Settings, text: str) -> Callable[..., None]:
    """Make a function that logs an error, with facts if there are any."""
    log = make_logger(sys.stderr, settings.log_format)

    def warn(error: Exception, **facts: Any) -> None:
        log.warning(text, **facts, error=str(error), kind=type(error).__name__)

    return warn


def build_failure_handler(settings: Settings, services: Services, task: Task, text: str) -> Callable[[Exception], None]:
    """Make a function that counts a failure of a task, and logs it."""
    warn = build_warning(settings, text)

    def report(error: Exception) -> None:
        services.meter.task_failed(task)
        warn(error)

    return report


@contextmanager
def watch_warehouse(settings: Settings, services: Services) -> Iterator[None]:
    """Close the gate while the warehouse belongs to another lake, and warn of it, for as long as the context lasts.

    Raises InvalidSettingsError as `RunningServer.check`, UnavailableError.
    """
    watch = _WarehouseWatch(settings, services, describe_server(services))
    watch.check()
    try:
        with run_in_thread("warehouse-watch", watch.run):
            yield
    finally:
        watch.end()


class _WarehouseWatch:
    """Registers this server in the lake, and checks which lake the warehouse belongs to."""

    def __init__(self, settings: Settings, services: Services, server: RunningServer) -> None:
        self._log = make_logger(sys.stderr, settings.log_format)
        self._services = services
        self._server = server
        self._last = WarehouseStanding()

    def run(self, ended: threading.Event) -> None:
        while not ended.wait(_CHECK_SECONDS):
            try:
                self.check()
            except Exception as error:  # noqa: BLE001 - the next check may succeed
                self._log.warning("could not check which lake the warehouse belongs to", error=str(error))

    def check(self) -> None:
        """Register the server, and warn if the standing differs from that of the last check."""
        with self._services.database.transaction() as cursor:
            self._server.register(cursor)
        standing = warehouse.look(self._services)
        reason = standing.refusal or standing.doubt
        if reason is not None and reason != (self._last.refusal or self._last.doubt):
            effect = "tables are served, but nothing is written" if standing.refusal else "gc deletes nothing"
            self._log.warning("unclear which lake the warehouse belongs to", effect=effect, reason=reason)
        self._last = standing

    def end(self) -> None:
        with suppress(CatalogError), self._services.database.transaction() as cursor:
            self._server.forget(cursor)
