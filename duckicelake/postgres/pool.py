"""The pool of connections, and connections whose statements are traced."""

import select
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import psycopg
from psycopg import Connection, Cursor
from psycopg_pool import ConnectionPool
from psycopg_pool.pool import AddConnection

from duckicelake.postgres.pipeline import DeferredConnection, PreparedStatement
from duckicelake.postgres.queries import find_statement_name

TraceBlock = Callable[[str], AbstractContextManager[object]]
"""Opens a block for the statement of a name."""


class LifoPool(ConnectionPool[DeferredConnection]):
    """Hands out the connection that was returned last: its session has the most frequent statements prepared.

    Connections that the server has closed, as all are after a restart of Postgres, are replaced and not handed out.
    psycopg's own check pauses for about 1 s once a request has met two of them.
    """

    def _get_ready_connection(self, timeout: float | None) -> DeferredConnection | None:
        while True:
            self._pool.rotate()
            connection = super()._get_ready_connection(timeout)
            if connection is None or not is_closed_by_server(connection):
                return connection
            connection.close()
            self._stats[self._CONNECTIONS_LOST] += 1
            self.run_task(AddConnection(self))


def is_closed_by_server(connection: Connection[Any]) -> bool:
    """Return whether an idle connection has ended, without a round trip: nothing else makes one readable."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def check_connection_open(connection: Connection[Any]) -> None:
    """Refuse a connection that the server has closed; the pool's check before a waiting request gets it."""
    if is_closed_by_server(connection):
        connection.close()
        raise psycopg.OperationalError("the server closed an idle connection")


def build_traced_connection(around: TraceBlock) -> type[DeferredConnection]:
    """Return a class of connections that run each statement and each COMMIT in a block of its own."""

    class TracedCursor(Cursor[Any]):
        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Self:
            with around(find_statement_name(query)):
                return super().execute(query, *args, **kwargs)

        def executemany(self, query: Any, params_seq: Iterable[Any], **kwargs: Any) -> None:
            with around(find_statement_name(query)):
                super().executemany(query, params_seq, **kwargs)

    class TracedConnection(DeferredConnection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.cursor_factory = TracedCursor

        def execute_no_result(self, statement: PreparedStatement, texts: Sequence[bytes | None]) -> None:
            with around(find_statement_name(statement.text)):
                super().execute_no_result(statement, texts)

        def commit(self) -> None:
            with around("COMMIT"):
                super().commit()

    return TracedConnection
