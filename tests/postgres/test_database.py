"""The seam to Postgres: what is committed, what is rolled back, and which error tells which."""

import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import psycopg
import pytest

from duckicelake.errors import CommitStateUnknownError, InvalidRequestError, UnavailableError
from duckicelake.lake.conflicts import StaleBaseError, StaleSnapshotError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.failures import is_retryable
from duckicelake.postgres.pipeline import DeferredConnection, flush_pipeline
from duckicelake.postgres.session import InterruptibleConnection, disable_timeout
from tests.support.replicas import following, running_cluster, url_of
from tests.support.waits import wait_until

KILL_OTHERS = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid()"
)

LOCK = "SELECT pg_advisory_xact_lock(1)"
WAITING_READS = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessShareLock'"


@pytest.fixture
def numbers(database):
    with database.transaction() as cursor:
        cursor.execute("CREATE TABLE numbers (n integer PRIMARY KEY DEFERRABLE)")
    return database


def stored(database):
    with database.reading() as cursor:
        return [n for (n,) in cursor.execute("SELECT n FROM numbers ORDER BY n")]


def kill_connections(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(KILL_OTHERS)


def test_a_transaction_that_ends_well_is_committed(numbers):
    with numbers.transaction() as cursor:
        cursor.execute("INSERT INTO numbers VALUES (1)")

    assert stored(numbers) == [1]


def test_a_transaction_that_raises_is_rolled_back(numbers):
    def insert_and_fail():
        with numbers.transaction() as cursor:
            cursor.execute("INSERT INTO numbers VALUES (1)")
            raise LookupError

    with pytest.raises(LookupError):
        insert_and_fail()

    assert stored(numbers) == []


def test_reading_sees_one_state_whatever_others_commit_meanwhile(numbers):
    with numbers.reading() as cursor:
        before = cursor.execute("SELECT count(*) FROM numbers").fetchall()
        with numbers.transaction() as other:
            other.execute("INSERT INTO numbers VALUES (1)")
        assert cursor.execute("SELECT count(*) FROM numbers").fetchall() == before


def test_reading_refuses_to_write(numbers):
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), numbers.reading() as cursor:
        cursor.execute("INSERT INTO numbers VALUES (1)")


def test_a_transaction_sees_what_others_committed_after_it_began(numbers):
    with numbers.transaction() as cursor:
        cursor.execute("SELECT count(*) FROM numbers")
        with numbers.transaction() as other:
            other.execute("INSERT INTO numbers VALUES (1)")
        assert cursor.execute("SELECT count(*) FROM numbers").fetchall() == [(1,)]


def test_json_goes_in_as_a_dict_and_comes_out_as_one(database):
    value = {"é": [1, None, "x"], "n": 2**53 + 1}
    with database.reading() as cursor:
        assert cursor.execute("SELECT %s::json", [value]).fetchall() == [(value,)]


def test_a_taken_key_reaches_the_caller_as_retryable(numbers):
    with pytest.raises(psycopg.errors.UniqueViolation) as caught, numbers.transaction() as cursor:
        cursor.execute("INSERT INTO numbers VALUES (1), (1)")

    assert is_retryable(caught.value)


def test_a_deadlock_reaches_the_caller_as_retryable(numbers):
    with numbers.transaction() as cursor:
        cursor.execute("INSERT INTO numbers VALUES (1), (2)")
    both_hold_one = threading.Barrier(2)

    def lock_both(first, second):
        with numbers.transaction() as cursor:
            cursor.execute("SET LOCAL deadlock_timeout = '50ms'")
            cursor.execute("SELECT FROM numbers WHERE n = %s FOR UPDATE", [first])
            both_hold_one.wait(10)
            cursor.execute("SELECT FROM numbers WHERE n = %s FOR UPDATE", [second])

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(lock_both, 1, 2), pool.submit(lock_both, 2, 1)]
        errors = [future.exception() for future in futures]

    assert sorted(is_retryable(error) for error in errors if error) == [True]


@pytest.mark.parametrize("read", [lambda db: db.reading(), lambda db: db.statement(only_reads=True)])
def test_deadlock_of_a_read_which_its_caller_runs_once_is_unavailable(numbers, database_url, read):
    with psycopg.connect(database_url) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SET deadlock_timeout = '60s'; CREATE TABLE others ()")
        other.commit()
        other.execute("LOCK numbers IN ACCESS EXCLUSIVE MODE")
        waiting = pool.submit(read_both, numbers, read)
        while other.execute(WAITING_READS).fetchall() != [(1,)]:
            time.sleep(0.01)
        other.execute("LOCK others IN ACCESS EXCLUSIVE MODE")  # one second after the read began to wait, it ends

        error = waiting.exception()

    assert isinstance(error, UnavailableError)
    assert "for the sake of another transaction" in str(error)


