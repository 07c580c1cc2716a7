"""The thread of `duckicelake serve` that writes down what engines read."""

from contextlib import AbstractContextManager, nullcontext

from duckicelake.catalog.lineage.reads import recording_in_background
from duckicelake.catalog.services import Services
from duckicelake.cli.service.failures import failing
from duckicelake.settings import Settings


def recorder_of(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Writes for as long as the context lasts, unless lineage is off."""
    if settings.lineage == "off":
        return nullcontext()
    failed = failing(settings, services, "reads", "what engines read could not be noted")
    return recording_in_background(services.reads, services.database, failed)
