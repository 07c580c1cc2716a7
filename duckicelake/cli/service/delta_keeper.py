"""The thread of `duckicelake serve` that keeps Delta logs."""

from contextlib import AbstractContextManager

from duckicelake.catalog.delta.keeper import keeping_delta_logs
from duckicelake.catalog.services import Services
from duckicelake.cli.service.failures import failing, warning
from duckicelake.settings import Settings


def delta_keeper_of(settings: Settings, services: Services) -> AbstractContextManager[None]:
    """Keeps Delta logs for as long as the context lasts."""
    failed = failing(settings, services, "delta_log", "Delta logs could not be kept")
    warn = warning(settings, "a Delta log could not be kept")
    return keeping_delta_logs(services, failed, lambda name, error: warn(error, table=name))
