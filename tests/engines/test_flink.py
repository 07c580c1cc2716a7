"""A stock Flink with what docs/clients.md gives it: it logs in, gets keys for S3, and works, in batches and streams."""

from collections.abc import Iterator

import duckdb
import pytest

from scripts.backends_job.minio import Minio
from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import RunningLake
from scripts.engines_job.flink import Flink, running_flink
from tests.engines.conftest import new_folder
from tests.engines.guarded import CREDENTIAL, guarded_lake
from tests.engines.plans import count_plans
from tests.support.documents import snippets

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(900)]

KEYED = "(id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
STREAM = (
    "CREATE TEMPORARY TABLE {name} (id BIGINT, name STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1000', "
    "'rows-per-second' = '400', 'fields.name.length' = '5', {ids})"
)
REPEATED = "'fields.id.min' = '1', 'fields.id.max' = '50'"
COUNTED = "'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '1000'"


@pytest.fixture(scope="module")
def guarded(minio: Minio) -> Iterator[RunningLake]:
    with guarded_lake(minio, "for-flink") as lake:
        yield lake


@pytest.fixture(scope="module")
def engines(guarded: RunningLake, minio: Minio) -> Iterator[tuple[Flink, duckdb.DuckDBPyConnection]]:
    """With a table that DuckDB made."""
    [snippet] = [each for each in snippets("docs/clients.md") if each.name == "flink"]
    with duckdb_lake(guarded) as duck, new_folder() as folder:
        duck.execute("CREATE SCHEMA lake.ns")
        duck.execute("CREATE TABLE lake.ns.born_in_duckdb AS SELECT range AS id FROM range(1000)")
        with running_flink(folder) as flink:
            catalog = snippet.placed({"http://localhost:8181": guarded.uri, "engines:secret": CREDENTIAL})
            store = f"'s3.endpoint' = '{minio.endpoint}', 's3.path-style-access' = 'true', 'type' = "
            for mode in ("batch", "streaming"):
                flink.rows(catalog.replace("'type' = ", store, 1), mode=mode)
            planned = catalog.replace("CATALOG lake", "CATALOG planned", 1)
            flink.rows(planned.replace("'type' = ", f"'scan-planning-mode' = 'server', {store}", 1))
            flink.rows("CREATE DATABASE lake.pond")
            yield flink, duck


def test_a_table_of_duckdbs_is_read_and_written(engines: tuple[Flink, duckdb.DuckDBPyConnection]) -> None:
    flink, duck = engines
    duck.execute("INSERT INTO lake.ns.born_in_duckdb VALUES (5000)")  # inlined
    flink.rows("INSERT INTO lake.ns.born_in_duckdb VALUES (CAST(6000 AS BIGINT))")
    assert flink.rows("SELECT COUNT(*), SUM(id) FROM lake.ns.born_in_duckdb") == ["+I[1002, 510500]"]
    assert duck.sql("SELECT count(*), sum(id) FROM lake.ns.born_in_duckdb").fetchall() == [(1002, 510500)]


def test_a_table_is_made_overwritten_and_changed(engines: tuple[Flink, duckdb.DuckDBPyConnection]) -> None:
    flink, duck = engines
    flink.rows("CREATE TABLE lake.pond.ducks (id BIGINT, home STRING) PARTITIONED BY (home)")
    flink.rows("INSERT INTO lake.pond.ducks VALUES (1, 'x'), (2, 'y'), (3, 'x')")
    flink.rows("INSERT OVERWRITE lake.pond.ducks SELECT 9, 'x'")
    flink.rows("ALTER TABLE lake.pond.ducks ADD (name STRING)")
    flink.rows("INSERT INTO lake.pond.ducks VALUES (4, 'z', 'Ann')")
    rows = duck.sql("SELECT id, home, name FROM lake.pond.ducks ORDER BY id").fetchall()
    assert rows == [(2, "y", None), (4, "z", "Ann"), (9, "x", None)]
    shown = flink.rows("SELECT id, home, name FROM lake.pond.ducks ORDER BY id")
    assert shown == ["+I[2, y, null]", "+I[4, z, Ann]", "+I[9, x, null]"]
    flink.rows("ALTER TABLE lake.pond.ducks RENAME TO lake.pond.renamed")
    flink.rows("DROP TABLE lake.pond.renamed")
    assert flink.rows("SHOW TABLES FROM lake.pond LIKE 'renamed'") == []


