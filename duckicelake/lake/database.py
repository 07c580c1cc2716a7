"""The seam to Postgres: a connection pool and the two kinds of transactions that the catalog needs."""

import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import psycopg
from psycopg import Connection, Cursor, IsolationLevel
from psycopg.pq import TransactionStatus
from psycopg.types.json import JsonDumper, set_json_dumps, set_json_loads
from psycopg_pool import ConnectionPool

from duckicelake.errors import CommitStateUnknown, Unavailable

Row = tuple[Any, ...]
Transaction = Cursor[Row]
"""What use cases pass down: a cursor inside one open transaction."""

POOL_TIMEOUT_SECONDS = 10.0
RETRYABLE_STATES = frozenset({"40001", "40P01", "55P03", "23505"})


def is_retryable(error: BaseException) -> bool:
    """Whether the whole transaction may succeed if run again: serialization failure, deadlock, a lock or key taken."""
    return isinstance(error, psycopg.Error) and error.sqlstate in RETRYABLE_STATES


class Database:
    """A pool of connections to one Postgres database.

    Rows are plain tuples; `json` columns arrive as Python values, and dicts may be passed for them.
    Errors for which `is_retryable` holds reach the caller, who decides; when Postgres does not answer,
    Unavailable is raised before COMMIT was sent and CommitStateUnknown after.
    """

    def __init__(self, url: str, pool_size: int = 8) -> None:
        self.url = url
        self._pool = ConnectionPool[Connection[Row]](
            url,
            min_size=1,
            max_size=pool_size,
            timeout=POOL_TIMEOUT_SECONDS,
            open=True,
            configure=_configure,
            check=_check_still_open,
            name="duckicelake",
        )

    @contextmanager
    def transaction(self) -> Iterator[Cursor[Row]]:
        """One READ COMMITTED transaction: committed at the end of the block, rolled back if it raises."""
        with self._connection(IsolationLevel.READ_COMMITTED, read_only=False) as connection:
            with connection.cursor() as cursor:
                yield cursor
            _commit(connection)

    @contextmanager
    def reading(self) -> Iterator[Cursor[Row]]:
        """One REPEATABLE READ, READ ONLY transaction: every statement in it sees the same state."""
        with (
            self._connection(IsolationLevel.REPEATABLE_READ, read_only=True) as connection,
            connection.cursor() as cursor,
        ):
            yield cursor

    def check(self) -> None:
        """Connect, past the pool, so that Unavailable tells why Postgres refuses."""
        try:
            with psycopg.connect(self.url, connect_timeout=5, autocommit=True) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError as error:
            raise Unavailable(f"Postgres does not answer: {error}") from error

    def statistics(self) -> dict[str, int]:
        """The pool's figures under psycopg_pool's names: pool_size, pool_available, pool_max, requests_waiting."""
        return self._pool.get_stats()

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def _connection(self, isolation: IsolationLevel, *, read_only: bool) -> Iterator[Connection[Row]]:
        try:
            with self._pool.connection() as connection:
                connection.isolation_level = isolation
                connection.read_only = read_only
                yield connection
        except psycopg.OperationalError as error:
            if is_retryable(error):
                raise
            raise Unavailable(f"Postgres does not answer; nothing was written: {error}") from error


def _commit(connection: Connection[Row]) -> None:
    # Postgres answers COMMIT of a failed transaction with a silent ROLLBACK.
    if connection.info.transaction_status in (TransactionStatus.INERROR, TransactionStatus.UNKNOWN):
        raise Unavailable("the transaction had failed before its COMMIT; nothing was written")
    try:
        connection.commit()
    except psycopg.Error as error:
        if is_retryable(error):
            raise
        raise CommitStateUnknown(f"COMMIT was sent and its outcome is not known: {error}") from error


def _configure(connection: Connection[Row]) -> None:
    set_json_dumps(orjson.dumps, connection)
    set_json_loads(orjson.loads, connection)
    connection.adapters.register_dumper(dict, JsonDumper)
    connection.execute("SET TimeZone TO 'UTC'")
    connection.commit()


def _check_still_open(connection: Connection[Row]) -> None:
    """Refuse a connection that the server has closed, without a round trip: nothing else makes an idle one readable."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        connection.close()
        raise psycopg.OperationalError("the server closed an idle connection")
