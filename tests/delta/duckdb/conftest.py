"""DuckDB that reads Delta tables in place."""

import pytest

from duckicelake import delta
from duckicelake.delta.duckdb.connection import DeltaConnection


@pytest.fixture(scope="module")
def installed() -> DeltaConnection:
    return delta.connect()


@pytest.fixture
def duck(installed: DeltaConnection) -> DeltaConnection:
    """A connection of the test's own."""
    return installed.cursor()
