"""One corpus of Delta tables and one lake that has all of them imported, for all tests of this folder."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import duckdb
import pytest
from duckdb_extensions import import_extension
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from duckicelake import delta
from duckicelake.catalog.context.services import Services
from duckicelake.cli.wiring.services import open_lake
from duckicelake.delta.duckdb.connection import DeltaConnection
from duckicelake.delta.import_.importer import DeltaImport, import_table
from duckicelake.errors import CatalogError
from duckicelake.settings.sources import read_settings
from scripts.demo_job.backend import VARIABLE
from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import RunningLake, running_lake
from tests.delta.corpus.families import NAMES
from tests.delta.corpus.records import DeltaTable, recorded
from tests.delta.corpus.spark_queries import QUICKLY
from tests.engines.conftest import alone, new_folder
from tests.engines.delta.readers import NAMESPACE, Imported, Imports

ROOT = Path(__file__).parents[3]
CORPUS = "DELTA_CORPUS"
"""Names another folder for the corpus than the one in the user's cache."""
CORPUS_SECONDS = 1500


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The corpus's folder: made by whoever needs it first, kept as long as nothing that it is made by changes."""
    if os.environ.get(VARIABLE):
        pytest.skip("the corpus's tables lie in a folder, and so must the lake")
    folder = Path(os.environ.get(CORPUS) or cache() / f"delta-corpus-{digest()}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder.with_suffix(".lock")):
        if not (folder / "corpus.json").exists():
            subprocess.run(
                [sys.executable, "-m", "tests.delta.corpus", str(folder)],
                cwd=ROOT,
                env={**os.environ, "SPARK_SUBMIT_OPTS": QUICKLY},
                check=True,
                timeout=CORPUS_SECONDS,
            )
    return folder


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "duckicelake"


def digest() -> str:
    """Of all that the corpus is made by."""
    found = hashlib.sha256(f"{version('pyspark')} {version('deltalake')}".encode())
    for module in sorted((ROOT / "tests" / "delta" / "corpus").glob("*.py")):
        found.update(module.read_bytes())
    return found.hexdigest()[:16]


@pytest.fixture(scope="session")
def tables(corpus: Path) -> dict[str, DeltaTable]:
    return {name: recorded(corpus, name) for name in NAMES}


@pytest.fixture(scope="session")
def delta_lake(corpus: Path) -> Iterator[RunningLake]:
    with new_folder() as path:
        settings = {"DUCKICELAKE_ALLOWED_LOCATIONS": str(corpus)}
        with running_lake(path / "lake", path / "server.log", settings) as running:
            yield running


@pytest.fixture(scope="session")
def services(delta_lake: RunningLake, corpus: Path) -> Iterator[Services]:
    with open_lake(read_settings({"lake": delta_lake.folder, "allowed_locations": str(corpus)})) as found:
        yield found


@pytest.fixture(scope="session")
def rest(delta_lake: RunningLake) -> Iterator[Catalog]:
    with pyiceberg_catalog(delta_lake) as catalog:
        catalog.create_namespace(NAMESPACE)
        yield catalog


@pytest.fixture(scope="session")
def imported(rest: Catalog, delta_lake: RunningLake, services: Services, tables: dict[str, DeltaTable]) -> Imports:
    """All tables of the corpus imported by their names, and what was said of those that couldn't be."""
    found: dict[str, Imported | CatalogError] = {}
    for name, table in tables.items():
        try:
            import_table(services, DeltaImport(str(table.root), (NAMESPACE,), name))
            found[name] = Imported.load(delta_lake.uri, name)
        except CatalogError as error:
            found[name] = error
    return found


@pytest.fixture(scope="session")
def ducklake(delta_lake: RunningLake) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb_lake(delta_lake) as connection:
        yield connection


@pytest.fixture(scope="session")
def duck_delta() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its delta extension."""
    import_extension("delta")
    with duckdb.connect() as connection:
        connection.execute("LOAD delta")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture(scope="session")
def read_delta() -> Iterator[DeltaConnection]:
    with delta.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture(scope="session")
def iceberg_spark(spark: SparkSession, delta_lake: RunningLake) -> SparkSession:
    """The one Spark of these tests, with the lake of Delta tables as another catalog."""
    name = f"spark.sql.catalog.{NAMESPACE}"
    spark.conf.set(name, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{name}.type", "rest")
    spark.conf.set(f"{name}.uri", delta_lake.uri)
    spark.conf.set(f"{name}.cache-enabled", "false")
    return spark
