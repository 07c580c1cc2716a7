"""A lake that is really served, and what is in its tables."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest

from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.postgres.embedded import build_embedded_url
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from tests.cli.test_commands import Served, serving
from tests.conftest import new_duckdb

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "name", "type": "string", "required": False},
    ],
}
_numbers = count(1)


@dataclass
class LiveLake:
    """A served lake; the table `main.t<n>` is the test's own."""

    folder: Path
    served: Served
    table: str = field(default_factory=lambda: f"main.t{next(_numbers)}")
    credential: str | None = None

    @property
    def connection(self) -> Connection:
        return Connection(self.served.uri, self.credential)

    def with_table(self, schema: dict[str, Any] = SCHEMA) -> Self:
        client = CatalogClient(self.connection)
        body = {"name": self.table.removeprefix("main."), "schema": schema}
        client.post(client.iceberg("namespaces", "main", "tables"), body)
        return self

    def rows(self, what: str = "*") -> list[tuple[Any, ...]]:
        """What DuckDB reads of the table, in the order of the rows' ids."""
        with new_duckdb() as duck:
            duck.execute(build_duckdb_attach(build_embedded_url(self.folder)))
            return duck.execute(f"SELECT {what} FROM lake.{self.table} ORDER BY rowid").fetchall()

    def ids(self) -> list[int]:
        return [each for (each,) in self.rows("id")]


@contextmanager
def new_folder() -> Iterator[Path]:
    """Not below pytest's folder: Postgres runs as another user where the tests run as root."""
    folder = Path(tempfile.mkdtemp(prefix="duckicelake-client-"))
    folder.chmod(0o755)
    yield folder / "lake"
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def shared_lake() -> Iterator[tuple[Path, Served]]:
    with new_folder() as folder, serving(folder) as served:
        yield folder, served


@pytest.fixture
def live(shared_lake: tuple[Path, Served], extensions: None) -> LiveLake:
    """A lake that serves all tests, with a table of this one's."""
    return LiveLake(*shared_lake).with_table()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a lake of the test's own may be."""
    with new_folder() as folder:
        yield folder