def read_both(database, read):
    with read(database) as cursor:
        cursor.execute("SELECT (SELECT count(*) FROM others), (SELECT count(*) FROM numbers)")


def test_connections_lost_while_idle_are_replaced_without_a_pause(database_url):
    def wait_after_loss(database):
        with ExitStack() as held:
            for _ in range(5):
                held.enter_context(database.statement())
        kill_connections(database_url)
        began = time.monotonic()
        with database.statement() as cursor:
            assert cursor.execute("SELECT 1").fetchall() == [(1,)]
        return time.monotonic() - began

    with closing(open_lake_database(database_url, pool_size=5, pool_seconds=30)) as database:
        assert min(wait_after_loss(database) for _ in range(4)) < 0.5  # psycopg's pause takes 0.9 s or more


def test_a_connection_lost_before_commit_is_unavailable_and_nothing_is_written(numbers, database_url):
    def insert():
        with numbers.transaction() as cursor:
            cursor.execute("INSERT INTO numbers VALUES (1)")
            kill_connections(database_url)
            cursor.execute("INSERT INTO numbers VALUES (2)")

    with pytest.raises(UnavailableError, match="nothing was written"):
        insert()

    assert stored(numbers) == []


def test_a_connection_lost_during_commit_leaves_the_outcome_unknown(numbers):
    with numbers.transaction() as cursor:
        cursor.execute(
            """CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   PERFORM pg_terminate_backend(pg_backend_pid());
                   RETURN NULL;
               END $$;
               CREATE CONSTRAINT TRIGGER late AFTER INSERT ON numbers DEFERRABLE INITIALLY DEFERRED
                   FOR EACH ROW EXECUTE FUNCTION die()"""
        )

    with pytest.raises(CommitStateUnknownError), numbers.transaction() as cursor:
        cursor.execute("INSERT INTO numbers VALUES (1)")


def test_a_failed_transaction_that_is_committed_all_the_same_is_reported(numbers):
    def insert_and_go_on():
        with numbers.transaction() as cursor:
            cursor.execute("INSERT INTO numbers VALUES (1)")
            with pytest.raises(psycopg.errors.UndefinedTable):
                cursor.execute("SELECT FROM nothing")

    with pytest.raises(UnavailableError, match="had failed"):
        insert_and_go_on()
    assert stored(numbers) == []


def test_connections_that_postgres_closed_while_idle_are_replaced_unnoticed(numbers, database_url):
    kill_connections(database_url)

    assert stored(numbers) == []


def test_connections_to_a_machine_that_vanishes_are_given_up():
    """Also where something was sent in vain, for which TCP itself tries for a quarter of an hour."""
    with running_cluster() as cluster:
        for url, expected in ((cluster.url, 30_000), (f"{cluster.url}?tcp_user_timeout=5000", 5000)):
            with closing(open_lake_database(url)) as database, database.reading() as cursor:
                assert timeout_of(cursor.connection) == expected


def timeout_of(connection):
    with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as copy:
        return copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)


def test_statements_are_not_compiled_which_would_take_longer_than_they_do(database):
    with database.reading() as cursor:
        assert cursor.execute("SHOW jit").fetchone() == ("off",)


def test_session_that_was_used_last_is_used_next(database):
    def session(cursor):
        return cursor.execute("SELECT pg_backend_pid()").fetchall()

    with database.reading() as cursor:
        first = session(cursor)
        with database.reading() as other:
            assert session(other) != first
    for _ in range(3):
        with database.reading() as cursor:
            assert session(cursor) == first


def test_check_shows_why_postgres_refuses():
    database = open_lake_database("postgresql://nobody@127.0.0.1:1/nothing", pool_size=1)
    try:
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1"):
            database.check()
    finally:
        database.close()


@pytest.fixture
def hasty(database_url):
    with closing(open_lake_database(database_url, 1, statement_seconds=1)) as opened:
        yield opened


def test_statement_that_takes_too_long_is_unavailable_and_the_connection_goes_on(hasty):
    def create_and_sleep():
        with hasty.transaction() as cursor:
            cursor.execute("CREATE TABLE made (n integer)")
            cursor.execute("SELECT pg_sleep(10)")

    with pytest.raises(UnavailableError, match="took too long; nothing was written"):
        create_and_sleep()
    with hasty.reading() as cursor:
        assert cursor.execute("SELECT to_regclass('made')").fetchone() == (None,)


def test_transaction_without_timeout_takes_its_time_and_the_next_one_does_not(hasty):
    with hasty.transaction() as cursor:
        disable_timeout(cursor)
        cursor.execute("SELECT pg_sleep(1.5)")
    with pytest.raises(UnavailableError, match="took too long"), hasty.transaction() as cursor:
        cursor.execute("SELECT pg_sleep(10)")


