"""Beginning snapshots: ids stay contiguous whoever else writes, and losing to others is retried."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from duckicelake.errors import UnavailableError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.ducklake.snapshots import (
    begin_snapshot,
    hold_queue,
    hold_table_lock,
    lock_in_queue,
    quote_name,
    record_changes,
    retry_transaction,
)


def rows(database, query):
    with database.reading() as cursor:
        return cursor.execute(query).fetchall()


def test_a_snapshot_raises_the_counters_and_hands_out_their_old_values(database):
    with database.transaction() as cursor:
        first = begin_snapshot(cursor, schema_change=True, catalog_ids=2, file_ids=3)
        record_changes(cursor, first.id, ["altered_table:1"], author="me", message="why", extra_info="{}")
        second = begin_snapshot(cursor, schema_change=False)
        record_changes(cursor, second.id, [])

    assert (first.id, first.schema_version, first.first_catalog_id, first.first_file_id) == (1, 1, 1, 0)
    assert (second.id, second.schema_version, second.first_catalog_id, second.first_file_id) == (2, 1, 3, 3)
    assert rows(database, "SELECT * FROM ducklake_snapshot_changes WHERE snapshot_id > 0 ORDER BY 1") == [
        (1, "altered_table:1", "me", "why", "{}"),
        (2, None, None, None, None),
    ]


def test_time_never_goes_back_even_if_the_clock_of_another_writer_was_ahead(database):
    with database.transaction() as cursor:
        cursor.execute("UPDATE ducklake_snapshot SET snapshot_time = now() + interval '1 hour'")

    with database.transaction() as cursor:
        begin_snapshot(cursor, schema_change=False)

    assert rows(database, "SELECT count(*), count(DISTINCT snapshot_time) FROM ducklake_snapshot") == [(2, 1)]


def test_a_snapshot_id_lost_to_a_duckdb_client_gives_the_next_one(database, database_url):
    began = threading.Event()

    def begin():
        began.set()
        with database.transaction() as cursor:
            return begin_snapshot(cursor, schema_change=False)

    with ThreadPoolExecutor(1) as pool, psycopg.connect(database_url) as duckdb_like:
        duckdb_like.execute("INSERT INTO ducklake_snapshot VALUES (1, now(), 5, 6, 7)")
        waiting = pool.submit(begin)
        began.wait(5)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        duckdb_like.commit()
        begun = waiting.result(10)

    assert (begun.id, begun.schema_version, begun.first_catalog_id, begun.first_file_id) == (2, 5, 6, 7)


def test_snapshots_of_many_writers_and_duckdb_clients_are_contiguous(database, attach):
    def ours():
        with database.transaction() as cursor:
            for _ in range(2):
                begun = begin_snapshot(cursor, schema_change=False, file_ids=1)
                record_changes(cursor, begun.id, [])

    lake = attach()
    lake.execute("CREATE TABLE t (i BIGINT)")
    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(retry_transaction, ours) for _ in range(20)]
        for _ in range(5):
            lake.execute("INSERT INTO t VALUES (1)")
        for future in futures:
            future.result()

    assert rows(database, "SELECT count(*), max(snapshot_id) FROM ducklake_snapshot") == [(47, 46)]
    assert rows(database, "SELECT count(*) FROM ducklake_snapshot_changes") == [(47,)]
    assert lake.execute("SELECT count(*) FROM t").fetchall() == [(5,)]
    assert lake.execute("SELECT count(*) FROM lake.snapshots() WHERE cardinality(changes) > 0").fetchall() == [(7,)]


@pytest.mark.parametrize("state", ["40001", "40P01", "23505"])
def test_losing_to_another_writer_is_tried_again(database, state):
    attempts = []

    def lose_twice():
        attempts.append(1)
        with database.transaction() as cursor:
            if len(attempts) < 3:
                cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '{state}'; END $$")
        return "won"

    assert retry_transaction(lose_twice) == "won"
    assert len(attempts) == 3


@pytest.mark.parametrize(
    ("limit", "value", "says"), [("MAX_ATTEMPTS", 3, "won 3 times"), ("RETRY_SECONDS", 0, "won 1 time")]
)
def test_losing_every_time_or_for_too_long_is_unavailable(database, monkeypatch, limit, value, says):
    monkeypatch.setattr(f"duckicelake.lake.ducklake.snapshots.{limit}", value)

    def lose():
        with database.transaction() as cursor:
            cursor.execute("INSERT INTO ducklake_snapshot (snapshot_id) VALUES (0)")

    with pytest.raises(UnavailableError, match=says):
        retry_transaction(lose)


def test_other_errors_are_not_tried_again(database):
    attempts = []

    def fail():
        attempts.append(1)
        with database.transaction() as cursor:
            cursor.execute("SELECT 1/0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        retry_transaction(fail)
    assert len(attempts) == 1


def test_names_are_quoted_as_duckdb_quotes_them(database, ducklake):
    ducklake.execute('CREATE SCHEMA "a ""b"""')
    ducklake.execute('CREATE TABLE "a ""b"""."t,1" (i INTEGER)')

    assert rows(database, "SELECT changes_made FROM ducklake_snapshot_changes WHERE snapshot_id > 0 ORDER BY 1") == [
        ("created_schema:" + quote_name('a "b"'),),
        ("created_table:" + quote_name('a "b"', "t,1"),),
    ]


@pytest.fixture
def hasty(database_url):
    with closing(open_lake_database(database_url, 1, statement_seconds=1)) as opened:
        yield opened


def test_a_lane_whose_keeper_hangs_is_another_ones_in_the_end(hasty, database):
    with (
        hasty.statement() as hanging,
        hold_table_lock(hanging, 5),
        database.statement() as other,
        hold_table_lock(other, 5),
    ):
        # The other has waited until Postgres had ended the idle session, which doesn't know it yet.
        assert not hanging.connection.closed
    with hasty.statement() as cursor:
        assert cursor.execute("SELECT 1").fetchone() == (1,)


def test_a_queue_that_someone_who_hangs_has_alone_goes_on_in_the_end(hasty, database):
    with hasty.statement() as hanging, hold_queue(hanging), database.transaction() as other:
        lock_in_queue(other)
    with hasty.statement() as cursor:
        assert cursor.execute("SELECT 1").fetchone() == (1,)


def test_a_connection_that_kept_a_lane_may_be_idle_for_any_time_afterwards(hasty):
    with hasty.statement() as cursor, hold_table_lock(cursor, 5):
        pid = cursor.connection.info.backend_pid
    time.sleep(1.5)
    with hasty.statement() as cursor:
        assert cursor.connection.info.backend_pid == pid
