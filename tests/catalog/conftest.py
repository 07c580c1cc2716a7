"""A client on a fresh lake, in the same process as the server's use cases."""

import pytest

from duckicelake.catalog.services import Services
from tests.catalog.client import Client, new_client


@pytest.fixture
def client(services: Services) -> Client:
    return new_client(services)