def test_transaction_that_is_left_idle_gives_its_locks_back(hasty, database):
    def lock_and_idle():
        with hasty.transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(1)")
            with database.transaction() as other:
                other.execute("SELECT pg_advisory_xact_lock(1)")  # waits until Postgres has ended the idle one
            cursor.execute("SELECT 1")

    with pytest.raises(UnavailableError, match="took too long"):
        lock_and_idle()
    with hasty.reading() as cursor:
        assert cursor.execute("SELECT 1").fetchone() == (1,)


def idle(_):
    time.sleep(1.5)


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("end", [idle, kill_connections])
def test_transaction_that_postgres_ends_before_its_commit_wrote_nothing(hasty, numbers, database_url, end, pipelined):
    def write_and_end():
        with hasty.transaction(pipelined=pipelined) as cursor:
            assert cursor.execute("INSERT INTO numbers VALUES (1) RETURNING n").fetchone() == (1,)
            end(database_url)

    with pytest.raises(UnavailableError, match="nothing was written"):
        write_and_end()
    assert stored(numbers) == []


def test_transaction_that_postgres_ends_while_its_commit_is_under_way_wrote_nothing(hasty, numbers, monkeypatch):
    """Postgres says itself that it ended the session for idling, so it hasn't run COMMIT."""

    def write_and_idle():
        with hasty.transaction() as cursor:
            cursor.execute("INSERT INTO numbers VALUES (1)")
            time.sleep(1.5)

    monkeypatch.setattr(DeferredConnection, "is_ended", False)
    with pytest.raises(UnavailableError, match="This took too long"):
        write_and_idle()
    assert stored(numbers) == []


def is_locked(database):
    with database.reading() as cursor:
        held = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = 1)"
        return cursor.execute(held).fetchone() == (True,)


def flush(connection):
    with connection.pipeline():
        cursor = connection.execute(LOCK)
        flush_pipeline(cursor)
        yield


def fetch(connection):
    with connection.pipeline():
        assert connection.execute(LOCK).fetchone()
        yield


def end_pipeline(connection):
    with connection.pipeline():
        connection.execute(LOCK)
    yield


def execute_many(connection):
    connection.cursor().executemany("SELECT pg_advisory_xact_lock(%s)", [[1], [1]])
    yield


@pytest.mark.parametrize("lock", [flush, fetch, end_pipeline, execute_many])
def test_pipeline_that_is_left_idle_gives_its_locks_back(hasty, database, lock):
    def lock_and_idle():
        with hasty.transaction() as cursor:
            for _ in lock(cursor.connection):
                wait_until(lambda: is_locked(database))
                with database.transaction() as other:
                    other.execute("SET LOCAL statement_timeout TO '10s'")
                    other.execute(LOCK)  # waits until Postgres has ended the idle one

    with pytest.raises(UnavailableError, match="nothing was written"):
        lock_and_idle()


def test_what_is_to_follow_a_commit_follows_a_commit_alone(numbers):
    done = []

    def roll_back():
        with numbers.transaction() as cursor:
            numbers.after_commit(cursor, lambda: done.append("rolled back"))
            raise LookupError

    with numbers.transaction() as cursor:
        numbers.after_commit(cursor, lambda: done.append(stored(numbers)))
        cursor.execute("INSERT INTO numbers VALUES (1)")
        assert done == []
    with pytest.raises(LookupError):
        roll_back()
    assert done == [[1]]


def test_what_follows_a_commit_and_fails_does_not_undo_it(numbers):
    with numbers.transaction() as cursor:
        numbers.after_commit(cursor, lambda: 1 / 0)
        cursor.execute("INSERT INTO numbers VALUES (2)")
    assert stored(numbers) == [2]


def test_what_a_session_has_prepared_outlives_a_rollback(database_url):
    def ask(small):
        with small.reading() as cursor:
            cursor.execute("SELECT %s::bigint", [1])
            raise LookupError

    with closing(open_lake_database(database_url, 1)) as small:
        for _ in range(10):
            with pytest.raises(LookupError):
                ask(small)
        with small.reading() as cursor:
            prepared = cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%bigint'")
            assert prepared.fetchone() == (1,)


