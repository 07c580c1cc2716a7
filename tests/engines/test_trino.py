"""A stock Trino with what docs/clients.md gives it: it logs in, gets keys for S3 from the catalog, and works."""

from collections.abc import Iterator

import duckdb
import pytest

from scripts.backends_job.minio import Minio
from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import RunningLake
from scripts.engines_job.packages import EngineError
from scripts.engines_job.trino import Trino, running_trino
from tests.engines.conftest import new_folder
from tests.engines.guarded import CREDENTIAL, guarded_lake
from tests.support.documents import snippets

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def lake(minio: Minio) -> Iterator[RunningLake]:
    with guarded_lake(minio, "for-trino") as running:
        yield running


@pytest.fixture(scope="module")
def duck(lake: RunningLake) -> Iterator[duckdb.DuckDBPyConnection]:
    """With a table that DuckDB made."""
    with duckdb_lake(lake) as connection:
        connection.execute("CREATE SCHEMA lake.ns")
        connection.execute("CREATE TABLE lake.ns.born_in_duckdb AS SELECT range AS id FROM range(1000)")
        yield connection


@pytest.fixture(scope="module")
def trino(lake: RunningLake, minio: Minio, duck: duckdb.DuckDBPyConnection) -> Iterator[Trino]:
    [snippet] = [each for each in snippets("docs/clients.md") if each.name == "trino"]
    catalog = snippet.placed({"http://localhost:8181": lake.uri, "engines:secret": CREDENTIAL})
    with new_folder() as folder, running_trino(folder, f"{catalog}{_of(minio)}") as running:
        running.rows("CREATE SCHEMA lake.zoo")
        yield running


def _of(minio: Minio) -> str:
    nested = "iceberg.rest-catalog.nested-namespace-enabled=true"
    return f"s3.endpoint={minio.endpoint}\ns3.path-style-access=true\n{nested}\n"


def test_a_table_of_duckdbs_is_read_and_written(trino: Trino, duck: duckdb.DuckDBPyConnection) -> None:
    duck.execute("INSERT INTO lake.ns.born_in_duckdb VALUES (5000)")  # inlined
    assert trino.rows("SELECT count(*), sum(id) FROM lake.ns.born_in_duckdb") == [[1001, 504500]]
    trino.rows("INSERT INTO lake.ns.born_in_duckdb VALUES 6000")
    trino.rows("DELETE FROM lake.ns.born_in_duckdb WHERE id < 500")
    assert duck.sql("SELECT count(*), sum(id) FROM lake.ns.born_in_duckdb").fetchall() == [(502, 385750)]
    assert trino.rows("SELECT count(*), sum(id) FROM lake.ns.born_in_duckdb") == [[502, 385750]]


def test_a_table_is_made_merged_into_and_changed(trino: Trino, duck: duckdb.DuckDBPyConnection) -> None:
    trino.rows(
        "CREATE TABLE lake.zoo.ducks (id bigint, name varchar, born date, eggs array(integer), home row(x integer)) "
        "WITH (partitioning = ARRAY['bucket(id, 4)'], sorted_by = ARRAY['id'])"
    )
    trino.rows(
        "INSERT INTO lake.zoo.ducks VALUES (1, 'Ann', DATE '2024-02-29', ARRAY[1, 2], ROW(7)), "
        "(2, 'Ben', NULL, NULL, NULL), (3, 'Cem', NULL, NULL, NULL)"
    )
    trino.rows("UPDATE lake.zoo.ducks SET name = 'Bea' WHERE id = 2")
    trino.rows(
        "MERGE INTO lake.zoo.ducks d USING (VALUES (3, NULL), (4, 'Dan')) new (id, name) ON d.id = new.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, name) VALUES (new.id, new.name)"
    )
    trino.rows("ALTER TABLE lake.zoo.ducks ADD COLUMN weight double")
    trino.rows("ALTER TABLE lake.zoo.ducks RENAME COLUMN name TO called")
    trino.rows("ALTER TABLE lake.zoo.ducks SET PROPERTIES partitioning = ARRAY['month(born)']")
    trino.rows("INSERT INTO lake.zoo.ducks (id, called, born, weight) VALUES (5, 'Eve', DATE '2025-01-01', 1.5)")
    rows = duck.sql("SELECT id, called, weight, eggs, home.x FROM lake.zoo.ducks ORDER BY id").fetchall()
    assert rows == [
        (1, "Ann", None, [1, 2], 7),
        (2, "Bea", None, None, None),
        (4, "Dan", None, None, None),
        (5, "Eve", 1.5, None, None),
    ]
    found = trino.rows("SELECT id, called, weight, eggs, home.x FROM lake.zoo.ducks ORDER BY id")
    assert [tuple(row) for row in found] == rows
    trino.rows("ALTER TABLE lake.zoo.ducks EXECUTE optimize")
    assert duck.sql("SELECT count(*), sum(id) FROM lake.zoo.ducks").fetchall() == [(4, 12)]


