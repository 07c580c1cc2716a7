"""Several lakes in one database, over one pool of connections."""

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from duckicelake.changelog.source import is_follower_free, take_lead
from duckicelake.errors import UnavailableError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.ducklake.snapshots import lock_writers
from duckicelake.lake.setup.format import build_session_settings, prepare_catalog
from duckicelake.postgres.database import Database
from duckicelake.postgres.session import MAX_ENTERED_PATHS
from duckicelake.postgres.shared_pools import SchemaDatabase

SCHEMAS = ("first", 'Second "lake"', "a b\\c")


@pytest.fixture
def pool(empty_database_url: str) -> Iterator[Database]:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        for schema in SCHEMAS:
            connection.execute(psycopg.sql.SQL("CREATE SCHEMA {}").format(psycopg.sql.Identifier(schema)))
    settings = build_session_settings()
    with closing(open_lake_database(empty_database_url, pool_size=2, session_settings=settings)) as database:
        prepare_catalog(database, "/files/")
        yield database


def current_schema(database: Database) -> str:
    with database.transaction() as cursor:
        return str(cursor.execute("SELECT current_schema()").fetchall()[0][0])


def test_each_transaction_has_the_schema_of_its_lake(pool: Database) -> None:
    lakes = [SchemaDatabase(pool, schema) for schema in SCHEMAS]
    for _ in range(2):
        assert [current_schema(lake) for lake in (pool, *lakes, pool)] == ["public", *SCHEMAS, "public"]
    for database, schema in zip((pool, *lakes), ("public", *SCHEMAS), strict=True):
        with database.reading() as reading:
            assert reading.execute("SELECT current_schema()").fetchone() == (schema,)
        with database.statement() as statement:
            assert statement.execute("SELECT current_schema()").fetchone() == (schema,)
        with database.transaction(pipelined=True) as pipelined:
            assert pipelined.execute("SELECT current_schema()").fetchone() == (schema,)


def test_schema_outlives_a_transaction_that_failed(pool: Database) -> None:
    lake = SchemaDatabase(pool, "first")
    for _ in range(3):
        with pytest.raises(psycopg.errors.DivisionByZero), lake.transaction() as cursor:
            cursor.execute("SELECT 1 / 0")
        assert [current_schema(lake), current_schema(pool)] == ["first", "public"]


def test_threads_share_two_connections_among_four_lakes(pool: Database) -> None:
    databases = [pool, *(SchemaDatabase(pool, schema) for schema in SCHEMAS)] * 25
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(current_schema, databases))
    assert found == ["public", *SCHEMAS] * 25
    assert pool.statistics()["pool_size"] <= 2


def test_connections_that_were_in_many_schemas_are_replaced(pool: Database) -> None:
    """So that no session keeps what Postgres caches of a thousand lakes."""
    schemas_of = defaultdict(set)
    for number in range(4 * MAX_ENTERED_PATHS):
        with SchemaDatabase(pool, f"lake{number}").statement() as cursor:
            schemas_of[cursor.execute("SELECT pg_backend_pid()").fetchall()[0][0]].add(number)
    assert len(schemas_of) >= 4
    assert max(map(len, schemas_of.values())) <= MAX_ENTERED_PATHS + 1
    assert pool.statistics()["pool_size"] <= 2


def test_side_connections_and_urls_lead_to_the_schema(pool: Database) -> None:
    for schema in SCHEMAS:
        lake = SchemaDatabase(pool, schema)
        with lake.open_listener(None).connect() as cursor:
            assert cursor.execute("SELECT current_schema()").fetchone() == (schema,)
        with psycopg.connect(lake.url) as connection:
            assert connection.execute("SELECT current_schema()").fetchone() == (schema,)


def test_lakes_are_made_beside_one_another(pool: Database, tmp_path: Path) -> None:
    for schema in SCHEMAS:
        lake = SchemaDatabase(pool, schema)
        assert prepare_catalog(lake, str(tmp_path / "files")) == f"{tmp_path}/files/"
        assert prepare_catalog(lake, "/elsewhere") == f"{tmp_path}/files/"
    with pool.reading() as cursor:
        assert cursor.execute("SELECT value FROM ducklake_metadata WHERE key = 'data_path'").fetchone() == ("/files/",)


def test_closed_gate_and_precondition_are_one_lakes(pool: Database) -> None:
    prepare_catalog(lake := SchemaDatabase(pool, "first"), "/first/")
    lake.gate.reason = "its files are another's"
    with pytest.raises(UnavailableError, match="its files are another's"), lake.transaction() as cursor:
        lock_writers(cursor)
    with pool.transaction() as cursor:
        lock_writers(cursor)


def test_locks_of_one_lake_keep_no_other_waiting(pool: Database) -> None:
    """A worker that follows one lake's changes is no reason for another lake to have none that does."""
    prepare_catalog(lake := SchemaDatabase(pool, "first"), "/first/")
    with pool.open_listener(None).connect() as leader:
        assert take_lead(leader)
        for database, is_free in ((pool, False), (lake, True)):
            with database.transaction() as cursor:
                assert is_follower_free(cursor) == is_free
    with pool.transaction() as cursor, lake.transaction() as other:
        lock_writers(cursor)
        other.execute("SET LOCAL lock_timeout = '100ms'")
        lock_writers(other)