def test_what_a_session_has_prepared_outlives_being_superseded(database_url):
    def ask(small, value):
        with small.transaction(pipelined=True) as cursor:
            cursor.execute("SELECT %s::bigint", [1])
            cursor.execute("INSERT INTO ducklake_snapshot (snapshot_id) VALUES (%s)", [value])
            cursor.execute("SELECT %s::bigint + 1", [1])

    with closing(open_lake_database(database_url, 1)) as small:
        for value in range(1000, 1010):
            ask(small, value)
        for value in (1010, 1011):
            with pytest.raises(StaleSnapshotError):
                ask(small, None)
            ask(small, value)
        with small.reading() as cursor:
            found = cursor.execute("SELECT statement, generic_plans + custom_plans FROM pg_prepared_statements")
            runs = {text: count for text, count in found.fetchall() if "bigint" in text or "INSERT" in text}
            stored = cursor.execute("SELECT count(*) FROM ducklake_snapshot WHERE snapshot_id >= 1000").fetchone()
    assert sorted(runs.values()) == [7, 7, 9]  # all but the first five; only what came before a refusal ran with it
    assert stored == (12,)


@pytest.mark.parametrize("error", [StaleSnapshotError, StaleBaseError])
@pytest.mark.parametrize("before", range(8))
def test_statement_that_a_failure_kept_from_being_prepared_is_prepared_the_next_time(database_url, before, error):
    """psycopg takes for prepared what it has sent: here the sixth time."""

    def ask(small, value):
        with small.transaction(pipelined=True) as cursor:
            cursor.execute("INSERT INTO ducklake_snapshot (snapshot_id) VALUES (%s)", [value])
            asked = cursor.connection.cursor().execute("SELECT %s::bigint + 1", [1])
            if error is StaleBaseError:
                try:
                    asked.fetchone()
                except psycopg.Error as refused:
                    raise StaleBaseError from refused

    with closing(open_lake_database(database_url, 1)) as small:
        for value in range(before):
            ask(small, 1000 + value)
        with pytest.raises(error):
            ask(small, None)
        for value in range(8):
            ask(small, 2000 + value)
        with small.reading() as cursor:
            stored = cursor.execute("SELECT count(*) FROM ducklake_snapshot WHERE snapshot_id >= 1000").fetchone()
    assert stored == (before + 8,)


def test_what_postgres_can_not_hold_is_the_requests_fault(database):
    def insert():
        with database.transaction() as cursor:
            cursor.execute("CREATE TABLE names (name text PRIMARY KEY)")
            cursor.execute(
                "INSERT INTO names SELECT string_agg(sha256(n::text::bytea)::text, '') FROM generate_series(1, 200) n"
            )

    with pytest.raises(InvalidRequestError, match="Postgres can't hold so much in one piece"):
        insert()


def test_request_that_finds_all_connections_busy_is_asked_to_try_again(database_url):
    with closing(open_lake_database(database_url, 2, pool_seconds=0.2)) as small:
        with (
            small.reading(),
            small.transaction(),
            pytest.raises(UnavailableError, match="busy; nothing was written"),
            small.transaction(),
        ):
            pass
        with small.reading() as cursor:
            assert cursor.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.crash
def test_database_that_turns_out_to_be_a_standby_is_left_for_the_primary():
    with running_cluster() as primary, following(primary) as standby:
        url = url_of([standby, primary])
        with (
            closing(open_lake_database(f"{url}?target_session_attrs=any", 2)) as careless,
            closing(open_lake_database(url, 2)) as careful,
        ):
            for begin in (careless.transaction, careless.statement):
                with pytest.raises(UnavailableError, match="standby; nothing was written"), begin() as cursor:
                    cursor.execute("CREATE TABLE t (n integer)")
            with careful.transaction() as cursor:
                cursor.execute("CREATE TABLE t (n integer)")
            primary.stop()
            with pytest.raises(UnavailableError), careful.transaction() as cursor:
                cursor.execute("INSERT INTO t VALUES (1)")
            standby.promote()
            for database in (careless, careful):
                with database.transaction() as cursor:
                    cursor.execute("INSERT INTO t VALUES (2)")


def test_side_connection_is_closed_with_the_database(database_url):
    closed = []

    class SideConnection:
        def __init__(self, url, defaults, session, timeline):
            self.url = url
            assert session is not None
            assert (defaults["target_session_attrs"], timeline) == ("primary", None)

        def close(self):
            closed.append(self.url)

    with closing(open_lake_database(database_url, 1)) as database:
        database.open_side_connection(SideConnection)
        assert closed == []
    assert closed == [database_url]


def run_until_interrupted(connection, seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)
    while True:
        connection.execute("SELECT 1")


def test_a_connection_runs_statements_after_ctrl_c_at_any_moment_of_one(empty_database_url):
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with InterruptibleConnection.connect(empty_database_url, autocommit=True) as connection:
            for delay in range(1, 200):
                with pytest.raises(KeyboardInterrupt):
                    run_until_interrupted(connection, delay * 1e-5)
                assert connection.execute("SELECT 2").fetchall() == [(2,)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
