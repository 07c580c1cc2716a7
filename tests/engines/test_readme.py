"""The snippets of README.md run, in order, as they stand there; only the two addresses are the live server's."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from duckicelake.pyiceberg_v3 import uninstall
from scripts.demo_job.server import RunningLake

pytestmark = [pytest.mark.engine, pytest.mark.spark]

README = Path(__file__).parents[2] / "README.md"
SNIPPETS = re.findall(r"<!-- run: (\w+) -->\n```(\w+)\n(.*?)```", README.read_text(), re.DOTALL)


def test_readme_has_a_snippet_for_every_client() -> None:
    names = ["spark", "pyiceberg", "duckdb", "spark_again", "curl", "rows", "writer", "pyiceberg_v3"]
    assert [name for name, _, _ in SNIPPETS] == names


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
    for name, language, code in SNIPPETS:
        placed = code.replace("http://localhost:8181", lake.uri).replace("ducklake:postgres:…", lake.ducklake_attach)
        if language == "python":
            exec(compile(placed, f"README.md: {name}", "exec"), {})
        else:
            subprocess.run(["bash", "-euo", "pipefail", "-c", placed], check=True, stdin=subprocess.DEVNULL)
        printed = " ".join(capfd.readouterr().out.split())
        for promised in re.findall(r"# -> (.*)", code):
            assert " ".join(promised.split()) in printed, name
