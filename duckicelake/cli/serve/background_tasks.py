"""Background tasks of a server, and how their failures are logged."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Final

from duckicelake.catalog import warehouse
from duckicelake.catalog.context.meter import Task
from duckicelake.catalog.context.runtime import run_in_thread
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.flush import Thresholds, flush_in_background
from duckicelake.catalog.gc import collect_in_background
from duckicelake.catalog.warehouse import WarehouseStanding
from duckicelake.changelog.writer import follow_in_background
from duckicelake.cli.serve.address import build_uri
from duckicelake.cli.wiring.services import describe_server
from duckicelake.delta.export.keeper import keep_delta_logs_in_background
from duckicelake.delta.import_.follower import follow_delta_in_background
from duckicelake.delta.import_.sources import DeltaSource
from duckicelake.errors import CatalogError
from duckicelake.lake.ducklake.maintenance import FlushableRows
from duckicelake.lake.setup.identity import RunningServer
from duckicelake.lineage.delivery.couriers import start_deliveries
from duckicelake.lineage.events.generator import EventGenerator, generate_events_in_background
from duckicelake.lineage.events.reads import record_reads_in_background
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.settings.model import Settings

_LOOK_SECONDS: Final = 30.0


def build_warning(settings: Settings, text: str) -> Callable[..., None]:
    """Logs an error, with facts if there are any."""
    log = make_logger(sys.stderr, settings.log_format)

    def warn(error: Exception, **facts: Any) -> None:
        log.warning(text, **facts, error=str(error), kind=type(error).__name__)

    return warn


def build_failure_handler(settings: Settings, services: Services, task: Task, text: str) -> Callable[[Exception], None]:
    """The same of one that keeps a task from being done, which is counted."""
    warn = build_warning(settings, text)

    def failed(error: Exception) -> None:
        services.meter.task_failed(task)
        warn(error)

    return failed


@contextmanager
def watch_warehouse(settings: Settings, services: Services) -> Iterator[None]:
    """Close the gate while the warehouse is another lake's, and warn of it, for as long as the context lasts.

    Raises InvalidSettings as `RunningServer.check`, Unavailable.
    """
    watch = _WarehouseWatch(settings, services, describe_server(services))
    watch.look()
    try:
        with run_in_thread("warehouse-watch", watch.run):
            yield
    finally:
        watch.end()


class _WarehouseWatch:
    def __init__(self, settings: Settings, services: Services, server: RunningServer) -> None:
        self._log = make_logger(sys.stderr, settings.log_format)
        self._services = services
        self._server = server
        self._last = WarehouseStanding()

    def run(self, ended: threading.Event) -> None:
        while not ended.wait(_LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look may succeed
                self._log.warning("it couldn't be seen whose the warehouse is", error=str(error))

    def look(self) -> None:
        """Register the server, and warn where the standing is another than at the last look."""
        with self._services.database.transaction() as cursor:
            self._server.register(cursor)
        standing = warehouse.look(self._services)
        reason = standing.refusal or standing.doubt
        if reason is not None and reason != (self._last.refusal or self._last.doubt):
            effect = "tables are served, but nothing is written" if standing.refusal else "gc deletes nothing"
            self._log.warning("whose the warehouse is isn't clear", effect=effect, reason=reason)
        self._last = standing

    def end(self) -> None:
        with suppress(CatalogError), self._services.database.transaction() as cursor:
            self._server.forget(cursor)


def write_changelog(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Follows the lake for as long as the context lasts."""
    return follow_in_background(
        services, build_failure_handler(settings, services, "follow", "the lake could not be followed")
    )


def record_reads(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Writes for as long as the context lasts, unless lineage is off."""
    if settings.lineage == "off":
        return nullcontext()
    failed = build_failure_handler(settings, services, "reads", "what engines read could not be noted")
    return record_reads_in_background(services.reads, services.database, failed)


def add_catalog_uri(settings: Settings, listened_on: str) -> Settings:
    """The settings with a URI by which lineage names tables: where none is set, the one that is listened on."""
    catalog_uri = settings.lineage_catalog_uri or listened_on
    return settings.model_copy(update={"lineage_catalog_uri": catalog_uri})


def generate_lineage_events(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Makes events, unless the settings switch lineage off, for as long as the context lasts."""
    if settings.lineage == "off":
        return nullcontext()
    is_tls = settings.tls_certificate is not None
    catalog_uri = settings.lineage_catalog_uri or build_uri(settings.host, settings.port, is_tls=is_tls)
    maker = EventGenerator(services, catalog_uri, literals=settings.lineage_literals == "keep")
    return generate_events_in_background(
        maker, build_failure_handler(settings, services, "lineage", "no events of lineage could be made")
    )


def sync_delta_sources(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Follows Delta tables for as long as the context lasts, if the settings say so."""
    if not settings.delta_sync_seconds:
        return nullcontext()
    failed = build_failure_handler(settings, services, "delta", "Delta tables could not be followed")
    warn = build_warning(settings, "a Delta table could not be followed")

    def table_failed(source: DeltaSource, error: Exception) -> None:
        warn(error, table=source.name, delta=source.root, version=source.position.version)

    return follow_delta_in_background(services, settings.delta_sync_seconds, failed, table_failed)


def write_delta_logs(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Keeps Delta logs for as long as the context lasts."""
    failed = build_failure_handler(settings, services, "delta_log", "Delta logs could not be kept")
    warn = build_warning(settings, "a Delta log could not be kept")
    return keep_delta_logs_in_background(services, failed, lambda name, error: warn(error, table=name))


def flush_due_tables(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Flushes what reaches a threshold of the settings, for as long as the context lasts."""
    age = None if settings.flush_age is None else round(settings.flush_age * 1000)
    warn = build_warning(settings, "rows could not be flushed")

    def failed(table: FlushableRows | None, error: Exception) -> None:
        warn(error, table=None if table is None else f"{table.schema_name}.{table.table_name}")

    return flush_in_background(services, Thresholds(settings.flush_rows, settings.flush_bytes, age), failed)


def delete_old_uploads(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Deletes them for as long as the context lasts."""
    return collect_in_background(
        services, build_failure_handler(settings, services, "uploads", "old uploads could not be deleted")
    )


@contextmanager
def run_background_tasks(settings: Settings, services: Services) -> Iterator[None]:
    """Do it for as long as the context lasts."""
    with (
        watch_warehouse(settings, services),
        write_changelog(settings, services),
        start_deliveries(settings, services),  # which ends last
        record_reads(settings, services),
        generate_lineage_events(settings, services),
        sync_delta_sources(settings, services),
        flush_due_tables(settings, services),
        write_delta_logs(settings, services),
        delete_old_uploads(settings, services),
    ):
        yield
