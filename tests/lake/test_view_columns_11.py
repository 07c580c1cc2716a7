"""Comments of the columns of views: DuckDB 2.0's tags in lakes of 1.1 are docs of Iceberg's fields, both ways."""

from collections.abc import Iterator

import psycopg
import pytest

from duckicelake.catalog import views
from duckicelake.catalog.doctor import examine_tables
from duckicelake.catalog.dropped import UndropRequest, undrop
from duckicelake.lake.ducklake.dropped import set_retention
from tests.support.ducklake_11 import comment_view_column, drop_view, migrate, rename_view
from tests.support.lakes import Lake
from tests.support.view_requests import (
    CITY,
    ID,
    SPARK,
    commit,
    create,
    current,
    load,
    queries,
    rename,
    replacement,
    set_properties,
)

TAGS = "SELECT column_name, value, end_snapshot IS NULL FROM ducklake_view_column_tag ORDER BY begin_snapshot, 1, 2"


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def migrated(lake: Lake, database_url: str) -> Lake:
    lake.run("CREATE TABLE t (id BIGINT, s VARCHAR)", "CREATE VIEW v (x, y) AS SELECT id, s FROM t")
    migrate(database_url, is_guarded=False)
    return lake


def view_id(connection: psycopg.Connection, name: str = "v") -> int:
    ((found,),) = connection.execute(
        "SELECT view_id FROM ducklake_view WHERE view_name = %s AND end_snapshot IS NULL", [name]
    ).fetchall()
    return int(found)


def docs(lake: Lake, name: str = "v") -> dict[str, str | None]:
    """The docs of the current version's columns."""
    answer = load(lake.services, name)
    wanted = current(answer)["schema-id"]
    (found,) = (each for each in answer["metadata"]["schemas"] if each["schema-id"] == wanted)
    return {field["name"]: field.get("doc") for field in found["fields"]}


def live_tags(connection: psycopg.Connection) -> list[tuple[str, str]]:
    rows = connection.execute(TAGS).fetchall()
    return [(name, value) for name, value, is_live in rows if is_live]


@pytest.mark.parametrize("is_loaded_before", [False, True])
def test_a_comment_of_duckdbs_is_the_doc_of_the_column_under_its_alias(migrated, connection, is_loaded_before):
    before = load(migrated.services, "v") if is_loaded_before else None
    with connection.transaction():
        comment_view_column(connection, view_id(connection), "id", "the key")
        comment_view_column(connection, view_id(connection), "y", "of an alias, which is no name of the query's")

    assert docs(migrated) == {"x": "the key", "y": None}
    if before is not None:
        assert queries(load(migrated.services, "v")) == queries(before)
    with connection.transaction():
        comment_view_column(connection, view_id(connection), "id", None)
    assert docs(migrated) == {"x": None, "y": None}


def test_docs_of_an_iceberg_client_are_duckdbs_comments_by_the_names_of_the_query(migrated, connection):
    lake, documented = migrated, {**ID, "doc": "the id"}
    create(lake.services, "carried", SPARK, documented, CITY)
    create(lake.services, "own", {"duckdb": "SELECT id AS a, s AS b FROM t"}, documented, {**CITY, "doc": "a city"})
    assert live_tags(connection) == [("id", "the id"), ("a", "the id"), ("b", "a city")]
    assert docs(lake, "own") == {"id": "the id", "city": "a city"}

    commit(lake.services, "carried", *replacement(SPARK, ID, {**CITY, "doc": "where"}))
    assert live_tags(connection) == [("a", "the id"), ("b", "a city"), ("city", "where")]
    newest = lake.newest()
    commit(lake.services, "carried", set_properties(owner="me"))

    assert lake.newest() == newest
    assert docs(lake, "carried") == {"id": None, "city": "where"}
    assert examine_tables(lake.services.database)[0] == []


def test_duckdb_changes_one_comment_and_the_other_docs_stay(migrated, connection):
    lake = migrated
    create(lake.services, "own", {"duckdb": "SELECT id AS a, s AS b FROM t"}, {**ID, "doc": "1"}, {**CITY, "doc": "2"})
    before = load(lake.services, "own")
    with connection.transaction():
        comment_view_column(connection, view_id(connection, "own"), "b", "two")

    assert docs(lake, "own") == {"id": "1", "city": "two"}
    assert queries(load(lake.services, "own")) == queries(before)


def test_tags_of_columns_go_on_with_a_renamed_view_and_end_with_a_dropped_one(migrated, connection):
    lake = migrated
    create(lake.services, "ours", SPARK, {**ID, "doc": "ours"}, CITY)
    with connection.transaction():
        comment_view_column(connection, view_id(connection), "s", "theirs")
    rename(lake.services, "main.ours", "main.renamed")
    with connection.transaction():
        rename_view(connection, view_id(connection), "w")

    assert docs(lake, "renamed") == {"id": "ours", "city": None}
    assert docs(lake, "w") == {"x": None, "y": "theirs"}
    assert live_tags(connection) == [("id", "ours"), ("s", "theirs")]
    assert len(connection.execute(TAGS).fetchall()) == 4
    views.drop_view(lake.services, ("main",), "renamed")
    with connection.transaction():
        drop_view(connection, view_id(connection, "w"))
    assert live_tags(connection) == []
    assert examine_tables(lake.services.database)[0] == []


def test_doctor_names_tags_of_views_that_are_gone(migrated, connection):
    with connection.transaction():
        comment_view_column(connection, view_id(connection), "s", "left behind")
    connection.execute("UPDATE ducklake_view SET end_snapshot = %s", [migrated.newest()])

    (finding,) = examine_tables(migrated.services.database)[0]
    assert finding.detail.startswith("column s of view ")
    connection.execute(finding.advice.split(": ", 1)[1])
    assert examine_tables(migrated.services.database)[0] == []


def test_docs_of_a_lake_of_1_0_outlive_its_migration(lake: Lake, connection, database_url):
    lake.run("CREATE TABLE t (id BIGINT, city VARCHAR)")
    create(lake.services, "v", SPARK, {**ID, "doc": "the id"}, CITY)
    newest = lake.newest()
    commit(lake.services, "v", set_properties(owner="me"))
    assert lake.newest() == newest
    migrate(database_url, is_guarded=False)

    assert docs(lake) == {"id": "the id", "city": None}
    with connection.transaction():
        comment_view_column(connection, view_id(connection), "city", "where")
    assert docs(lake) == {"id": "the id", "city": "where"}


def test_view_that_comes_back_has_the_comments_of_its_columns(migrated: Lake, connection: psycopg.Connection) -> None:
    with migrated.services.database.transaction() as cursor:
        set_retention(cursor, 3600)
    comment_view_column(connection, view_id(connection), "x", "the key")
    before = load(migrated.services, "v")
    views.drop_view(migrated.services, ("main",), "v")
    assert live_tags(connection) == []
    undrop(migrated.services, UndropRequest("view", ("main",), "v"))
    assert live_tags(connection) == [("x", "the key")]
    assert load(migrated.services, "v") == before
