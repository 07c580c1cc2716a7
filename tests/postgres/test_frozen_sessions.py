"""A session whose client is frozen keeps no lock for ever; one whose client works for long keeps its own."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress

import psycopg
import pytest

from duckicelake.errors import UnavailableError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.inlined.flush_writer import hold_flush_lease
from duckicelake.materialized_views.view_rows import hold_lease
from duckicelake.postgres.database import Database
from duckicelake.postgres.frozen_sessions import FrozenSessionWatch, end_frozen_sessions
from duckicelake.postgres.notify import NotificationListener
from duckicelake.postgres.queries import Transaction
from duckicelake.postgres.session import disable_timeout
from tests.support.waits import counted_waits

STATEMENT_SECONDS = 0.6
LONG_SECONDS = 3 * STATEMENT_SECONDS
HOLD_LEASE = """\
import sys, time
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.inlined.flush_writer import hold_flush_lease
with open_lake_database(sys.argv[1], 4, float(sys.argv[2])).statement() as cursor, hold_flush_lease(cursor, 7):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def limited(database_url: str) -> Iterator[Database]:
    """The lake, with a short limit for statements."""
    with closing(open_lake_database(database_url, 4, STATEMENT_SECONDS)) as database:
        yield database


def count_ended(database: Database) -> int:
    with database.statement() as cursor:
        return end_frozen_sessions(cursor)


@contextmanager
def copying(cursor: Transaction) -> Iterator[None]:
    """Have Postgres read a COPY of which nothing comes for a long time."""
    cursor.execute("CREATE TEMP TABLE copied (i INT)")
    with cursor.copy("COPY copied FROM STDIN"):
        time.sleep(LONG_SECONDS)
        yield


@contextmanager
def answering(cursor: Transaction) -> Iterator[None]:
    """Have Postgres write an answer that isn't read for a long time."""
    cursor.connection.pgconn.send_query(b"SELECT repeat('x', 1000) FROM generate_series(1, 100000)")
    time.sleep(LONG_SECONDS)
    yield
    cursor.connection.close()


@pytest.mark.parametrize("busy", [copying, answering])
def test_session_that_waits_for_its_client_is_ended(
    limited: Database, database: Database, busy: Callable[[Transaction], AbstractContextManager[None]]
) -> None:
    with suppress(UnavailableError), limited.transaction() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(1)")
        with busy(cursor):
            assert count_ended(limited) == 1
            with database.transaction() as other:
                other.execute("SELECT pg_advisory_xact_lock(1)")


def test_transaction_without_a_limit_is_left_alone(limited: Database) -> None:
    with limited.transaction() as cursor:
        disable_timeout(cursor)
        with copying(cursor):
            assert count_ended(limited) == 0


def test_session_of_another_program_is_left_alone(limited: Database, database_url: str) -> None:
    with psycopg.connect(database_url, application_name="another") as connection, copying(connection.cursor()):
        assert count_ended(limited) == 0


def test_sessions_are_left_alone_where_statements_may_take_any_time(database: Database) -> None:
    with database.transaction() as cursor, copying(cursor):
        assert count_ended(database) == 0


def work_for_long(notices: NotificationListener) -> None:
    with notices.kept_alive():
        time.sleep(LONG_SECONDS)


@pytest.mark.parametrize(
    "work",
    [
        lambda notices: notices.wait(LONG_SECONDS),
        lambda notices: notices.rest(LONG_SECONDS),
        work_for_long,
    ],
    ids=["wait", "rest", "work"],
)
def test_lease_lasts_while_its_process_runs(limited: Database, work: Callable[[NotificationListener], None]) -> None:
    notices = limited.open_listener(None)
    with notices.connect(is_lease=True) as cursor:
        cursor.execute("SELECT pg_advisory_lock(1)")
        work(notices)
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]
    notices.release()


def test_lease_lasts_while_much_work_is_done_by_one_thread(limited: Database) -> None:
    notices = limited.open_listener(None)
    with notices.connect(is_lease=True) as cursor:
        cursor.execute("SELECT pg_advisory_lock(1)")
        until, threads = time.monotonic() + LONG_SECONDS, set[threading.Thread]()
        while time.monotonic() < until:
            with notices.kept_alive():
                threads |= {thread for thread in threading.enumerate() if thread.name == "lease"}
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]
        assert len(threads) == 1
    assert not any(thread.is_alive() for thread in threads)
    notices.release()


@pytest.mark.parametrize("hold", [hold_flush_lease, hold_lease], ids=["flush", "refresh"])
def test_lease_of_a_table_lasts_while_its_process_works(
    limited: Database, hold: Callable[[Transaction, int], AbstractContextManager[bool]]
) -> None:
    with limited.statement() as cursor, limited.statement() as other:
        with hold(cursor, 7) as is_ours:
            for _ in range(3):
                time.sleep(LONG_SECONDS / 3)
                with hold(other, 7) as is_others:
                    assert (is_ours, is_others) == (True, False)
        assert not cursor.connection.closed
        with hold(other, 7) as is_others:
            assert is_others
    assert not any(thread.name == "lease" for thread in threading.enumerate())


def test_lease_of_a_table_ends_with_a_frozen_process(limited: Database, database_url: str) -> None:
    held = [sys.executable, "-c", HOLD_LEASE, database_url, str(STATEMENT_SECONDS)]
    with subprocess.Popen(held, stdout=subprocess.PIPE, text=True) as process, limited.statement() as other:
        assert process.stdout is not None
        try:
            for seconds, is_free in ((0, False), (LONG_SECONDS, False), (LONG_SECONDS, True)):
                assert seconds or process.stdout.readline() == "held\n"
                time.sleep(seconds)
                with hold_flush_lease(other, 7) as is_ours:
                    assert is_ours == is_free
                if seconds:
                    process.send_signal(signal.SIGSTOP)
        finally:
            process.kill()


def test_lease_that_is_not_used_ends(limited: Database) -> None:
    notices = limited.open_listener(None)
    with notices.connect(is_lease=True) as cursor:
        cursor.execute("SELECT pg_advisory_lock(1)")
        time.sleep(LONG_SECONDS)
        with limited.statement() as other:
            assert other.execute("SELECT pg_try_advisory_lock(1)").fetchall() == [(True,)]
        with pytest.raises(psycopg.OperationalError):
            cursor.execute("SELECT 1")
    notices.release()


def test_process_looks_once_for_all_its_lakes(limited: Database) -> None:
    watch = FrozenSessionWatch()
    with limited.statement() as cursor:
        with counted_waits() as waits:
            watch.look(cursor)
        assert waits
        with counted_waits() as waits:
            watch.look(cursor)
        assert not waits
