"""What is messages to a pipeline does what it would do as any statement, and its errors are found."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from duckicelake.postgres.database import Database
from duckicelake.postgres.pipeline import Write, execute_no_result, execute_writes
from duckicelake.postgres.queries import Transaction

INSERT = "INSERT INTO messages (n, said, many, document) VALUES (%(n)s, %(said)s, %(many)s, %(document)s)"


@pytest.fixture
def filled(database: Database) -> Database:
    with database.transaction() as cursor:
        cursor.execute("CREATE TABLE messages (n bigint PRIMARY KEY, said text, many bigint[], document json)")
    return database


@contextmanager
def pipelined(database: Database) -> Iterator[Transaction]:
    """A transaction that has begun in a pipeline, as each commit's has."""
    with database.transaction(pipelined=True) as cursor:
        cursor.execute("SELECT 1")
        yield cursor


def insert(cursor: Transaction, n: int | None, said: str | None = None) -> None:
    execute_no_result(cursor, INSERT, {"n": n, "said": said, "many": [1, 2**40], "document": {"a": [None, "é"]}})


def insert_all(database: Database, *numbers: int | None, then: str | None = None) -> None:
    """In one transaction, which ends with an update by a statement, if one is given."""
    with pipelined(database) as cursor:
        for n in numbers:
            insert(cursor, n)
        if then is not None:
            execute_no_result(cursor, then, {"n": 1, "said": "updated"})


def numbers(database: Database) -> list[int]:
    with database.reading() as cursor:
        return [n for (n,) in cursor.execute("SELECT n FROM messages ORDER BY n")]


@pytest.mark.parametrize("in_pipeline", [True, False])
def test_values_of_all_kinds_arrive_as_they_are(filled: Database, in_pipeline: bool) -> None:
    parameters = {"n": -5, "said": "it's \\N, {1} and 100 %\n\U0001f986", "many": [1, -(2**40)]}
    with pipelined(filled) if in_pipeline else filled.transaction() as cursor:
        execute_no_result(cursor, INSERT, {**parameters, "document": json.dumps([1, "\0"])})
        execute_no_result(cursor, INSERT, {"n": 6, "said": None, "many": [], "document": None})
    with filled.reading() as cursor:
        found = cursor.execute("SELECT n, said, many, document FROM messages ORDER BY n").fetchall()
    assert found == [(*parameters.values(), [1, "\0"]), (6, None, [], None)]


@pytest.mark.parametrize("in_pipeline", [True, False])
def test_many_large_writes_and_bytes_arrive_in_order(filled: Database, in_pipeline: bool) -> None:
    said, document = "x" * 150_000, b"\0\xff'\\"
    with filled.transaction() as cursor:
        cursor.execute("ALTER TABLE messages ADD COLUMN packed bytea")
    insert = "INSERT INTO messages (n, said, packed) VALUES (%(n)s, %(said)s, %(packed)s)"
    writes = [Write(insert, {"n": n, "said": said, "packed": document}) for n in range(5)]
    writes.append(Write("UPDATE messages SET said = 'last' WHERE n = %(n)s", {"n": 4}))
    with pipelined(filled) if in_pipeline else filled.transaction() as cursor:
        execute_writes(cursor, iter(writes))
    with filled.reading() as cursor:
        found = cursor.execute("SELECT n, said, packed FROM messages ORDER BY n").fetchall()
    assert found == [*((n, said, document) for n in range(4)), (4, "last", document)]


def test_numbers_of_all_sizes_are_one_statement_to_postgres(filled: Database) -> None:
    with pipelined(filled) as cursor:
        for n in (1, 2**15, 2**31, -(2**62)):
            insert(cursor, n)
        found = cursor.connection.cursor().execute("SELECT name FROM pg_prepared_statements WHERE name ~ '^unread'")
        assert len(found.fetchall()) == 1
    assert len(numbers(filled)) == 4


def test_error_of_what_was_reported_is_postgres_own_and_takes_the_transaction_back(filled: Database) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation) as raised:
        insert_all(filled, 1, 2, 1, 3)
    assert raised.value.diag.table_name == "messages"
    assert numbers(filled) == []
    insert_all(filled, 4)
    assert numbers(filled) == [4]


def test_statement_that_was_never_prepared_as_one_before_it_failed_is_prepared_the_next_time(filled: Database) -> None:
    other = "UPDATE messages SET said = %(said)s WHERE n = %(n)s"
    for _ in range(2):
        with pytest.raises(psycopg.errors.NotNullViolation):
            insert_all(filled, None, then=other)
    insert_all(filled, 1, then=other)
    with filled.reading() as cursor:
        assert cursor.execute("SELECT n, said FROM messages").fetchall() == [(1, "updated")]


def test_statement_that_cannot_be_prepared_is_an_error_each_time(filled: Database) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.UndefinedTable), pipelined(filled) as cursor:
            execute_no_result(cursor, "DELETE FROM nowhere WHERE n = %(n)s", {"n": 1})


def test_session_that_lost_all_that_it_had_prepared_prepares_it_again(filled: Database) -> None:
    """psycopg deallocates everything after a rollback."""
    with pipelined(filled) as cursor:
        insert(cursor, 1)
    for _ in range(7):  # psycopg has prepared this by then, so that there is something to deallocate
        with filled.transaction() as cursor:
            cursor.execute("SELECT count(*) FROM messages")
    with pytest.raises(psycopg.errors.DivisionByZero), filled.transaction() as cursor:
        cursor.execute("SELECT 1 / 0")
    with pipelined(filled) as cursor:
        insert(cursor, 2)
    assert numbers(filled) == [1, 2]


def test_percent_sign_is_one_and_a_parameter_may_stand_several_times(filled: Database) -> None:
    with pipelined(filled) as cursor:
        insert(cursor, 1, "a")
        insert(cursor, 2, "b")
        execute_no_result(cursor, "DELETE FROM messages WHERE n = %(n)s AND said LIKE 'b%%' OR n = %(n)s + 9", {"n": 2})
    assert numbers(filled) == [1]


def test_text_with_a_nul_is_refused_as_psycopg_refuses_it(filled: Database) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"), pipelined(filled) as cursor:
        insert(cursor, 1, "a\0b")
    assert numbers(filled) == []
