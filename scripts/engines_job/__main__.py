"""python -m scripts.engines_job: fetch engines, or run the tests of DuckDB against its next version."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scripts.engines_job.packages import (
    SPARKS,
    EngineError,
    catalogs_home,
    clickhouse_home,
    duckdb_2_home,
    flink_jars,
    go_program,
    has_ducklake,
    hive_jars,
    java_home,
    kafka_connect_jars,
    kafka_jars,
    keycloak_home,
    nessie_jar,
    python_home,
    rust_program,
    say,
    spark_jars,
    trino_home,
)

ROOT = Path(__file__).parents[2]
WITHOUT_EXTENSION = ("tests/parquet", "tests/sql_dialects", "tests/constraints", "tests/catalog/rows")
"""Tests of all that the server asks of DuckDB itself; those of them that attach a lake skip without its extension."""
WITH_EXTENSION = ("tests/engines", "tests/lake")
PRINTED_OTHERWISE = (
    "tests/sql_dialects/test_views.py::test_all_that_is_let_through_is_in_the_queries_that_the_engines_run"
)
"""DuckDB 2 prints functions in views without `main.`, which this test wants to meet; both are translated."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/engines",
        description="Have the engines of docs/engines.md, the next DuckDB, Nessie, Hive and moto on this machine "
        "(8 GB), and say where they are; or run DuckDB's tests against its next version.",
    )
    parser.add_argument("command", choices=["fetch"], nargs="?")
    parser.add_argument("--duckdb", choices=["2"], help="run the tests against this DuckDB")
    asked = parser.parse_args()
    if not asked.command and not asked.duckdb:
        parser.error("fetch, or --duckdb 2")
    try:
        return test_with_duckdb_2() if asked.duckdb else fetch()
    except EngineError as error:
        say(str(error))
        return 1


def fetch() -> int:
    homes: dict[str, Callable[[], Path]] = {
        "Flink": flink_jars,
        "Kafka": kafka_jars,
        "Kafka Connect": kafka_connect_jars,
        "Keycloak": keycloak_home,
        **{f"Spark {version}": partial(spark_jars, version) for version in SPARKS},
        "Trino": trino_home,
        "Trino's Java": java_home,
        "ClickHouse": clickhouse_home,
        **{name: partial(python_home, name) for name in ("pyiceberg-0.11", "polars", "daft")},
        "iceberg-go": go_program,
        "iceberg-rust": rust_program,
        "DuckDB 2": duckdb_2_home,
        "Nessie": nessie_jar,
        "Hive's metastore": hive_jars,
        "Glue": catalogs_home,
    }
    for name, home in homes.items():
        say(f"{name} is in {home()}")
    return 0


def test_with_duckdb_2() -> int:
    """Run what runs without its extension, and the rest as soon as its wheels are here."""
    home = duckdb_2_home()
    path = os.pathsep.join([str(home), str(ROOT)])
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "0"]
    selected = [*WITHOUT_EXTENSION, "--deselect", PRINTED_OTHERWISE, "-m", "not spark and not more_engines"]
    runs = [(selected, path), (["tests/lake/test_duckdb_2.py"], str(ROOT))]
    if has_ducklake(home):
        runs.append(([*WITH_EXTENSION, "-m", "not spark and not more_engines"], path))
    else:
        say("no wheel has DuckDB 2's ducklake extension yet: tests that attach a lake are left out")
    codes = [
        subprocess.run([*pytest, *what], cwd=ROOT, env=os.environ | {"PYTHONPATH": where}, check=False).returncode
        for what, where in runs
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
