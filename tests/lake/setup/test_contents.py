"""A lake is made, adopted or refused by what the database holds; a refusal says what that is, and what to do."""

import re
from collections.abc import Callable
from urllib.parse import unquote

import duckdb
import psycopg
import pytest

from duckicelake.changelog.doctor import diagnose
from duckicelake.errors import StartupError
from duckicelake.lake.ducklake.database import build_duckdb_attach, open_lake_database
from duckicelake.lake.setup.format import DUCKLAKE_TABLES, prepare_catalog, read_contents
from tests.conftest import new_duckdb

TABLES_OF_OTHERS = "CREATE TABLE orders (i integer); CREATE VIEW customers AS SELECT 1 AS i"
BROKEN = {
    "a snapshot table": ("CREATE TABLE ducklake_snapshot (x integer)", "1 object (ducklake_snapshot) of a DuckLake"),
    "a metadata table": ("CREATE TABLE ducklake_metadata (x integer)", "1 object (ducklake_metadata) of a DuckLake"),
    "a view": ("CREATE VIEW ducklake_data_file AS SELECT 1", "1 object (ducklake_data_file) of a DuckLake"),
    "inlined rows": ("CREATE TABLE ducklake_inlined_data_1_1 (i integer)", "(ducklake_inlined_data_1_1)"),
    "a function": ("CREATE FUNCTION duckicelake_never() RETURNS integer RETURN 1", "(duckicelake_never)"),
    "unlike tables": (
        "CREATE TABLE ducklake_metadata (x integer); CREATE TABLE ducklake_snapshot (x integer)",
        "has no row for its version",
    ),
}
Attach = Callable[..., duckdb.DuckDBPyConnection]


def execute(url: str, statements: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(statements)


def our_tables(url: str) -> int:
    with psycopg.connect(url) as connection:
        query = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename ~ '^(ducklake|duckicelake)_'"
        ((count,),) = connection.execute(query).fetchall()
    return int(count)


def refused(url: str, said: str, *, creates: bool) -> str:
    """The refusal, which the doctor repeats; nothing was made."""
    before = our_tables(url)
    database = open_lake_database(url, pool_size=1)
    try:
        with pytest.raises(StartupError, match=re.escape(said)) as error:
            prepare_catalog(database, "/lake/", creates=creates)
        if not creates:
            (finding,) = (each for each in diagnose(database) if each.name == "DuckLake catalog")
            assert (finding.ok, finding.advice) == (False, str(error.value))
    finally:
        database.close()
    assert our_tables(url) == before
    return str(error.value)


@pytest.mark.parametrize(
    ("statements", "said"),
    [("SELECT 1", "it is empty"), (TABLES_OF_OTHERS, "it holds 2 other tables (customers, orders)")],
)
def test_lake_is_made_in_a_database_without_one_only_if_asked_to(
    empty_database_url: str, statements: str, said: str
) -> None:
    execute(empty_database_url, statements)
    refused(empty_database_url, said, creates=False)
    database = open_lake_database(empty_database_url, pool_size=1)
    assert prepare_catalog(database, "/lake/", creates=True) == "/lake/"
    assert prepare_catalog(database, "/other/", creates=False) == "/lake/"
    database.close()


@pytest.mark.parametrize("creates", [False, True])
@pytest.mark.parametrize(("statements", "said"), BROKEN.values(), ids=BROKEN)
def test_remains_of_a_lake_are_refused(empty_database_url: str, statements: str, said: str, creates: bool) -> None:
    execute(empty_database_url, statements)
    refused(empty_database_url, said, creates=creates)


def test_lake_that_lacks_a_table_is_refused(empty_database_url: str, attach: Attach) -> None:
    attach(url=empty_database_url, data_path="/lake/").close()
    execute(empty_database_url, "DROP TABLE ducklake_delete_file, ducklake_tag")
    refused(empty_database_url, "lacks 2 tables (ducklake_delete_file, ducklake_tag)", creates=False)


@pytest.mark.parametrize("schema", ["own", "My lake", 'a"b\\c'])
def test_lake_in_another_schema_is_refused_and_served_as_the_refusal_advises(
    empty_database_url: str, extensions: None, schema: str
) -> None:
    duck = new_duckdb()
    options = "(DATA_PATH '/lake/', METADATA_SCHEMA '" + schema + "')"
    duck.execute(build_duckdb_attach(empty_database_url) + options)
    duck.execute("CREATE TABLE lake.t AS SELECT 1 AS i")
    refused(empty_database_url, f"but one in schema {schema}", creates=True)
    said = refused(empty_database_url, f"but one in schema {schema}", creates=False)

    (option,) = re.findall(r"options=\S+", said)
    url = psycopg.conninfo.make_conninfo(empty_database_url, options=unquote(option.removeprefix("options=")))
    database = open_lake_database(url, pool_size=1)
    assert prepare_catalog(database, "/ignored/", creates=False) == "/lake/"
    with database.reading() as cursor:
        assert read_contents(cursor).lake == schema
    duck.execute("INSERT INTO lake.t VALUES (2)")
    duck.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    database.close()
    duck.close()


def test_second_lake_in_a_schema_that_the_url_names_is_made(database_url: str) -> None:
    execute(database_url, "CREATE SCHEMA second")
    database = open_lake_database(
        psycopg.conninfo.make_conninfo(database_url, options="-csearch_path=second"), pool_size=1
    )
    assert prepare_catalog(database, "/second/", creates=True) == "/second/"
    database.close()


def test_search_path_without_a_schema_is_refused(empty_database_url: str) -> None:
    url = psycopg.conninfo.make_conninfo(empty_database_url, options="-csearch_path=nothing")
    database = open_lake_database(url, pool_size=1)
    with pytest.raises(StartupError, match="names no schema that is there"):
        prepare_catalog(database, "/lake/", creates=True)
    database.close()


def test_side_tables_lie_beside_the_catalog_whichever_schema_comes_first(
    empty_database_url: str, attach: Attach
) -> None:
    """A schema named after the login comes first in Postgres' own search_path."""
    duck = attach(url=empty_database_url, data_path="/lake/")
    execute(empty_database_url, "CREATE SCHEMA postgres")
    database = open_lake_database(empty_database_url, pool_size=1)
    prepare_catalog(database, "/ignored/", creates=False)
    database.close()
    with psycopg.connect(empty_database_url) as connection:
        found = connection.execute("SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'duckicelake%'")
        assert found.fetchall() == [("public",)]
    duck.execute("CREATE TABLE t AS SELECT 1 AS i")
    duck.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")


def test_tables_are_those_of_a_ducklake_catalog() -> None:
    assert len(DUCKLAKE_TABLES) == 28
