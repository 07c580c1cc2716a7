"""The core on a database where each setting that gives text its meaning is turned the wrong way."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import duckdb
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duckicelake.catalog.flush import flush_rows
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.changelog.doctor import diagnose
from duckicelake.errors import UnavailableError, UnsupportedCatalogError
from duckicelake.lake.ducklake.database import build_attach_source, find_duckdb_parameters, open_lake_database
from duckicelake.lake.side_tables.freshness import open_freshness_line
from duckicelake.lake.state import FreshnessQuery
from duckicelake.postgres.database import Database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.postgres.session import PINNED_SETTINGS
from tests.catalog.rows.test_inserts import lake as lake  # noqa: PLC0414 - fixtures and tests of the core, run here
from tests.catalog.rows.test_inserts import test_types_and_names_of_all_kinds_are_read_by_both_sides as test_types  # noqa: F401
from tests.conftest import Attach, new_database, new_duckdb
from tests.support.lakes import Lake, iceberg_rows

WRONG: Final = {
    "client_encoding": "LATIN1",
    "standard_conforming_strings": "off",
    "backslash_quote": "off",
    "extra_float_digits": "0",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "bytea_output": "escape",
    "xmlbinary": "hex",
    "quote_all_identifiers": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "exit_on_error": "on",
    "lock_timeout": "1ms",
    "idle_session_timeout": "1min",
    "search_path": "elsewhere",
}


@pytest.fixture
def database_url(database_url: str) -> str:
    """A prepared database with all settings wrong, and a schema before that of the lake."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA elsewhere")
        name = conninfo_to_dict(database_url)["dbname"]
        for setting, value in WRONG.items():
            connection.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    return database_url


@pytest.fixture
def attach(database_url: str, extensions: None) -> Iterator[Attach]:
    """DuckDB with what `duckicelake info` prints, as it pins nothing by itself."""
    source = build_attach_source(database_url, find_duckdb_parameters(database_url)).replace("'", "''")
    opened: list[duckdb.DuckDBPyConnection] = []

    def attach_another() -> duckdb.DuckDBPyConnection:
        opened.append(new_duckdb())
        return opened[-1].execute(f"ATTACH '{source}' AS lake").execute("USE lake")

    yield attach_another
    for connection in opened:
        connection.close()


def test_every_setting_that_is_pinned_is_turned_wrong_here() -> None:
    assert set(WRONG) == {*PINNED_SETTINGS, "search_path"}


def test_posted_flushed_and_listed_values_are_the_same(lake: Lake) -> None:
    lake.run("CREATE TABLE lake.v (x DOUBLE, f FLOAT, l VARCHAR[], b BLOB, moment TIMESTAMPTZ, d DATE)")
    row: dict[str, Any] = {
        "x": 0.30000000000000004, "f": 0.1, "l": ["NULL", None, "null", "a\\b'ü"], "b": "00FF5C27",
        "moment": "2026-02-03T04:05:06.7+00:00", "d": "2026-03-02",
    }  # fmt: skip
    posted = PostedRows(("main",), "v", json.dumps([row, {"x": None, "l": None}]).encode(), "application/json")
    append_rows(lake.services, posted)
    lake.run(
        r"INSERT INTO lake.v VALUES (0.30000000000000004, 0.1, ['NULL', NULL, 'null', 'a\b''ü'], '\x00\xFF\x5C\x27',"
        " '2026-02-03 04:05:06.7+00', '2026-03-02'), (NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    inlined = lake.duck_rows("v")
    assert inlined[0] == inlined[1]
    assert inlined[0][0] == 0.30000000000000004
    assert iceberg_rows(lake.static("v")) == inlined
    flush_rows(lake.services, ("main",), "v")
    assert lake.duck_rows("v") == inlined
    assert iceberg_rows(lake.static("v")) == inlined


def test_lines_beside_the_pool_have_the_settings_too(database: Database) -> None:
    asked = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)"
    with database.open_listener("n").connect() as cursor:
        held = dict(cursor.execute(asked, [list(PINNED_SETTINGS)]).fetchall())
    assert held == {name: value for name, value in PINNED_SETTINGS.items() if name in held}
    assert asyncio.run(_freshness(database)) == [None]


async def _freshness(database: Database) -> list[Any]:
    line = open_freshness_line(database)
    for _ in range(500):
        try:
            return list(await line.freshness([FreshnessQuery(7, 1, 1)]))
        except UnavailableError:
            await asyncio.sleep(0.01)
    raise AssertionError("the line isn't made")


def test_doctor_names_what_harms_duckdb(database: Database) -> None:
    (found,) = [finding for finding in diagnose(database) if finding.name == "session settings"]
    assert not found.ok
    assert "standard_conforming_strings is off" in found.detail
    assert "client_encoding is LATIN1" in found.detail


def test_lake_is_that_of_the_first_schema_in_the_search_path(database_url: str) -> None:
    """A lake that appears before it later, as of another METADATA_SCHEMA, doesn't divide a server that runs."""
    with closing(open_lake_database(database_url, pool_size=4)) as running:
        schema = "SELECT to_regclass('ducklake_metadata')::oid::regclass::oid = 'public.ducklake_metadata'::regclass"
        with running.reading() as first, psycopg.connect(database_url, autocommit=True) as other:
            assert first.execute(schema).fetchone() == (True,)
            other.execute("CREATE TABLE elsewhere.ducklake_metadata (key text, value text)")
            with running.reading() as second:
                assert second.execute(schema).fetchone() == (True,)
    with closing(open_lake_database(database_url, pool_size=1)) as later, later.reading() as cursor:
        assert cursor.execute(schema).fetchone() == (False,)


def test_path_in_the_url_leads_to_no_other_lake(database_url: str) -> None:
    """A second lake can be made in a schema of its own, beside one in `public`."""
    url = make_conninfo(database_url, options="-c search_path=elsewhere")
    with closing(open_lake_database(url, pool_size=1)) as database, database.reading() as cursor:
        asked = "SELECT current_schema(), to_regclass('ducklake_metadata')"
        assert cursor.execute(asked).fetchone() == ("elsewhere", None)


@pytest.mark.parametrize(
    ("options", "setting", "reason"),
    [
        ("ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'", "", "the encoding LATIN1"),
        ("ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'", "", "the encoding SQL_ASCII"),
        ("", "session_replication_role = replica", "no trigger fires"),
    ],
)
def test_databases_that_can_not_keep_a_lake_are_refused(
    postgres: EmbeddedPostgres, options: str, setting: str, reason: str
) -> None:
    with new_database(postgres, "template0", options) as url:
        if setting:
            with psycopg.connect(postgres.url, autocommit=True) as connection:
                connection.execute(f"ALTER DATABASE {conninfo_to_dict(url)['dbname']} SET {setting}")
        with (
            closing(open_lake_database(make_conninfo(url), pool_size=1)) as database,
            pytest.raises(UnsupportedCatalogError, match=reason),
        ):
            database.check()
