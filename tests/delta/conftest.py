"""DuckDB that reads Delta tables in place."""

import pytest

from duckicelake import delta
from duckicelake.delta.duckdb import Connection


@pytest.fixture(scope="module")
def installed() -> Connection:
    return delta.connect()


@pytest.fixture
def duck(installed: Connection) -> Connection:
    """A connection of the test's own."""
    return installed.cursor()
