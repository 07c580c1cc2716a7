"""The pool of connections to Postgres."""

import select
from typing import Any

import psycopg
from psycopg import Connection
from psycopg_pool import ConnectionPool
from psycopg_pool.pool import AddConnection

from duckicelake.lake.postgres.pipelines import PatientConnection


class LastFirstPool(ConnectionPool[PatientConnection]):
    """Gives out the connection that came back last: its session has at hand what is asked most often.

    Connections that the server has closed, as all are when Postgres was restarted, are replaced and not given out.
    psycopg's own check pauses for about 1 s once a request has met two of them.
    """

    def _get_ready_connection(self, timeout: float | None) -> PatientConnection | None:
        while True:
            self._pool.rotate()
            connection = super()._get_ready_connection(timeout)
            if connection is None or not is_closed_by_server(connection):
                return connection
            connection.close()
            self._stats[self._CONNECTIONS_LOST] += 1
            self.run_task(AddConnection(self))


def is_closed_by_server(connection: Connection[Any]) -> bool:
    """Whether an idle connection has ended, without a round trip: nothing else makes one readable."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def check_still_open(connection: Connection[Any]) -> None:
    """Refuse a connection that the server has closed, as the pool's check of what a waiting request is handed."""
    if is_closed_by_server(connection):
        connection.close()
        raise psycopg.OperationalError("the server closed an idle connection")
