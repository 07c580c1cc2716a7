"""The thread of `duckicelake serve` that follows the lake."""

from contextlib import AbstractContextManager

from duckicelake.catalog.chronicle.following import following
from duckicelake.catalog.services import Services
from duckicelake.cli.service.failures import failing
from duckicelake.settings import Settings


def follower_of(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Follows the lake for as long as the context lasts."""
    return following(services, failing(settings, services, "follow", "the lake could not be followed"))
