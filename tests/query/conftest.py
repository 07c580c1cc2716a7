"""A server that runs queries."""

from collections.abc import Iterator

import httpx
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.query import service
from duckicelake.query.processes import QueryLimits
from duckicelake.server.app import create_app
from tests.support.servers import Serve

LIMITS = QueryLimits(processes=2, memory_bytes=256 * 1024**2, disk_bytes=0, seconds=60.0, rows=1_000_000)


@pytest.fixture
def limits(services: Services) -> Iterator[QueryLimits]:
    service._limits[services.database] = LIMITS
    yield LIMITS
    del service._limits[services.database]
    service.end_processes()


@pytest.fixture
def http(services: Services, serve: Serve, limits: QueryLimits) -> httpx.Client:
    return serve(create_app(services))
