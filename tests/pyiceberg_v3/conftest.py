"""PyIceberg with the patches, on a table of format version 3 that real DuckDB sees too."""

from collections.abc import Iterator

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from duckicelake.catalog.context.services import Services
from duckicelake.pyiceberg_v3.installation import install, uninstall
from duckicelake.server.app import create_app
from tests.pyiceberg_v3.rows import SCHEMA
from tests.server.conftest import running
from tests.support.lakes import Lake


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    install()
    yield
    uninstall()


@pytest.fixture
def catalog(services: Services) -> Iterator[Catalog]:
    with running(create_app(services)) as uri, RestCatalog("lake", uri=uri) as rest:
        yield rest


@pytest.fixture
def lake(services, ducklake) -> Lake:
    return Lake(services, ducklake)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return catalog.create_table("main.t", SCHEMA, properties={"format-version": "3"})


@pytest.fixture
def partitioned(table: Table) -> Table:
    """The same table, partitioned by `name`."""
    with table.update_spec() as spec:
        spec.add_identity("name")
    return table
