"""The pipeline's own way to the lake of the engine tests."""

import os

import pytest

from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from scripts.demo_job.backend import CLIENT, SECRET, VARIABLE
from scripts.demo_job.server import RunningLake


@pytest.fixture(autouse=True)
def commands_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the lake wants that: lakes in a folder don't."""
    if os.environ.get(VARIABLE):
        monkeypatch.setenv("DUCKICELAKE_PIPELINE_CREDENTIAL", f"{CLIENT}:{SECRET}")


@pytest.fixture
def connection(lake: RunningLake) -> Connection:
    return Connection(lake.uri, credential=lake.backend.catalog.get("credential"))


@pytest.fixture
def client(connection: Connection) -> CatalogClient:
    return CatalogClient(connection)
