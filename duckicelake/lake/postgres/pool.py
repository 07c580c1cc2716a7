"""The pool of connections to Postgres."""

from typing import Any

from psycopg import Connection
from psycopg_pool import ConnectionPool


class LastFirstPool(ConnectionPool[Connection[Any]]):
    """Gives out the connection that came back last: its session has at hand what is asked most often."""

    def _get_ready_connection(self, timeout: float | None) -> Connection[Any] | None:
        self._pool.rotate()
        return super()._get_ready_connection(timeout)
