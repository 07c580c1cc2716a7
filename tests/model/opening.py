"""The lake that a run is about, with a server of its own on loopback."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from io import StringIO
from tempfile import TemporaryDirectory
from uuid import uuid4

import duckdb
import psycopg
from duckdb_extensions import import_extension
from psycopg.conninfo import make_conninfo
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import create_namespace
from duckicelake.lake.ducklake.database import build_duckdb_attach, open_lake_database
from duckicelake.lake.setup.format import prepare_catalog
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.app import create_app
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.storage.policy import LocationPolicy
from duckicelake.storage.registry import open_store
from tests.model.lake import NAMESPACES, Lake
from tests.model.model import ID, Column
from tests.support.client import Client
from tests.support.seams import fresh
from tests.support.servers import running

Attach = Callable[[], duckdb.DuckDBPyConnection]
COLUMNS = (Column(ID, "id", "long"), Column(1, "a", "string"), Column(2, "b", "int"))


@contextmanager
def standalone(postgres: EmbeddedPostgres) -> Iterator[tuple[Services, Attach]]:
    """A new database on the server, and what attaches DuckDB to it: what the tests' fixtures give."""
    name = f"model_{uuid4().hex}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = make_conninfo(postgres.url, dbname=name)
    for extension in ("ducklake", "postgres_scanner"):
        import_extension(extension)
    with TemporaryDirectory() as folder, closing(open_lake_database(url, pool_size=8)) as database:
        prepare_catalog(database, f"{folder}/ducklake/")
        policy = LocationPolicy(warehouse=folder, allowed=())
        clock = lambda: time.time_ns() // 1_000_000  # noqa: E731
        with ExitStack() as stack:

            def attach() -> duckdb.DuckDBPyConnection:
                duck = stack.enter_context(duckdb.connect(config={"threads": 2}))
                duck.execute("LOAD ducklake; LOAD postgres_scanner")
                return duck.execute(build_duckdb_attach(url))

            yield Services(database, open_store(folder), policy, "client", clock), attach


@contextmanager
def new_lake(services: Services, attach: Attach, mode: str, format_version: int) -> Iterator[Lake]:
    """A lake with both namespaces and one table of the format version, to which others may be upgraded."""
    served = replace(fresh(services), snapshot_ids=mode)  # type: ignore[arg-type]
    for namespace in NAMESPACES:
        create_namespace(served, (namespace,), {})
    with running(create_app(served, log=make_logger(StringIO()))) as uri, RestCatalog("lake", uri=uri) as catalog:
        lake = Lake(served, attach(), attach, catalog, format_version)
        schema = {
            "type": "struct",
            "fields": [
                {"id": number, "name": column.name, "type": column.type, "required": False}
                for number, column in enumerate(COLUMNS, 1)
            ],
        }
        Client(served).create("t", schema=schema, properties={"format-version": str(format_version)})
        lake.add_table("ns", "t", COLUMNS, format_version)
        yield lake
