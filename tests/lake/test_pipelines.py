"""Statements in a pipeline wait until somebody wants an answer; what they do is what they would do one by one."""

import psycopg
import pytest

from duckicelake.lake.database import Database, Transaction
from duckicelake.lake.pipelines import send_off


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
    with numbers.transaction() as cursor, cursor.connection.pipeline():
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


def test_what_is_sent_off_is_done_while_nobody_waits(numbers: Database) -> None:
    def is_locked() -> bool:
        with numbers.transaction() as other:
            return other.execute("SELECT pg_try_advisory_xact_lock(77)").fetchone() == (False,)

    with numbers.transaction() as cursor, cursor.connection.pipeline():
        cursor.execute("SELECT pg_advisory_xact_lock(77)")
        assert not is_locked()
        send_off(cursor)
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
