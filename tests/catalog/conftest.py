"""A client on a fresh lake, in the same process as the server's use cases."""

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.postgres.embedded import EmbeddedPostgres
from tests.catalog.seams import fresh
from tests.support.backends import Bucket
from tests.support.s3_lakes import s3_lake

pytest.register_assert_rewrite("tests.catalog.client", "tests.catalog.history")
from tests.catalog.client import Client, new_client  # noqa: E402
from tests.catalog.history import History  # noqa: E402


@pytest.fixture
def client(services: Services) -> Client:
    return new_client(services)


@pytest.fixture
def on_s3(postgres: EmbeddedPostgres, bucket: Bucket) -> Iterator[Services]:
    """A lake whose files are in a bucket of its own."""
    with s3_lake(postgres, bucket) as services:
        yield services


@pytest.fixture(params=["client-2", "ducklake-3"])
def history(request: pytest.FixtureRequest, services: Services, ducklake: duckdb.DuckDBPyConnection) -> History:
    """An empty table, of a server in this snapshot-id mode and of this format version."""
    mode, version = request.param.split("-")
    new_client(services)
    return History(replace(fresh(services), snapshot_ids=mode), ducklake, int(version)).create()
