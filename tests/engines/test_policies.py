"""The example of policies in docs/governance.md, with every client that it names, on a lake in S3."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from duckdb_extensions import import_extension

from scripts.backends_job.minio import Minio
from scripts.demo_job.server import RunningLake, own_environment
from tests.engines.guarded import guarded_lake
from tests.support.documents import Snippet, snippets

pytestmark = [pytest.mark.engine, pytest.mark.spark, pytest.mark.more_engines]

EXAMPLE = [one for one in snippets("docs/governance.md") if one.name.startswith("restricted_")]
CLIENTS = ["shell", "pyiceberg", "duckdb", "spark", "engine"]
SPARK = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"}


@pytest.fixture(scope="module")
def lake(minio: Minio) -> Iterator[RunningLake]:
    for extension in ("iceberg", "avro", "httpfs"):
        import_extension(extension)
    with guarded_lake(minio, "policies") as running:
        yield running


def run_as_it_stands(lake: RunningLake, folder: Path, snippet: Snippet) -> str:
    """Run a snippet as a user of the server's machine would, and return what it prints."""
    code = snippet.placed({"http://localhost:8181": lake.uri, "python3": sys.executable})
    program = [sys.executable, "-c"] if snippet.language == "python" else ["bash", "-euo", "pipefail", "-c"]
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = own_environment(lake.backend.settings) | SPARK | {"PATH": programs}
    done = subprocess.run(
        [*program, code], cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        pytest.fail(f"{snippet.name}: {done.stderr[:10_000]}")
    return done.stdout


@pytest.mark.timeout(900)
def test_example_shows_each_client_what_it_says(lake: RunningLake, tmp_path: Path) -> None:
    (tmp_path / "lake").symlink_to(lake.folder)
    names = [snippet.name.removeprefix("restricted_") for snippet in EXAMPLE]
    assert names == ["principals", "rows", "policies", *CLIENTS]
    for snippet in EXAMPLE:
        printed = " ".join(run_as_it_stands(lake, tmp_path, snippet).split())
        assert snippet.promised or snippet.name in {"restricted_principals", "restricted_rows"}
        for promised in snippet.promised:
            assert " ".join(promised.split()) in printed, (snippet.name, printed)
        assert ("@example.org" in printed) == (snippet.name == "restricted_spark")
