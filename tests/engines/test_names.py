"""Names: what one side creates, renames or drops, the other side sees."""

from collections.abc import Callable

import duckdb
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyspark.errors import AnalysisException

from duckicelake.client.lake import connect
from tests.engines.engines import Engines, Model, Step, append, assert_same, duck, spark
from tests.engines.sequences import COLUMNS, CREATE, MORE, SMALL

pytestmark = [pytest.mark.engine, pytest.mark.spark]

Drop = Callable[[Engines, str], object]
DROPS: dict[str, Drop] = {
    "Spark": lambda engines, name: engines.spark.sql(f"DROP TABLE lake.{name}"),
    "Spark, purging": lambda engines, name: engines.spark.sql(f"DROP TABLE lake.{name} PURGE"),
    "PyIceberg": lambda engines, name: engines.catalog.drop_table(name),
    "DuckDB": lambda engines, name: engines.duck.execute(f"DROP TABLE lake.{name}"),
}
RENAMES: dict[str, Drop] = {
    "Spark": lambda engines, name: engines.spark.sql(f"ALTER TABLE lake.{name} RENAME TO {name}2"),
    "PyIceberg": lambda engines, name: engines.catalog.rename_table(name, f"{name}2"),
    "DuckDB": lambda engines, name: engines.duck.execute(f"ALTER TABLE lake.{name} RENAME TO t2"),
}


@pytest.mark.parametrize("drop", DROPS.values(), ids=DROPS.keys())
@pytest.mark.parametrize("create", [spark, duck])
def test_dropped_table_is_gone_everywhere_and_its_name_starts_afresh(
    engines: Engines, namespace: str, drop: Drop, create: Callable[[str], Step]
) -> None:
    name, model = f"{namespace}.t", Model()
    for step in (spark(CREATE), spark(SMALL), duck(MORE)):
        engines.do(step, name)
    drop(engines, name)
    assert_missing(engines, name)
    recreated = "CREATE TABLE {t} (id bigint, city string)"
    for step in (create(recreated), duck("INSERT INTO {t} VALUES (1, 'Essen')"), append((2, "Ulm"))):
        engines.do(step, name)
        model.do(step)
        assert_same(engines, name, model)


def test_tables_of_a_renamed_namespace_keep_their_rows_and_history(engines: Engines, namespace: str) -> None:
    name, model = f"{namespace}.t", Model()
    for step in (spark(CREATE), spark(SMALL), duck(MORE)):
        engines.do(step, name)
        model.do(step)
    before = [snapshot.snapshot_id for snapshot in engines.catalog.load_table(name).snapshots()]
    properties = engines.catalog.properties
    lake = connect(str(properties["uri"]), credential=properties.get("credential"))
    assert lake.rename_namespace(namespace, f"{namespace}_moved") == []
    assert_missing(engines, name)
    moved = f"{namespace}_moved.t"
    assert_same(engines, moved, model)
    assert [snapshot.snapshot_id for snapshot in engines.catalog.load_table(moved).snapshots()] == before
    for step in (duck("DELETE FROM {t} WHERE id = 1"), spark("INSERT INTO {t} VALUES (9, 'nine', 9)")):
        engines.do(step, moved)
        model.do(step)
        assert_same(engines, moved, model)
    lake.rename_namespace(f"{namespace}_moved", namespace)


@pytest.mark.parametrize("rename", RENAMES.values(), ids=RENAMES.keys())
def test_renamed_table_keeps_its_rows_and_history(engines: Engines, namespace: str, rename: Drop) -> None:
    name, model = f"{namespace}.t", Model()
    for step in (spark(CREATE), spark(SMALL), duck(MORE)):
        engines.do(step, name)
        model.do(step)
    before = [snapshot.snapshot_id for snapshot in engines.catalog.load_table(name).snapshots()]
    rename(engines, name)
    assert_missing(engines, name)
    assert_same(engines, f"{name}2", model)
    assert [snapshot.snapshot_id for snapshot in engines.catalog.load_table(f"{name}2").snapshots()] == before
    for step in (
        duck("DELETE FROM {t} WHERE id = 1"),
        spark("INSERT INTO {t} VALUES (9, 'nine', 9)"),
        append((8, "x", 1)),
    ):
        engines.do(step, f"{name}2")
        model.do(step)
        assert_same(engines, f"{name}2", model)


def test_table_created_by_pyiceberg_is_written_by_the_others(engines: Engines, namespace: str) -> None:
    name, model = f"{namespace}.t", Model()
    engines.catalog.create_table(name, COLUMNS)
    model.do(spark(CREATE))
    assert_same(engines, name, model)
    for step in (append((1, "one", 1)), duck(MORE), spark(SMALL), duck("UPDATE {t} SET amount = 2 WHERE id = 1")):
        engines.do(step, name)
        model.do(step)
        assert_same(engines, name, model)


def test_table_created_and_filled_by_spark_in_one_statement(engines: Engines, namespace: str) -> None:
    name, model = f"{namespace}.t", Model()
    created = "CREATE TABLE {t} AS SELECT CAST(id AS bigint) AS id, 'x' AS name, 1 AS amount FROM range(5) AS r(id)"
    replaced = "REPLACE TABLE {t} AS SELECT CAST(id AS bigint) AS id, true AS flag FROM range(3) AS r(id)"
    steps = (
        spark(created),
        duck("DELETE FROM {t} WHERE id = 2"),
        spark(replaced, replaced.replace("REPLACE", "CREATE OR REPLACE")),
        duck("INSERT INTO {t} VALUES (7, false)"),
    )
    for step in steps:
        engines.do(step, name)
        model.do(step)
        assert_same(engines, name, model)


def test_schemas_and_namespaces_are_the_same_thing(engines: Engines, namespace: str) -> None:
    engines.duck.execute(f"CREATE SCHEMA lake.{namespace}_native")
    engines.duck.execute(f"CREATE TABLE lake.{namespace}_native.t (i int)")
    assert (f"{namespace}_native",) in engines.catalog.list_namespaces()
    assert engines.catalog.list_tables(f"{namespace}_native") == [(f"{namespace}_native", "t")]
    engines.spark.sql(f"DROP TABLE lake.{namespace}_native.t")
    engines.catalog.drop_namespace(f"{namespace}_native")
    assert schemas(engines, f"{namespace}_native") == []


def test_nested_namespace_is_a_dotted_schema(engines: Engines, namespace: str) -> None:
    engines.catalog.create_namespace((namespace, "inner"))
    engines.spark.sql(f"CREATE TABLE lake.{namespace}.inner.t (id bigint)")
    engines.duck.execute(f'INSERT INTO lake."{namespace}.inner".t VALUES (1), (2)')
    assert engines.catalog.list_namespaces(namespace) == [(namespace, "inner")]
    assert schemas(engines, f"{namespace}.inner") == [(f"{namespace}.inner",)]
    assert engines.spark.table(f"lake.{namespace}.inner.t").count() == 2


def schemas(engines: Engines, name: str) -> list[tuple[str]]:
    query = "SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'lake' AND schema_name = ?"
    return engines.duck.execute(query, [name]).fetchall()


def assert_missing(engines: Engines, name: str) -> None:
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        engines.spark.table(f"lake.{name}").collect()
    with pytest.raises(NoSuchTableError):
        engines.catalog.load_table(name)
    with pytest.raises(duckdb.CatalogException, match="does not exist"):
        engines.duck.sql(f"FROM lake.{name}").fetchall()
