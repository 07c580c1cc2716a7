"""One lake from both sides: real DuckDB on the catalog, and PyIceberg through the app over HTTP."""

from collections.abc import Iterator

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.catalog.context.services import Services
from duckicelake.server.app import create_app
from tests.server.conftest import running

pytest.register_assert_rewrite("tests.support.lakes")
from tests.support.lakes import Lake  # noqa: E402


@pytest.fixture
def catalog(services: Services) -> Iterator[Catalog]:
    """PyIceberg's REST catalog, with the namespace `main` that every DuckLake has."""
    with running(create_app(services)) as uri, RestCatalog("lake", uri=uri) as rest:
        yield rest


@pytest.fixture
def lake(services, ducklake) -> Lake:
    return Lake(services, ducklake)
