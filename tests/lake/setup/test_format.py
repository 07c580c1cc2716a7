"""A catalog that we make equals the one that DuckDB's extension makes; others are adopted or refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from duckicelake.errors import UnavailableError, UnsupportedCatalogError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup import format as lake_format
from duckicelake.lake.setup.format import prepare_catalog, read_stored_lake
from duckicelake.lake.setup.migrations import is_up_to_date, load_migrations
from duckicelake.postgres.queries import load_queries
from tests.conftest import Attach
from tests.support.ducklake_11 import format_change
from tests.support.waits import wait_until

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


READ_LAKE = "SELECT lake_id FROM duckicelake_lake"
WAITING = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def older_lake(empty_database, empty_database_url):
    """A lake from before a column of `duckicelake_lake` that one session reads in an open transaction."""
    with empty_database.transaction() as cursor:
        cursor.execute(lake_format.build_tables_sql())
        cursor.execute(load_queries("lake", "format").insert_initial_rows, {"data_path": "/nowhere/"})
        cursor.execute(load_queries("lake", "migrate").create_table)
        for migration in load_migrations():
            if not migration.name.endswith("_dropped.sql"):
                cursor.execute(migration.sql)
                row = {"number": migration.number, "name": migration.name}
                cursor.execute(load_queries("lake", "migrate").record, row)
            else:
                break
    with psycopg.connect(empty_database_url) as reader:
        reader.execute(READ_LAKE)
        yield reader


def test_migration_that_waits_for_a_table_in_use_keeps_no_reader_waiting(
    empty_database, empty_database_url, older_lake, monkeypatch
):
    monkeypatch.setattr(lake_format, "_MIGRATION_PAUSE_SECONDS", 0.2)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(empty_database_url, autocommit=True) as another:
        another.execute("SET lock_timeout = '60s'")
        migration = pool.submit(prepare_catalog, empty_database, "/nowhere/", creates=False)
        wait_until(lambda: another.execute(WAITING).rowcount > 0)
        another.execute(READ_LAKE)
        assert not migration.done()
        older_lake.rollback()
        assert migration.result(60) == "/nowhere/"
    with empty_database.reading() as cursor:
        assert is_up_to_date(cursor)


def test_migration_that_waits_in_vain_changes_nothing_and_names_the_session(empty_database, older_lake, monkeypatch):
    monkeypatch.setattr(lake_format, "_MIGRATION_WAIT_SECONDS", 0)
    pid = older_lake.info.backend_pid
    with pytest.raises(UnavailableError, match=rf"nothing was changed: end 1 other session \(session {pid} of "):
        prepare_catalog(empty_database, "/nowhere/", creates=False)
    with empty_database.reading() as cursor:
        assert not is_up_to_date(cursor)
