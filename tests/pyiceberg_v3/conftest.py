"""PyIceberg with the patches, on a table of format version 3 that real DuckDB sees too."""

from collections.abc import Iterator

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from duckicelake.pyiceberg_v3.installation import install, uninstall
from tests.pyiceberg_v3.rows import SCHEMA


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    install()
    yield
    uninstall()


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return catalog.create_table("main.t", SCHEMA, properties={"format-version": "3"})


@pytest.fixture
def partitioned(table: Table) -> Table:
    """The same table, partitioned by `name`."""
    with table.update_spec() as spec:
        spec.add_identity("name")
    return table
