"""Limits of queries: from the settings of a server, for the routes of each of its lakes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from duckicelake.catalog.context.services import Services
from duckicelake.cli.serve.hooks import FeatureService, TaskReporter
from duckicelake.postgres.database import Database
from duckicelake.query.pool import QueryProcesses
from duckicelake.query.processes import QueryLimits
from duckicelake.settings.model import Settings

_limits: Final[WeakKeyDictionary[Database, QueryLimits]] = WeakKeyDictionary()
_processes: Final[dict[asyncio.AbstractEventLoop, QueryProcesses]] = {}


class QueryService(FeatureService):
    """Keeps the limits of the settings for the lake that is served."""

    @contextmanager
    def run_tasks(self, settings: Settings, services: Services, report: TaskReporter) -> Iterator[None]:  # noqa: ARG002
        """Keep the limits for as long as the context lasts."""
        _limits[services.database] = read_limits(settings)
        try:
            yield
        finally:
            _limits.pop(services.database, None)
            if not _limits:
                end_processes()


def read_limits(settings: Settings) -> QueryLimits:
    """Read the limits of queries from the settings."""
    return QueryLimits(
        processes=settings.query_processes,
        memory_bytes=settings.query_memory_bytes,
        disk_bytes=settings.query_disk_bytes,
        seconds=settings.query_seconds,
        rows=settings.query_rows,
    )


def find_limits(services: Services) -> QueryLimits:
    """Find the limits of the lake; the defaults of the settings where no server has set others."""
    return _limits.get(services.database) or read_limits(Settings())


def find_processes(limits: QueryLimits) -> QueryProcesses:
    """Find the processes of this worker, which all its lakes share."""
    loop = asyncio.get_running_loop()
    if loop not in _processes:
        _processes[loop] = QueryProcesses(limits)
    return _processes[loop]


def end_processes() -> None:
    """End the processes of all event loops of this process."""
    for processes in [*_processes.values()]:
        processes.close()
    _processes.clear()


SERVICE: Final = QueryService()
