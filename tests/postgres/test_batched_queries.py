"""What is asked at once is answered as if it had been asked one by one, in one transaction."""

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from duckicelake.postgres.database import Database
from duckicelake.postgres.pipeline import BatchedQuery, fetch_all_batched

XID = "SELECT pg_current_snapshot()::text, current_setting('transaction_isolation')"


def test_answers_come_in_the_order_of_what_was_asked(database: Database) -> None:
    asked = [BatchedQuery("SELECT n FROM generate_series(1, %(n)s) AS s (n)", {"n": n}) for n in (2, 0, 1)]
    with database.reading() as cursor:
        assert fetch_all_batched(cursor, *asked) == [[(1,), (2,)], [], [(1,)]]
        assert fetch_all_batched(cursor) == []


def test_all_is_asked_in_the_transaction_that_others_go_on_with(database: Database) -> None:
    with database.reading() as cursor:
        first, second = fetch_all_batched(cursor, BatchedQuery(XID, {}), BatchedQuery(XID, {}))
        assert cursor.connection.info.transaction_status == TransactionStatus.INTRANS
        with database.transaction() as other:
            other.execute("CREATE TABLE meanwhile ()")
        assert first == second == cursor.execute(XID).fetchall()
        assert first[0][1] == "repeatable read"
        assert fetch_all_batched(
            cursor, BatchedQuery("SELECT count(*) FROM pg_class WHERE relname = 'meanwhile'", {})
        ) == [[(0,)]]


def test_what_postgres_refuses_is_raised(database: Database) -> None:
    def fail() -> None:
        with database.reading() as cursor:
            fetch_all_batched(
                cursor,
                BatchedQuery("SELECT 1", {}),
                BatchedQuery("SELECT * FROM nowhere", {}),
                BatchedQuery("SELECT 2", {}),
            )

    with pytest.raises(psycopg.errors.UndefinedTable):
        fail()
    with database.reading() as cursor:
        assert fetch_all_batched(cursor, BatchedQuery("SELECT 1", {})) == [[(1,)]]