@pytest.mark.parametrize("version", [2, 3])
def test_upserts_of_a_batch_replace_rows(engines: tuple[Flink, duckdb.DuckDBPyConnection], version: int) -> None:
    flink, duck = engines
    table = f"lake.pond.upserted_{version}"
    flink.rows(f"CREATE TABLE {table} {KEYED} WITH ('format-version' = '{version}', 'write.upsert.enabled' = 'true')")
    flink.rows(f"INSERT INTO {table} VALUES (1, 'Ann'), (2, 'Ben')")
    flink.rows(f"INSERT INTO {table} VALUES (2, 'Bea'), (3, 'Cem')")
    assert duck.sql(f"SELECT id, name FROM {table} ORDER BY id").fetchall() == [(1, "Ann"), (2, "Bea"), (3, "Cem")]
    assert flink.rows(f"SELECT id, name FROM {table} ORDER BY id") == ["+I[1, Ann]", "+I[2, Bea]", "+I[3, Cem]"]


@pytest.mark.parametrize(("name", "ids", "rows"), [("repeated", REPEATED, 50), ("counted", COUNTED, 1000)])
def test_a_stream_commits_at_each_checkpoint_and_loses_nothing(
    engines: tuple[Flink, duckdb.DuckDBPyConnection], name: str, ids: str, rows: int
) -> None:
    flink, duck = engines
    table, source = f"lake.pond.{name}", f"{name}_source"
    flink.rows(STREAM.format(name=source, ids=ids), mode="streaming")
    properties = "'format-version' = '2', 'write.upsert.enabled' = 'true'" if name == "repeated" else "'a' = 'b'"
    columns = KEYED if name == "repeated" else "(id BIGINT, name STRING)"
    flink.rows(f"CREATE TABLE {table} {columns} WITH ({properties})", mode="streaming")
    flink.rows(f"INSERT INTO {table} SELECT * FROM {source}", mode="streaming")
    assert duck.sql(f"SELECT count(*), count(DISTINCT id) FROM {table}").fetchall() == [(rows, rows)]
    assert flink.rows(f"SELECT COUNT(*), COUNT(DISTINCT id) FROM {table}") == [f"+I[{rows}, {rows}]"]
    [commits] = flink.rows(f"SELECT COUNT(*) FROM lake.pond.`{name}$snapshots`")
    assert int(commits.removeprefix("+I[").rstrip("]")) > 1


def test_scans_that_the_server_plans_have_the_same_rows(
    engines: tuple[Flink, duckdb.DuckDBPyConnection], guarded: RunningLake
) -> None:
    flink, duck = engines
    duck.execute("CREATE TABLE lake.ns.planned (id bigint, kind varchar)")
    duck.execute("INSERT INTO lake.ns.planned SELECT range, 'kind ' || range % 4 FROM range(1000)")
    duck.execute("ALTER TABLE lake.ns.planned SET PARTITIONED BY (kind)")
    duck.execute("INSERT INTO lake.ns.planned SELECT range, 'kind ' || range % 4 FROM range(1000, 2000)")
    duck.execute("DELETE FROM lake.ns.planned WHERE id IN (8, 1008)")
    duck.execute("INSERT INTO lake.ns.planned VALUES (5000, NULL)")  # inlined
    for where in ("id > -1", "id = 1009", "kind = 'kind 0' AND id < 1012", "kind IS NULL", "kind <> 'kind 3'"):
        query = f"SELECT count(*), sum(id) FROM {{}}.ns.planned WHERE {where}"
        [(count, total)] = duck.sql(query.format("lake")).fetchall()
        before = count_plans(guarded)
        assert flink.rows(query.format("planned")) == [f"+I[{count}, {total}]"]
        assert count_plans(guarded) > before
        assert flink.rows(query.format("lake")) == [f"+I[{count}, {total}]"]