def test_a_table_of_version_3_is_changed_from_both_sides(trino: Trino, duck: duckdb.DuckDBPyConnection) -> None:
    """Each side writes over the other's deletion vectors; the ids of rows stay."""
    trino.rows("CREATE TABLE lake.zoo.third WITH (format_version = 3) AS SELECT * FROM UNNEST(sequence(1, 9)) t (id)")
    before = dict(trino.rows('SELECT id, "$row_id" FROM lake.zoo.third'))
    trino.rows("DELETE FROM lake.zoo.third WHERE id = 1")
    duck.execute("DELETE FROM lake.zoo.third WHERE id = 2")
    trino.rows("DELETE FROM lake.zoo.third WHERE id = 3")
    trino.rows("UPDATE lake.zoo.third SET id = 40 WHERE id = 4")
    duck.execute("UPDATE lake.zoo.third SET id = 50 WHERE id = 5")
    trino.rows(
        "MERGE INTO lake.zoo.third t USING (VALUES (6, 60), (10, 10)) new (old, id) ON t.id = new.old "
        "WHEN MATCHED THEN UPDATE SET id = new.id WHEN NOT MATCHED THEN INSERT (id) VALUES (new.id)"
    )
    rows = [7, 8, 9, 10, 40, 50, 60]
    assert duck.sql("SELECT list(id ORDER BY id) FROM lake.zoo.third").fetchall() == [(rows,)]
    after = dict(trino.rows('SELECT id, "$row_id" FROM lake.zoo.third'))
    kept = {id_: before[id_] for id_ in (7, 8, 9)} | {id_: before[id_ // 10] for id_ in (40, 50, 60)}
    assert after == {**kept, 10: after[10]}
    assert dict(duck.sql("SELECT id, rowid FROM lake.zoo.third").fetchall()) == after


def test_a_query_makes_a_table_and_another_replaces_it(trino: Trino, duck: duckdb.DuckDBPyConnection) -> None:
    trino.rows("CREATE TABLE lake.zoo.made AS SELECT * FROM (VALUES (1, 'a'), (2, 'b')) t (id, name)")
    assert duck.sql("FROM lake.zoo.made ORDER BY id").fetchall() == [(1, "a"), (2, "b")]
    [[first]] = trino.rows('SELECT snapshot_id FROM lake.zoo."made$snapshots"')
    trino.rows("CREATE OR REPLACE TABLE lake.zoo.made AS SELECT 3 AS id")
    assert duck.sql("FROM lake.zoo.made").fetchall() == [(3,)]
    assert trino.rows(f"SELECT id FROM lake.zoo.made FOR VERSION AS OF {first} ORDER BY id") == [[1], [2]]
    trino.rows("ALTER TABLE lake.zoo.made RENAME TO lake.zoo.renamed")
    assert ["renamed"] in trino.rows("SHOW TABLES FROM lake.zoo")
    trino.rows("DROP TABLE lake.zoo.renamed")
    assert ["renamed"] not in trino.rows("SHOW TABLES FROM lake.zoo")


def test_a_namespace_in_a_place_of_its_own(trino: Trino, lake: RunningLake) -> None:
    place = f"{lake.backend.settings['DUCKICELAKE_WAREHOUSE']}/data/elsewhere"
    trino.rows(f"CREATE SCHEMA lake.placed WITH (location = '{place}')")
    trino.rows("CREATE TABLE lake.placed.t AS SELECT 1 AS id")
    [[path]] = trino.rows('SELECT file_path FROM lake.placed."t$files"')
    assert path.startswith(f"{place}/t-")
    trino.rows("DROP TABLE lake.placed.t")
    trino.rows("DROP SCHEMA lake.placed")


def test_a_namespace_in_another(trino: Trino, duck: duckdb.DuckDBPyConnection) -> None:
    trino.rows('CREATE SCHEMA lake."zoo.pond"')
    trino.rows('CREATE TABLE lake."zoo.pond".t AS SELECT 1 AS id')
    assert duck.sql('FROM lake."zoo.pond".t').fetchall() == [(1,)]
    assert ["zoo.pond"] in trino.rows("SHOW SCHEMAS FROM lake")
    trino.rows('DROP TABLE lake."zoo.pond".t')
    trino.rows('DROP SCHEMA lake."zoo.pond"')


def test_a_view_is_made_replaced_and_dropped(trino: Trino) -> None:
    trino.rows("CREATE VIEW lake.zoo.v AS SELECT 1 AS id")
    trino.rows("CREATE OR REPLACE VIEW lake.zoo.v AS SELECT 2 AS id")
    assert trino.rows("SELECT id FROM lake.zoo.v") == [[2]]
    trino.rows("DROP VIEW lake.zoo.v")
    assert trino.rows("SHOW TABLES FROM lake.zoo LIKE 'v'") == []
    with pytest.raises(EngineError, match="not supported for Iceberg REST catalog"):
        trino.rows("CREATE MATERIALIZED VIEW lake.zoo.v AS SELECT 1 AS id")


def test_older_rows_have_the_default_of_a_new_column(trino: Trino, duck: duckdb.DuckDBPyConnection) -> None:
    duck.execute("CREATE TABLE lake.ns.aged AS SELECT 1 AS id")
    duck.execute("ALTER TABLE lake.ns.aged ADD COLUMN legs INTEGER DEFAULT 2")
    assert trino.rows("SELECT legs FROM lake.ns.aged") == [[2]]


def test_other_file_formats_are_refused_where_the_table_is_made(trino: Trino) -> None:
    with pytest.raises(EngineError, match="file-formats"):
        trino.rows("CREATE TABLE lake.zoo.orc (id bigint) WITH (format = 'ORC')")
    assert trino.rows("SHOW TABLES FROM lake.zoo LIKE 'orc'") == []
