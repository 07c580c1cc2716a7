"""One embedded Postgres per session, one database cloned from a prepared template per test, real DuckDB beside it."""

import gc
import itertools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import botocore.loaders
import botocore.session
import duckdb
import httpx
import psycopg
import pytest
from duckdb_extensions import import_extension
from psycopg.conninfo import make_conninfo

from duckicelake.catalog.context.services import Services
from duckicelake.lake.ducklake.database import build_duckdb_attach, open_lake_database
from duckicelake.lake.ducklake.dropped import set_retention
from duckicelake.lake.setup.format import build_session_settings, prepare_catalog, require_known
from duckicelake.postgres.database import Database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.storage.policy import LocationPolicy
from duckicelake.storage.registry import open_store

pytest.register_assert_rewrite("tests.support")
pytest_plugins = [
    "tests.support.backends",
    "tests.support.collector",
    "tests.support.examples",
    "tests.support.servers",
    "tests.support.stores",
    "tests.support.fixtures",
    "tests.support.process_end",
    "tests.support.renewal",
]
TEMPLATE = "duckicelake_template"
DUCKDB_SETTINGS: dict[str, Any] = {"threads": 1, "allow_unsigned_extensions": True}
"""Checking who signed the extensions would read all 80 MB of them for each instance."""
EndWithThisProcess = Callable[[int, Path], AbstractContextManager[None]]
Attach = Callable[..., duckdb.DuckDBPyConnection]
_numbers = itertools.count(1)
_administrators: dict[str, psycopg.Connection] = {}


def pytest_configure() -> None:
    """A shell lets what it starts in the background be deaf to Ctrl-C, and nohup to SIGHUP, which some tests send."""
    os.environ.setdefault("DUCKICELAKE_UPKEEP_WORKERS", "0")  # tests of upkeep turn it on
    gc.disable()  # until the tests are collected: nothing of them is garbage
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_sessionstart() -> None:
    """Each client of boto3 would read and parse the descriptions of S3 and STS again, each of httpx all authorities."""
    botocore.session.create_loader = cache(botocore.loaders.create_loader)
    httpx._transports.default.create_ssl_context = cache(httpx._config.create_ssl_context)  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """The garbage collector needn't look through all modules and all tests again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A JVM starts for tests with the mark `spark` alone: those run apart (`scripts/test`)."""
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("spark") is None:
            patch.setenv("JAVA_HOME", "/nowhere/but/in/tests/with/the/mark/spark")
        return (yield)


