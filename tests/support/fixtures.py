"""Fixtures of a whole lake: the use cases' client, PyIceberg over HTTP, and DuckDB beside them."""

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.catalog.context.services import Services
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.app import create_app
from tests.support.backends import Bucket
from tests.support.client import Client, new_client
from tests.support.lakes import Lake
from tests.support.s3_lakes import s3_lake
from tests.support.seams import fresh
from tests.support.servers import running
from tests.support.table_history import History


@pytest.fixture
def client(services: Services) -> Client:
    """A client on a fresh lake, in the same process as the server's use cases."""
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


@pytest.fixture
def catalog(services: Services) -> Iterator[Catalog]:
    """PyIceberg's REST catalog, with the namespace `main` that every DuckLake has."""
    with running(create_app(services)) as uri, RestCatalog("lake", uri=uri) as rest:
        yield rest


@pytest.fixture
def lake(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    """One lake from both sides: PyIceberg's catalog and real DuckDB."""
    return Lake(services, ducklake)
