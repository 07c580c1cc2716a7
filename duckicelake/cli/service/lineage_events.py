"""The thread of `duckicelake serve` that makes events of lineage of what changes."""

from contextlib import AbstractContextManager, nullcontext

from duckicelake.catalog.lineage.events import LineageEvents, making_events_in_background
from duckicelake.catalog.services import Services
from duckicelake.cli.service.failures import failing
from duckicelake.cli.service.listening import uri
from duckicelake.settings import Settings


def named_by(settings: Settings, listened_on: str) -> Settings:
    """The settings with a URI by which lineage names tables: where none is set, the one that is listened on."""
    catalog_uri = settings.lineage_catalog_uri or listened_on
    return settings.model_copy(update={"lineage_catalog_uri": catalog_uri})


def events_of(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Makes events, unless the settings switch lineage off, for as long as the context lasts."""
    if settings.lineage == "off":
        return nullcontext()
    is_tls = settings.tls_certificate is not None
    catalog_uri = settings.lineage_catalog_uri or uri(settings.host, settings.port, is_tls=is_tls)
    maker = LineageEvents(services, catalog_uri, literals=settings.lineage_literals == "keep")
    return making_events_in_background(
        maker, failing(settings, services, "lineage", "no events of lineage could be made")
    )
