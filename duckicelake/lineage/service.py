"""Background tasks of lineage in a server: note reads, make events, and deliver them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.cli.serve.address import build_uri
from duckicelake.cli.serve.hooks import FeatureService, TaskReporter
from duckicelake.lineage.delivery.couriers import check_receivers, register_receivers, start_deliveries
from duckicelake.lineage.events.generator import EventGenerator, generate_events_in_background
from duckicelake.lineage.events.reads import ReadLog, record_reads_in_background
from duckicelake.settings.model import Settings


class LineageService(FeatureService):
    """Makes events of what changes unless lineage is off, and delivers events to the receivers of the settings."""

    def check(self, settings: Settings) -> None:
        """Raise InvalidSettingsError for receivers that can't be used."""
        check_receivers(settings)

    def prepare(self, settings: Settings, services: Services) -> None:
        """Register new receivers before the first event is made."""
        register_receivers(settings, services)

    @contextmanager
    def run_tasks(self, settings: Settings, services: Services, report: TaskReporter) -> Iterator[None]:
        """Run the tasks for as long as the context lasts. Deliveries end last."""
        with start_deliveries(settings, services, report.log_warning):
            if settings.lineage == "off":
                yield
            else:
                with _record_reads(services, report), _generate_events(settings, services, report):
                    yield


@contextmanager
def _record_reads(services: Services, report: TaskReporter) -> Iterator[None]:
    if not isinstance(services.reads, ReadLog):
        yield
        return
    failed = report.on_failure("reads", "what engines read could not be noted")
    with record_reads_in_background(services.reads, services.database, failed):
        yield


@contextmanager
def _generate_events(settings: Settings, services: Services, report: TaskReporter) -> Iterator[None]:
    is_tls = settings.tls_certificate is not None
    catalog_uri = settings.lineage_catalog_uri or build_uri(settings.host, settings.port, is_tls=is_tls)
    generator = EventGenerator(services, catalog_uri, literals=settings.lineage_literals == "keep")
    failed = report.on_failure("lineage", "no events of lineage could be made")
    with generate_events_in_background(generator, failed):
        yield


SERVICE: Final = LineageService()
