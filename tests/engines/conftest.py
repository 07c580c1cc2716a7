"""One live server, one Spark session and one DuckDB for all engine tests; every test has a namespace of its own."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fcntl import LOCK_EX, flock
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from duckicelake.pyiceberg_v3.installation import install, uninstall
from scripts.demo_job.backend import VARIABLE
from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog, spark_session
from scripts.demo_job.server import RunningLake, running_lake
from tests.engines.engines import Engines

NUMBERS = count(1)


@pytest.fixture(scope="session", autouse=True)
def quickly_compiled() -> Iterator[None]:
    """All of Spark's JVMs, those of commands too, compile quickly instead of well, which halves what they cost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield


@contextmanager
def new_folder() -> Iterator[Path]:
    """Not below pytest's folder: as root, Postgres runs as another user, and pytest closes its folder to others."""
    folder = Path(mkdtemp(prefix="duckicelake-engines-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def folder() -> Iterator[Path]:
    """For a test that starts a server of its own."""
    with new_folder() as path:
        yield path


@pytest.fixture
def lake_in_a_folder() -> None:
    """For a test of what only lakes in folders have, or of files beside the tables'.

    Spark's procedures take those in through Hadoop, which has no S3 here, and keys for one table don't reach them.
    """
    if os.environ.get(VARIABLE):
        pytest.skip("needs a lake in a folder")


@pytest.fixture(scope="session")
def lake() -> Iterator[RunningLake]:
    with new_folder() as path, running_lake(path / "lake", path / "server.log") as running:
        yield running


@pytest.fixture(scope="session")
def spark(lake: RunningLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with ExitStack() as stack:
        with alone(tmp_path_factory.getbasetemp().parent / "spark.lock"):
            session = stack.enter_context(spark_session(lake))
        yield session


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """No other of the test processes is in the block: what Spark downloads at its first start is for one at a time."""
    with lock.open("w") as file:
        flock(file, LOCK_EX)
        yield


@pytest.fixture(scope="session")
def catalog(lake: RunningLake) -> Iterator[Catalog]:
    with pyiceberg_catalog(lake) as rest:
        yield rest


@pytest.fixture(scope="session")
def duck(lake: RunningLake) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb_lake(lake) as connection:
        yield connection


@pytest.fixture
def engines(spark: SparkSession, catalog: Catalog, duck: duckdb.DuckDBPyConnection) -> Engines:
    return Engines(spark, catalog, duck)


@pytest.fixture
def pyiceberg_v3() -> Iterator[None]:
    """PyIceberg as it is once it writes tables of format version 3."""
    install()
    try:
        yield
    finally:
        uninstall()


@pytest.fixture
def namespace(catalog: Catalog) -> str:
    name = f"ns{next(NUMBERS)}"
    catalog.create_namespace(name)
    return name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the socket that it reads results from to the garbage collector."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
