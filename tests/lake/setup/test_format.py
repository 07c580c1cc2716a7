"""A catalog that we make equals the one that DuckDB's extension makes; others are adopted or refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from duckicelake.errors import UnsupportedCatalogError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import prepare_catalog, read_stored_lake
from duckicelake.lake.setup.migrations import load_migrations
from tests.conftest import Attach
from tests.support.ducklake_11 import format_change

COLUMNS = """
    SELECT table_name, ordinal_position, column_name, data_type, is_nullable, column_default
    FROM information_schema.columns WHERE table_schema = 'public' AND table_name LIKE 'ducklake\\_%'
    ORDER BY table_name, ordinal_position
"""
CONSTRAINTS = """
    SELECT conrelid::regclass::text, contype, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text LIKE 'ducklake\\_%'
    AND contype NOT IN ('n', 't') ORDER BY 1, 3
"""
INITIAL_ROWS = (
    "SELECT key, value, scope, scope_id FROM ducklake_metadata WHERE key <> 'created_by' ORDER BY key",
    "SELECT snapshot_id, schema_version, next_catalog_id, next_file_id FROM ducklake_snapshot",
    "SELECT * FROM ducklake_snapshot_changes",
    "SELECT schema_id, begin_snapshot, end_snapshot, schema_name, path, path_is_relative FROM ducklake_schema",
    "SELECT * FROM ducklake_schema_versions",
)


def everything(url):
    with psycopg.connect(url) as connection:
        return {query: connection.execute(query).fetchall() for query in (COLUMNS, CONSTRAINTS, *INITIAL_ROWS)}


@pytest.fixture
def empty_database(empty_database_url):
    database = open_lake_database(empty_database_url, pool_size=4)
    yield database
    database.close()


def test_prepare_on_an_empty_database_makes_what_the_extension_makes(
    empty_database, empty_database_url, postgres, attach, warehouse
):
    data_path = f"{warehouse}/ducklake/"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE by_extension TEMPLATE template1")
    by_extension = psycopg.conninfo.make_conninfo(postgres.url, dbname="by_extension")
    attach(by_extension, data_path).close()

    prepare_catalog(empty_database, data_path)

    ours, theirs = everything(empty_database_url), everything(by_extension)
    assert ours == theirs
    assert len({row[0] for row in theirs[COLUMNS]}) == 28


def test_prepare_returns_the_data_path_with_one_trailing_slash(empty_database):
    assert prepare_catalog(empty_database, "/lake/ducklake") == "/lake/ducklake/"


def test_prepare_of_a_lake_that_duckdb_made_keeps_its_data_path_and_rows(
    empty_database, empty_database_url, attach, tmp_path
):
    lake = attach(empty_database_url, str(tmp_path / "elsewhere") + "/")
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(100)")

    assert prepare_catalog(empty_database, "/ignored/") == str(tmp_path / "elsewhere") + "/"
    lake.execute("INSERT INTO t SELECT range FROM range(50)")
    assert attach(empty_database_url).execute("SELECT count(*) FROM t").fetchall() == [(150,)]


def test_prepare_by_many_workers_at_once_migrates_once(empty_database):
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: prepare_catalog(empty_database, "/lake/"), range(8)))

    assert paths == {"/lake/"}
    with empty_database.reading() as cursor:
        applied = cursor.execute("SELECT number FROM duckicelake_migration ORDER BY 1").fetchall()
        assert applied == [(migration.number,) for migration in load_migrations()]
        assert cursor.execute("SELECT count(*) FROM ducklake_snapshot").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (format_change("1.2"), "DuckLake can't migrate it back"),
        (format_change("1.1"), r"has format 1.1, but lacks ducklake_data_file.row_group_count: a migration was left"),
        (format_change("0.3"), "DuckDB 1.5 with AUTOMATIC_MIGRATION"),
        ("UPDATE ducklake_metadata SET value = 'true' WHERE key = 'encrypted'", "encrypted"),
        ("INSERT INTO duckicelake_migration VALUES (9999, 'from the future')", "newer duckicelake"),
    ],
)
def test_prepare_of_a_catalog_we_do_not_understand_is_refused(database, database_url, change, complaint):
    with database.transaction() as cursor:
        cursor.execute(change)

    another = open_lake_database(database_url, pool_size=1)
    try:
        with pytest.raises(UnsupportedCatalogError, match=complaint):
            prepare_catalog(another, "/lake/")
    finally:
        another.close()


@pytest.mark.parametrize("is_prepared", [False, True])
def test_macros_of_a_lake_are_read(empty_database_url: str, attach: Attach, tmp_path: Path, is_prepared: bool) -> None:
    with attach(url=empty_database_url, data_path=f"{tmp_path}/files/") as duck:
        duck.execute("CREATE SCHEMA s; CREATE MACRO s.more(a) AS a + 1; CREATE MACRO top(n) AS TABLE FROM range(n)")
        duck.execute("CREATE MACRO gone() AS 1; DROP MACRO gone")
    if is_prepared:
        database = open_lake_database(empty_database_url, pool_size=1)
        prepare_catalog(database, f"{tmp_path}/files/")
        database.close()
    stored = read_stored_lake(empty_database_url)
    assert (stored.schema, stored.macros) == ("public", ["main.top", "s.more"])
