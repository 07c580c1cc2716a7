"""Names that DuckDB gives to other tables, or to none, while a request of ours waits for its snapshot."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import psycopg
import pytest

from duckicelake.catalog import namespaces, tables
from duckicelake.errors import NoSuchTableError
from duckicelake.iceberg.rest import RenameTableRequest
from duckicelake.lake.writer import tables as lake_tables
from duckicelake.storage.policy import LocationPolicy
from tests.support.client import NS, Client

BEGIN = """
    INSERT INTO ducklake_snapshot
    SELECT snapshot_id + 1, now(), schema_version + 1, next_catalog_id + 1, next_file_id
    FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1
"""
DROP = """
    WITH dropped AS (
        UPDATE ducklake_table SET end_snapshot = (SELECT max(snapshot_id) FROM ducklake_snapshot)
        WHERE table_name = 't' AND end_snapshot IS NULL
        RETURNING table_id, end_snapshot
    )
    INSERT INTO ducklake_snapshot_changes SELECT end_snapshot, 'dropped_table:' || table_id FROM dropped
"""

CREATE = """
    WITH made AS (
        INSERT INTO ducklake_schema
        SELECT next_catalog_id - 1, gen_random_uuid(), snapshot_id, NULL, 'a', 'a/', true
        FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1
        RETURNING begin_snapshot
    )
    INSERT INTO ducklake_snapshot_changes SELECT begin_snapshot, 'created_schema:"a"' FROM made
"""


@contextmanager
def while_it_waits(database_url: str, held: str, act: Callable[[], object]) -> Iterator[psycopg.Connection]:
    """What the block does to a session in which this was run, while another thread acts and waits for it."""
    with psycopg.connect(database_url) as session, ThreadPoolExecutor(1) as pool:
        session.execute(held)
        acting = pool.submit(act)
        _await_waiter(database_url)
        try:
            yield session
        finally:
            session.commit()
        acting.result()


def _await_waiter(database_url: str, unless: Callable[[], bool] = lambda: False) -> None:
    waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(database_url, autocommit=True) as looking:
        while not (unless() or looking.execute(waits).fetchall()):
            time.sleep(0.01)


def test_table_that_is_dropped_is_the_one_that_has_the_name(
    client: Client, ducklake: duckdb.DuckDBPyConnection, database_url: str
) -> None:
    for name in ("t", "u"):
        client.create(name)
        client.append((1, name), name=name)
    held = "SELECT FROM duckicelake_table FOR UPDATE"
    with while_it_waits(database_url, held, lambda: tables.drop_table(client.services, NS, "t", purge=True)):
        ducklake.execute("BEGIN; ALTER TABLE lake.ns.t RENAME TO old; ALTER TABLE lake.ns.u RENAME TO t; COMMIT")
    assert ducklake.sql("SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'").fetchall() == [("old",)]
    assert ducklake.sql("SELECT name FROM lake.ns.old").fetchall() == [("t",)]


def test_table_that_was_dropped_meanwhile_is_not_said_to_be_renamed(client: Client, database_url: str) -> None:
    client.create()
    names = {"source": {"namespace": NS, "name": "t"}, "destination": {"namespace": NS, "name": "u"}}
    request = RenameTableRequest.model_validate(names)
    with (
        pytest.raises(NoSuchTableError),
        while_it_waits(database_url, BEGIN, lambda: tables.rename_table(client.services, request)) as session,
    ):
        session.execute(DROP)


def test_namespace_that_duckdb_makes_while_it_gets_properties_is_there_once(client: Client, database_url: str) -> None:
    namespaces.create_namespace(client.services, ("a", "b"), {})
    properties = {"k": "v"}
    with while_it_waits(
        database_url, BEGIN, lambda: namespaces.update_namespace(client.services, ("a",), [], properties)
    ) as session:
        session.execute(CREATE)
    with client.services.database.reading() as cursor:
        found = cursor.execute("SELECT schema_id FROM ducklake_schema WHERE schema_name = 'a'").fetchall()
    assert len(found) == 1
    assert namespaces.load_namespace(client.services, ("a",)) == properties


@dataclass(frozen=True, slots=True)
class Asked:
    """A policy that tells when it is asked where a table goes."""

    policy: LocationPolicy
    act: Callable[[], object]

    def table_location(self, *about: Any) -> str:
        self.act()
        return self.policy.table_location(*about)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)


def test_table_that_is_purged_while_it_is_loaded_for_the_first_time_leaves_nothing(
    client: Client, ducklake: duckdb.DuckDBPyConnection, database_url: str
) -> None:
    ducklake.execute("CREATE TABLE lake.ns.t (i INTEGER)")
    services = client.services
    purging: list[Future[None]] = []

    def purge() -> None:
        with services.database.transaction() as cursor:
            assert lake_tables.drop_table(cursor, NS[0], "t", purge=True)

    with ThreadPoolExecutor(1) as pool:

        def begin_to_purge() -> None:
            purging.append(pool.submit(purge))
            _await_waiter(database_url, unless=purging[0].done)

        policy: Any = Asked(services.policy, begin_to_purge)
        with suppress(NoSuchTableError):
            tables.load_table(replace(services, policy=policy), NS, "t")
        purging[0].result()
    with services.database.reading() as cursor:
        assert cursor.execute("SELECT table_id FROM duckicelake_table").fetchall() == []
        assert cursor.execute("SELECT path FROM duckicelake_artifact").fetchall() == []
