"""Statements in a pipeline wait until someone wants an answer; what they do is what they would do one by one."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from duckicelake.errors import CommitStateUnknownError, UnavailableError
from duckicelake.postgres.database import Database
from duckicelake.postgres.pipeline import DeferredConnection, flush_pipeline
from duckicelake.postgres.queries import Transaction


@pytest.fixture
def numbers(database: Database) -> Database:
    with database.transaction() as cursor:
        cursor.execute("CREATE TABLE numbers (n integer PRIMARY KEY)")
    return database


def stored(database: Database) -> list[int]:
    with database.reading() as cursor:
        return [n for (n,) in cursor.execute("SELECT n FROM numbers ORDER BY n")]


def insert(cursor: Transaction, *values: int) -> None:
    for value in values:
        cursor.execute("INSERT INTO numbers VALUES (%s)", [value])


def test_statements_and_begin_are_sent_once_an_answer_is_wanted(numbers: Database) -> None:
    with numbers.transaction(pipelined=True) as cursor:
        insert(cursor, 1, 2)
        with numbers.reading() as other:
            found = other.execute(
                "SELECT state FROM pg_stat_activity WHERE pid = %s", [cursor.connection.info.backend_pid]
            )
            assert found.fetchone() == ("idle",)
        asked = cursor.connection.cursor().execute("SELECT count(*) FROM numbers")
        assert asked.fetchone() == (2,)
        insert(cursor, 3)
    assert stored(numbers) == [1, 2, 3]


def test_what_is_sent_off_is_done_while_no_one_waits(numbers: Database) -> None:
    def is_locked() -> bool:
        with numbers.transaction() as other:
            return other.execute("SELECT pg_try_advisory_xact_lock(77)").fetchone() == (False,)

    with numbers.transaction() as cursor, cursor.connection.pipeline():
        cursor.execute("SELECT pg_advisory_xact_lock(77)")
        assert not is_locked()
        flush_pipeline(cursor)
        assert any(is_locked() for _ in range(1000))


def test_error_in_a_pipeline_takes_the_whole_transaction_back(numbers: Database) -> None:
    def fail() -> None:
        with numbers.transaction() as cursor, cursor.connection.pipeline():
            insert(cursor, 1, 2, 1, 3)

    with pytest.raises(psycopg.errors.UniqueViolation):
        fail()
    assert stored(numbers) == []
    with numbers.transaction() as cursor, cursor.connection.pipeline():
        insert(cursor, 4)
    assert stored(numbers) == [4]


def test_pipeline_after_other_statements_goes_on_in_their_transaction(numbers: Database) -> None:
    def write_and_fail() -> None:
        with numbers.transaction() as cursor:
            insert(cursor, 1)
            with cursor.connection.pipeline():
                insert(cursor, 2)
            insert(cursor, 3)
            raise LookupError

    with pytest.raises(LookupError):
        write_and_fail()
    assert stored(numbers) == []


def test_many_large_statements_in_a_pipeline_reach_postgres(numbers: Database) -> None:
    """More than the buffers of either side hold, in both directions."""
    text = "x" * 1_000_000
    with numbers.transaction() as cursor, cursor.connection.pipeline():
        asked = [cursor.connection.cursor().execute("SELECT %s", [text]) for _ in range(20)]
        assert [each.fetchone() for each in asked] == [(text,)] * 20


def test_last_statements_go_with_commit_and_can_be_fetched_after_it(numbers: Database) -> None:
    with numbers.transaction(pipelined=True) as cursor:
        insert(cursor, 1, 2)
        asked = cursor.connection.cursor().execute("SELECT count(*), txid_current_if_assigned() FROM numbers")
        with numbers.reading() as other:
            activity = "SELECT state FROM pg_stat_activity WHERE pid = %s"
            assert other.execute(activity, [cursor.connection.info.backend_pid]).fetchone() == ("idle",)

    count, transaction = asked.fetchone() or (0, 0)
    with numbers.reading() as other:
        assert other.execute("SELECT txid_status(%s)", [transaction]).fetchone() == ("committed",)
    assert (count, stored(numbers)) == (2, [1, 2])


def test_block_that_raises_commits_nothing(numbers: Database) -> None:
    def fail() -> None:
        with numbers.transaction(pipelined=True) as cursor:
            insert(cursor, 1)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert stored(numbers) == []


def commit_with(database: Database, statement: str) -> None:
    with database.transaction(pipelined=True) as cursor:
        insert(cursor, 1)
        cursor.execute(statement)
        insert(cursor, 2)


def test_statement_refused_before_its_commit_leaves_nothing_and_the_connection_of_use(numbers: Database) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation):
        commit_with(numbers, "INSERT INTO numbers VALUES (1)")
    assert stored(numbers) == []
    commit_with(numbers, "SELECT 1")
    assert stored(numbers) == [1, 2]


def test_session_that_ends_at_a_statement_before_commit_has_written_nothing(numbers: Database) -> None:
    with pytest.raises(UnavailableError, match="nothing was written"):
        commit_with(numbers, "SELECT pg_terminate_backend(pg_backend_pid())")
    assert stored(numbers) == []


@pytest.fixture
def checks(numbers: Database) -> Database:
    """Numbers of which COMMIT refuses 9, and at 8 the session ends in it."""
    with numbers.transaction() as cursor:
        cursor.execute(
            """CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   IF NEW.n = 9 THEN RAISE unique_violation; END IF;
                   IF NEW.n = 8 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
                   RETURN NULL;
               END $$;
               CREATE CONSTRAINT TRIGGER late AFTER INSERT ON numbers DEFERRABLE INITIALLY DEFERRED
                   FOR EACH ROW EXECUTE FUNCTION look()"""
        )
    return numbers


def test_commit_that_is_refused_may_be_tried_again(checks: Database) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation):
        commit_with(checks, "INSERT INTO numbers VALUES (9)")
    assert stored(checks) == []


def test_session_that_ends_in_commit_leaves_the_outcome_unknown(checks: Database) -> None:
    with pytest.raises(CommitStateUnknownError):
        commit_with(checks, "INSERT INTO numbers VALUES (8)")


def test_connection_that_is_cut_once_commit_was_sent_leaves_the_outcome_unknown(numbers: Database) -> None:
    ours, theirs = socket.socketpair()

    def end() -> None:
        """Take all up to COMMIT, and answer nothing."""
        taken = b""
        while b"COMMIT" not in taken:
            taken += theirs.recv(2**16)
        theirs.close()

    def cut() -> None:
        with numbers.transaction(pipelined=True) as cursor:
            insert(cursor, 1)
            os.dup2(ours.fileno(), cursor.connection.fileno())
            ours.close()

    with ThreadPoolExecutor() as pool:
        ended = pool.submit(end)
        with pytest.raises(CommitStateUnknownError):
            cut()
        ended.result()


def test_connection_that_is_lost_at_any_byte_before_commit_says_so(
    numbers: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libpq notices it while it sends a statement, COMMIT or the sync, by how much was written before."""
    monkeypatch.setattr(DeferredConnection, "is_ended", False)

    def lose(size: int, count: int) -> None:
        with numbers.transaction(pipelined=True) as cursor:
            cursor.connection.cursor().execute("SELECT 1").fetchone()
            assert isinstance(cursor.connection, DeferredConnection)
            cursor.connection.cut_off()
            for _ in range(count):
                cursor.execute("SELECT %s::text", ["x" * size])

    for size in (10, 4000, 8100, 8190, 16000, 65500, 65520):
        for count in (1, 2, 3, 8):
            with pytest.raises((CommitStateUnknownError, UnavailableError), match="connection") as caught:
                lose(size, count)
            assert "pipeline" not in str(caught.value)
