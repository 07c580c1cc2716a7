"""The snippets for clients run, in order, as they stand there; only the two addresses are the live server's."""

import subprocess
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from duckicelake.pyiceberg_v3.installation import uninstall
from scripts.demo_job.server import RunningLake
from tests.support.documents import snippets

pytestmark = [pytest.mark.engine, pytest.mark.spark]

FIRST = ("spark", "curl")
"""Snippets of the clients' page for the table as the README leaves it."""
CLIENTS = snippets("docs/clients.md")
ALL = [
    *snippets("README.md"),
    *(each for each in CLIENTS if each.name in FIRST),
    *snippets("docs/scan-planning.md"),
    *snippets("docs/small-writes.md"),
    *(each for each in CLIENTS if each.name not in FIRST),
]
ENGINES = ("trino", "flink", "kafka_connect", "clickhouse")
WITH_LOGINS = (*ENGINES, "spark_login", "pyiceberg_login", "duckdb_iceberg", "polars", "daft")
"""tests/engines/compatibility runs these."""
PARTS_OF_PROGRAMS = ("go", "rust")
SNIPPETS = [each for each in ALL if each.name not in (*WITH_LOGINS, *PARTS_OF_PROGRAMS)]
"""Each goes on with the table that the one before has left."""

EMBEDDED = "ducklake:postgres:user=postgres dbname=postgres host={postgres}"
"""What DuckDB attaches in the README."""


def test_there_is_a_snippet_for_every_client() -> None:
    readme = ["pyiceberg", "duckdb", "pyiceberg_again", *FIRST]
    planned = ["planned_pyiceberg", "planned_spark", "explain"]
    assert [each.name for each in SNIPPETS] == [*readme, *planned, "rows", "writer", "pyiceberg_v3"]


@pytest.fixture
def restored() -> Iterator[None]:
    """The last snippet patches PyIceberg in this process."""
    yield
    uninstall()


@pytest.mark.usefixtures("restored")
def test_snippets_run_in_order(lake: RunningLake, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    """Each prints what its comment (`# -> …`) says."""
    if lake.backend.catalog:
        pytest.skip("the snippets are for a server that asks nobody who they are")
    places = {"http://localhost:8181": lake.uri, EMBEDDED: lake.ducklake_attach}
    for snippet in SNIPPETS:
        if snippet.language == "python":
            snippet.run_python(places)
        else:
            bash = ["bash", "-euo", "pipefail", "-c", snippet.placed(places)]
            subprocess.run(bash, check=True, stdin=subprocess.DEVNULL)
        printed = " ".join(capfd.readouterr().out.split())
        for promised in snippet.promised:
            assert " ".join(promised.split()) in printed, snippet.name
