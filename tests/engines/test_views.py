"""Views in stock engines: what one creates, replaces or drops, the others list and read."""

import re
from collections.abc import Callable

import duckdb
import pytest
from pyiceberg.exceptions import NoSuchViewError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion
from pyspark.errors import AnalysisException

from tests.engines.engines import Engines, Row, duck, spark
from tests.engines.sequences import CREATE, MORE, SMALL

pytestmark = [pytest.mark.engine, pytest.mark.spark]

NAMED = Schema(NestedField(1, "number", LongType(), required=False), NestedField(2, "name", StringType()))


@pytest.fixture
def table(engines: Engines, namespace: str) -> str:
    """The full name of a table with a few rows: id, name, amount."""
    name = f"{namespace}.t"
    for step in (spark(CREATE), spark(SMALL), duck(MORE)):
        engines.do(step, name)
    return name


def spark_rows(engines: Engines, query: str) -> list[Row]:
    return sorted((tuple(row) for row in engines.spark.sql(query).collect()), key=repr)


def duck_rows(engines: Engines, query: str) -> list[Row]:
    return sorted(engines.duck.sql(query).fetchall(), key=repr)


def create_for_both(engines: Engines, name: str, sql: str, schema: Schema = NAMED) -> None:
    """A view with the same SQL for Spark and for DuckDB, as a client that knows both would make it."""
    representations = [SQLViewRepresentation(type="sql", sql=sql, dialect=each) for each in ("spark", "duckdb")]
    version = ViewVersion.model_validate(
        {
            "version-id": 1,
            "schema-id": 0,
            "timestamp-ms": 0,
            "summary": {},
            "representations": representations,
            "default-namespace": [name.split(".", maxsplit=1)[0]],
        }
    )
    engines.catalog.create_view(name, schema, version)


def test_view_lives_in_spark_from_create_to_drop(engines: Engines, table: str, namespace: str) -> None:
    name = f"{namespace}.v"
    engines.spark.sql(
        f"CREATE VIEW lake.{name} (number COMMENT 'the id', name) COMMENT 'small ones' TBLPROPERTIES ('a' = '1') "
        f"AS SELECT id, upper(name) FROM lake.{table} WHERE id < 3"
    )
    expected = spark_rows(engines, f"SELECT id, upper(name) FROM lake.{table} WHERE id < 3")
    assert expected
    assert spark_rows(engines, f"SELECT * FROM lake.{name}") == expected
    assert [row.viewName for row in engines.spark.sql(f"SHOW VIEWS IN lake.{namespace}").collect()] == ["v"]
    loaded = engines.catalog.load_view(name)
    assert loaded.properties["comment"] == "small ones"
    assert loaded.properties["a"] == "1"
    assert [(field.name, field.doc) for field in loaded.schema().fields] == [("number", "the id"), ("name", None)]

    engines.spark.sql(f"CREATE OR REPLACE VIEW lake.{name} AS SELECT count(*) AS n FROM lake.{table}")
    engines.spark.sql(f"ALTER VIEW lake.{name} SET TBLPROPERTIES ('a' = '2', 'comment' = 'how many')")
    assert spark_rows(engines, f"SELECT n FROM lake.{name}") == spark_rows(
        engines, f"SELECT count(*) FROM lake.{table}"
    )
    replaced = engines.catalog.load_view(name)
    assert replaced.metadata.view_uuid == loaded.metadata.view_uuid
    assert replaced.properties["a"] == "2"
    assert engines.duck.sql(f"SELECT comment FROM duckdb_views() WHERE schema_name = '{namespace}'").fetchall() == [
        ("how many",)
    ]

    engines.spark.sql(f"ALTER VIEW lake.{name} RENAME TO lake.{namespace}.w")
    assert engines.catalog.list_views(namespace) == [(namespace, "w")]
    engines.spark.sql(f"DROP VIEW lake.{namespace}.w")
    assert engines.catalog.list_views(namespace) == []
    assert duck_rows(engines, f"SELECT view_name FROM duckdb_views() WHERE schema_name = '{namespace}'") == []
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        engines.spark.table(f"lake.{namespace}.w").collect()


