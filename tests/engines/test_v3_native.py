"""What DuckDB does to a table of format version 3, in Spark: the same rows, row ids and numbers of the last change."""

import pytest

from tests.engines.engines import Engines, Model, append, assert_same, duck, sorted_rows, spark
from tests.engines.sequences import BIG, FLUSH, MERGE_FILES, MERGE_ON_READ, MORE, SMALL

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

CREATE = spark(
    f"CREATE TABLE {{t}} (id bigint, name string, amount int) TBLPROPERTIES ('format-version'='3', {MERGE_ON_READ})",
    "CREATE TABLE {t} (id bigint, name string, amount int)",
)
REWRITE = duck(
    "CALL ducklake_rewrite_data_files('lake', '{table}', schema => '{namespace}', delete_threshold => 0.1)", ""
)
STEPS = (
    CREATE,
    duck(SMALL),
    duck(BIG),
    duck("DELETE FROM {t} WHERE id IN (2, 105)"),
    duck("UPDATE {t} SET name = 'few' WHERE id IN (1, 110)"),
    spark(MORE),
    duck("UPDATE {t} SET amount = 8 WHERE id BETWEEN 112 AND 129"),
    spark("DELETE FROM {t} WHERE id IN (4, 111, 130)"),
    duck("DELETE FROM {t} WHERE id IN (5, 112, 131)"),
    FLUSH,
    duck("DELETE FROM {t} WHERE id BETWEEN 125 AND 138"),
    REWRITE,
    duck("INSERT INTO {t} VALUES (300, 'last', 1)"),
    MERGE_FILES,
)


def assert_same_lineage(engines: Engines, name: str) -> None:
    by_spark = engines.spark.sql(f"SELECT id, _row_id, _last_updated_sequence_number FROM lake.{name}").toArrow()
    by_duckdb = engines.duck.sql(f"SELECT id, rowid, snapshot_id FROM lake.{name}").to_arrow_table()
    assert sorted_rows(by_spark) == sorted_rows(by_duckdb)


def test_rows_have_the_same_lineage_in_spark_and_in_duckdb(engines: Engines, namespace: str) -> None:
    name, model = f"{namespace}.t", Model()
    for step in STEPS:
        engines.do(step, name)
        model.do(step)
        assert_same(engines, name, model)
        assert_same_lineage(engines, name)


def test_table_that_was_version_2_has_the_same_row_ids_in_both(engines: Engines, namespace: str) -> None:
    name, model = f"{namespace}.t", Model()
    upgrade = spark(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version'='3', {MERGE_ON_READ})", "")
    create = duck(CREATE.meaning)
    steps = (create, duck(SMALL), duck(BIG), duck("DELETE FROM {t} WHERE id IN (2, 105)"), append((4, "four", 4)))
    for step in (*steps, upgrade, duck("UPDATE {t} SET amount = 9 WHERE id IN (1, 106)"), spark(MORE)):
        engines.do(step, name)
        model.do(step)
        assert_same(engines, name, model)
    by_spark = engines.spark.sql(f"SELECT id, _row_id FROM lake.{name}").toArrow()
    by_duckdb = engines.duck.sql(f"SELECT id, rowid FROM lake.{name}").to_arrow_table()
    assert sorted_rows(by_spark) == sorted_rows(by_duckdb)


def test_rows_that_one_transaction_wrote_twice_have_row_ids_of_their_own(engines: Engines, namespace: str) -> None:
    """DuckDB 1.5.5 keeps its ids of them, from 10^18 on, in each such transaction the same."""
    name, model = f"{namespace}.t", Model()
    twice = [
        duck(
            f"BEGIN; INSERT INTO {{t}} SELECT i, 'a', 1 FROM range({first}, {first + 20}) r(i); "
            f"UPDATE {{t}} SET name = 'b' WHERE id >= {first}; COMMIT"
        )
        for first in (1000, 2000, 3000)
    ]
    change = spark("UPDATE {t} SET amount = 2 WHERE id IN (1003, 2003)")
    steps = (CREATE, *twice[:2], change, duck("DELETE FROM {t} WHERE id = 1004"), REWRITE, twice[2], spark(MORE))
    for step in steps:
        engines.do(step, name)
        model.do(step)
        assert_same(engines, name, model)
        by_spark = engines.spark.sql(f"SELECT count(*), count(DISTINCT _row_id) FROM lake.{name}").toArrow()
        rows, row_ids = by_spark.to_pylist()[0].values()
        assert row_ids == rows
