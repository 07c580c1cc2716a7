"""The pool of connections to Postgres."""

from psycopg_pool import ConnectionPool

from duckicelake.lake.postgres.pipelines import PatientConnection


class LastFirstPool(ConnectionPool[PatientConnection]):
    """Gives out the connection that came back last: its session has at hand what is asked most often."""

    def _get_ready_connection(self, timeout: float | None) -> PatientConnection | None:
        self._pool.rotate()
        return super()._get_ready_connection(timeout)