def test_duckdb_lists_spark_views_and_says_why_it_cant_read_them(engines: Engines, table: str, namespace: str) -> None:
    engines.spark.sql(
        f"CREATE VIEW lake.{namespace}.v AS SELECT id, name FROM lake.{table} LATERAL VIEW explode(array(1)) AS one"
    )
    described = engines.duck.execute(f"DESCRIBE lake.{namespace}.v").fetchall()
    assert [row[:2] for row in described] == [("id", "BIGINT"), ("name", "VARCHAR")]
    with pytest.raises(duckdb.InvalidInputException, match=r"no SQL for DuckDB, only for spark.*: LATERALS of SELECT"):
        engines.duck.sql(f"SELECT count(*) FROM lake.{namespace}.v").fetchall()
    assert duck_rows(engines, f"FROM lake.{table}")


def test_view_for_both_reads_the_same_rows_in_both_and_follows_its_table(
    engines: Engines, table: str, namespace: str
) -> None:
    name = f"{namespace}.v"
    create_for_both(engines, name, f"SELECT id, upper(name) FROM {table} WHERE id > 1")
    for step in (duck("DELETE FROM {t} WHERE id = 3"), spark("INSERT INTO {t} VALUES (77, 'seventy', 7)")):
        engines.do(step, table)
        expected = duck_rows(engines, f"SELECT id, upper(name) FROM lake.{table} WHERE id > 1")
        assert duck_rows(engines, f"FROM lake.{name}") == expected
        assert spark_rows(engines, f"SELECT number, name FROM lake.{name}") == expected
    assert engines.duck.sql(f"FROM lake.{name}").columns == engines.spark.table(f"lake.{name}").columns


def test_replacing_in_spark_takes_duckdbs_sql_away_only_if_that_is_allowed(
    engines: Engines, table: str, namespace: str
) -> None:
    name = f"{namespace}.v"
    create_for_both(engines, name, f"SELECT id, name FROM {table}")
    replacement = f"CREATE OR REPLACE VIEW lake.{name} %s AS SELECT -id AS number, name FROM lake.{table}"
    with pytest.raises(Exception, match="loss of view dialects"):
        engines.spark.sql(replacement % "")
    assert duck_rows(engines, f"FROM lake.{name}") == duck_rows(engines, f"SELECT id, name FROM lake.{table}")
    engines.spark.sql(replacement % "TBLPROPERTIES ('replace.drop-dialect.allowed' = 'true')")
    assert min(spark_rows(engines, f"SELECT number FROM lake.{name}"), key=lambda row: row[0])[0] < 0
    assert duck_rows(engines, f"FROM lake.{name}") == duck_rows(engines, f"SELECT -id, name FROM lake.{table}")
    engines.spark.sql(replacement.replace("-id", "id DIV 2") % "")
    with pytest.raises(duckdb.InvalidInputException, match=r"only for spark.*: INTDIV"):
        engines.duck.sql(f"FROM lake.{name}").fetchall()


NATIVE = """SELECT id, upper("name") AS "name", {'a b': amount, 'l': [id]} AS s, MAP {'k': 1.50} AS m FROM lake."""


def test_spark_lists_views_of_duckdbs_and_says_why_it_cant_read_them(
    engines: Engines, table: str, namespace: str
) -> None:
    name = f"{namespace}.v"
    engines.duck.execute(f"CREATE VIEW lake.{name} AS {NATIVE}{table}")
    assert [row.viewName for row in engines.spark.sql(f"SHOW VIEWS IN lake.{namespace}").collect()] == ["v"]
    assert engines.spark.table(f"lake.{name}").dtypes == [
        ("id", "bigint"),
        ("name", "string"),
        ("s", "struct<a b:int,l:array<bigint>>"),
        ("m", "map<string,decimal(3,2)>"),
    ]
    for query in ("*", "count(*)", "count(1)", "max(id)", "s.l"):
        with pytest.raises(Exception, match="no SQL for Spark, only for duckdb"):
            engines.spark.sql(f"SELECT {query} FROM lake.{name}").collect()
    with pytest.raises(Exception, match="no SQL for Spark, only for duckdb"):
        engines.spark.sql(f"SELECT name FROM lake.{name} WHERE id = 1").collect()