@pytest.fixture(scope="session")
def postgres(end_with_this_process: EndWithThisProcess) -> Iterator[EmbeddedPostgres]:
    # Not below pytest's folder: as root, Postgres runs as another user, and pytest closes its folder to others.
    folder = Path(tempfile.mkdtemp(prefix="duckicelake-tests-"))
    with EmbeddedPostgres(folder) as server, end_with_this_process(read_pid(folder), folder):
        with psycopg.connect(server.url, autocommit=True) as connection:
            for setting in ("fsync", "full_page_writes", "synchronous_commit", "autovacuum"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(f"CREATE DATABASE {TEMPLATE}")
        template = open_lake_database(make_conninfo(server.url, dbname=TEMPLATE), pool_size=1)
        prepare_catalog(template, "/nowhere/")
        with template.transaction() as cursor:
            set_retention(cursor, 0)  # tests of what is dropped set another
            # Here, as tests without the feature import this module, too.
            from duckicelake.upkeep.queue import write_policies  # noqa: PLC0415

            write_policies(cursor, {})  # so that no lake keeps itself but those of tests of that
        template.close()
        yield server
        for connection in _administrators.values():
            connection.close()
        _administrators.clear()
    shutil.rmtree(folder, ignore_errors=True)


def read_pid(folder: Path) -> int:
    """The process of the Postgres in a folder."""
    return int((folder / "postgres" / "postmaster.pid").read_text().split()[0])


@pytest.fixture
def empty_database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """A database without any table."""
    with new_database(postgres, "template1") as url:
        yield url


@pytest.fixture
def database_url(postgres: EmbeddedPostgres, warehouse: Path) -> Iterator[str]:
    """A prepared database whose DATA_PATH is `<warehouse>/ducklake/`."""
    with new_lake(postgres, warehouse) as url:
        yield url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = open_lake_database(database_url, pool_size=16, session_settings=build_session_settings())
    require_known(opened)
    yield opened
    opened.close()


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """The folder of the lake's files: `<warehouse>/ducklake/` for DuckDB, `<warehouse>/data/` for Iceberg."""
    return tmp_path / "warehouse"


@pytest.fixture
def services(database: Database, warehouse: Path) -> Services:
    return services_of(database, warehouse)


def services_of(database: Database, warehouse: Path) -> Services:
    """A server on the lake."""
    return Services(
        database=database,
        store=open_store(str(warehouse)),
        policy=LocationPolicy(warehouse=str(warehouse), allowed=()),
        snapshot_ids="client",
        clock=lambda: time.time_ns() // 1_000_000,
    )


@pytest.fixture(scope="session")
def extensions() -> None:
    """Install the real extensions into DuckDB's folder, from their wheels."""
    for name in ("ducklake", "postgres_scanner"):
        if version(f"duckdb-extension-{name.replace('_', '-')}") != duckdb.__version__:
            pytest.skip(f"no wheel has the extension {name} of DuckDB {duckdb.__version__}")
        import_extension(name)


@pytest.fixture
def attach(database_url: str, extensions: None) -> Iterator[Attach]:
    """Open one more DuckDB instance; it has the test's catalog, or another, attached as `lake`, its current one."""
    opened: list[duckdb.DuckDBPyConnection] = []

    def attach_another(url: str = database_url, data_path: str | None = None) -> duckdb.DuckDBPyConnection:
        connection = new_duckdb()
        opened.append(connection)
        connection.execute(build_duckdb_attach(url, data_path=data_path))
        return connection.execute("USE lake")

    yield attach_another
    for connection in opened:
        connection.close()


@pytest.fixture
def ducklake(attach: Attach) -> duckdb.DuckDBPyConnection:
    """DuckDB with the real ducklake extension, beside the server on the same catalog."""
    return attach()


def new_duckdb() -> duckdb.DuckDBPyConnection:
    """Open one more DuckDB instance with the real extensions.

    Two threads spin while Postgres answers: an attach then takes 100 ms of CPU instead of 25. Engines' tests have all.
    """
    connection = duckdb.connect(config=DUCKDB_SETTINGS)
    return connection.execute("LOAD ducklake; LOAD postgres_scanner")


@contextmanager
def new_lake(postgres: EmbeddedPostgres, warehouse: Path, template: str = TEMPLATE) -> Iterator[str]:
    """A prepared database whose DATA_PATH is `<warehouse>/ducklake/`, for as long as the context lasts."""
    with new_database(postgres, template) as url:
        with psycopg.connect(url) as connection:
            connection.execute(
                "UPDATE ducklake_metadata SET value = %s WHERE key = 'data_path'", [f"{warehouse}/ducklake/"]
            )
        yield url


@contextmanager
def new_database(postgres: EmbeddedPostgres, template: str, options: str = "") -> Iterator[str]:
    """A copy of a database that no one uses, for as long as the context lasts."""
    name = f"test_{next(_numbers)}"
    _administer(postgres).execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy {options}")
    yield make_conninfo(postgres.url, dbname=name)
    _administer(postgres).execute(f"DROP DATABASE {name} WITH (FORCE)")


def _administer(postgres: EmbeddedPostgres) -> psycopg.Connection:
    """Return the connection that makes and drops databases: a new one each time took 7 ms of CPU of each test."""
    if postgres.url not in _administrators:
        _administrators[postgres.url] = psycopg.connect(postgres.url, autocommit=True)
    return _administrators[postgres.url]
