"""The pipeline's own way to the lake of the engine tests."""

import os
from pathlib import Path

import duckdb
import pytest
from duckdb_extensions import import_extension

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
def duckdb_has_keys(lake: RunningLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As whoever lets the pipeline read with DuckDB gives it: in its own folder of secrets, below a home of its own."""
    if lake.backend.minio is None:
        return
    monkeypatch.setenv("HOME", str(tmp_path))
    with duckdb.connect() as connection:
        import_extension("httpfs", con=connection)
        for statement in lake.backend.duckdb:
            connection.execute(statement.replace("CREATE SECRET", "CREATE PERSISTENT SECRET lake"))


@pytest.fixture
def connection(lake: RunningLake) -> Connection:
    return Connection(lake.uri, credential=lake.backend.catalog.get("credential"))


@pytest.fixture
def client(connection: Connection) -> CatalogClient:
    return CatalogClient(connection)