def test_views_of_both_sides_read_a_view_that_has_sql_for_both(engines: Engines, table: str, namespace: str) -> None:
    name = f"{namespace}.v"
    create_for_both(engines, name, f"SELECT id, name FROM {table}")
    engines.duck.execute(f"CREATE VIEW lake.{namespace}.in_duckdb AS SELECT count(*) AS n FROM lake.{name}")
    engines.spark.sql(f"CREATE VIEW lake.{namespace}.in_spark AS SELECT count(*) AS n FROM lake.{name}")
    expected = duck_rows(engines, f"SELECT count(*) FROM lake.{table}")
    assert duck_rows(engines, f"FROM lake.{namespace}.in_duckdb") == expected
    assert spark_rows(engines, f"SELECT n FROM lake.{namespace}.in_spark") == expected


TAKEN: dict[str, Callable[[Engines, str], object]] = {
    "Spark table": lambda engines, name: engines.spark.sql(f"CREATE TABLE lake.{name} (id bigint)"),
    "Spark view": lambda engines, name: engines.spark.sql(f"CREATE VIEW lake.{name} AS SELECT 1 AS one"),
    "DuckDB table": lambda engines, name: engines.duck.execute(f"CREATE TABLE lake.{name} (id bigint)"),
    "DuckDB view": lambda engines, name: engines.duck.execute(f"CREATE VIEW lake.{name} AS SELECT 1 AS one"),
    "PyIceberg table": lambda engines, name: engines.catalog.create_table(name, NAMED),
    "PyIceberg view": lambda engines, name: create_for_both(engines, name, "SELECT 1, 'one'"),
}


@pytest.mark.parametrize("act", TAKEN.values(), ids=TAKEN.keys())
@pytest.mark.parametrize("first", ["Spark view", "DuckDB view"])
def test_name_of_a_view_is_taken_everywhere(
    engines: Engines, namespace: str, first: str, act: Callable[[Engines, str], object]
) -> None:
    TAKEN[first](engines, f"{namespace}.v")
    with pytest.raises(Exception, match=re.compile("already.exists", re.IGNORECASE)):
        act(engines, f"{namespace}.v")
    assert engines.catalog.list_views(namespace) == [(namespace, "v")]
    assert engines.catalog.list_tables(namespace) == []


DROPS: dict[str, Callable[[Engines, str], object]] = {
    "Spark": lambda engines, name: engines.spark.sql(f"DROP VIEW lake.{name}"),
    "PyIceberg": lambda engines, name: engines.catalog.drop_view(name),
    "DuckDB": lambda engines, name: engines.duck.execute(f"DROP VIEW lake.{name}"),
}


@pytest.mark.parametrize("drop", DROPS.values(), ids=DROPS.keys())
@pytest.mark.parametrize("create", ["Spark view", "DuckDB view", "PyIceberg view"])
def test_view_dropped_by_one_is_gone_for_all(
    engines: Engines, namespace: str, create: str, drop: Callable[[Engines, str], object]
) -> None:
    name = f"{namespace}.v"
    TAKEN[create](engines, name)
    assert engines.catalog.view_exists(name)
    drop(engines, name)
    assert not engines.catalog.view_exists(name)
    with pytest.raises(NoSuchViewError):
        engines.catalog.load_view(name)
    with pytest.raises(duckdb.CatalogException, match="does not exist"):
        engines.duck.sql(f"FROM lake.{name}").fetchall()
    assert engines.spark.sql(f"SHOW VIEWS IN lake.{namespace}").collect() == []
    engines.catalog.drop_namespace(namespace)
