"""The thread of `duckicelake serve` that deletes what clients uploaded for commits of long ago."""

from contextlib import AbstractContextManager

from duckicelake.catalog.services import Services
from duckicelake.catalog.upload_collector import collecting_uploads
from duckicelake.cli.service.failures import failing
from duckicelake.settings import Settings


def upload_collector_of(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Deletes them for as long as the context lasts."""
    return collecting_uploads(services, failing(settings, services, "uploads", "old uploads could not be deleted"))
