"""`duckicelake pipeline ingest` and `changes` as people type them, with what Spark must fetch for a source."""

import json
import os
import subprocess
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import fastavro
import psycopg
import pytest

from scripts.backends_job.postgres import running_postgres
from scripts.demo_job.server import PROGRAM, RunningLake

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(900)]


def pipeline(lake: RunningLake, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [PROGRAM, "pipeline", *map(str, arguments), "--uri", lake.uri, "--master", "local[1]"]
    return subprocess.run(
        command,
        check=False,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )


def ingested(lake: RunningLake, *arguments: object, **environment: str) -> dict[str, Any]:
    done = pipeline(lake, "ingest", *arguments, "--json", **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_table_of_a_postgres_is_merged_with_its_password_from_pgpass(
    lake: RunningLake, duck: duckdb.DuckDBPyConnection, namespace: str, folder: Path
) -> None:
    folder.chmod(0o711)  # as root, Postgres runs as another user
    with running_postgres(folder / "postgres") as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, price numeric(8, 2), day date, note text)")
            connection.execute(
                "INSERT INTO orders SELECT i, i / 4.0, '2024-01-01', repeat('x', 9) FROM generate_series(1, 500) i"
            )
        at = urlsplit(url)
        pgpass = folder / "pgpass"
        pgpass.write_text(f"{at.hostname}:{at.port}:*:{at.username}:{at.password}\n")
        pgpass.chmod(0o600)
        arguments = (f"jdbc:postgresql://{at.hostname}:{at.port}{at.path}", "--option", "dbtable=orders",
                     "--option", f"user={at.username}", "--table", f"{namespace}.orders", "--mode", "merge",
                     "--key", "id")  # fmt: skip
        told = ingested(lake, *arguments, PGPASSFILE=str(pgpass))
    assert (told["rows"], told["quarantined"], told["result"]) == (500, 0, "done")
    found = duck.sql(f"SELECT count(*), sum(price), min(day), max(note) FROM lake.{namespace}.orders").fetchall()
    assert found == [(500, Decimal("31312.50"), date(2024, 1, 1), "x" * 9)]


def test_avro_files_of_several_schemas_and_the_changes_that_they_make(
    lake: RunningLake, duck: duckdb.DuckDBPyConnection, namespace: str, tmp_path: Path
) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"]}]
    for number, more in enumerate(([], [{"name": "more", "type": "double"}])):
        schema = {"type": "record", "name": "r", "fields": [*fields, *more]}
        rows = [{"id": number * 10 + i, "v": None if i else "a", "more": i / 2} for i in range(3)]
        with (tmp_path / f"{number}.avro").open("wb") as file:
            fastavro.writer(file, schema, rows)
    told = ingested(lake, f"{tmp_path}/*.avro", "--table", f"{namespace}.t", "--run-id", "avro")
    assert (told["rows"], told["files"], told["run_id"]) == (6, 2, "avro")
    found = duck.sql(f"SELECT id, v, more FROM lake.{namespace}.t ORDER BY id").fetchall()
    assert found == [(0, "a", None), (1, None, None), (2, None, None), (10, "a", 0), (11, None, 0.5), (12, None, 1)]
    duck.execute(f"DELETE FROM lake.{namespace}.t WHERE id = 11")
    state = tmp_path / "state"
    lines = pipeline(lake, "changes", f"{namespace}.t", "--from", told["snapshot_ids"][0], "--state", state)
    assert lines.returncode == 0, lines.stderr[-3000:]
    (line,) = map(json.loads, lines.stdout.splitlines())
    assert (line["_change_type"], line["id"], line["v"], line["more"]) == ("DELETE", 11, None, 0.5)
    kept = json.loads(state.read_text())
    assert (kept["snapshot-id"], kept["next-ordinal"]) == (line["_commit_snapshot_id"], line["_change_ordinal"] + 1)
