"""Connections whose pipelines hold statements back until somebody waits for an answer, and then send all at once.

psycopg's own send each statement by itself, look for answers every time, and wait for the answer of BEGIN: with a dozen
short statements in a transaction that takes longer than what they ask for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import Connection, Cursor, Pipeline
from psycopg.abc import PQGen
from psycopg.generators import send
from psycopg.pq import TransactionStatus


class PatientPipeline(Pipeline):
    """What comes to the queue stays there until something is fetched, or until a sync, as at the end."""

    has_begun = False
    """Whether BEGIN is among the statements: the connection's status tells only after a sync."""

    def send_off(self) -> PQGen[None]:
        """Have Postgres begin with what waits; nothing is waited for."""
        while self.command_queue:
            self.command_queue.popleft()()
        self.pgconn.send_flush_request()
        yield from send(self.pgconn)

    def _communicate_gen(self) -> PQGen[None]:
        """What psycopg does after each statement."""
        yield from ()

    def _fetch_gen(self, *, flush: bool) -> PQGen[None]:
        if self.command_queue or flush:
            yield from self.send_off()
        yield from super()._fetch_gen(flush=False)


class PatientConnection(Connection[Any]):
    """A connection of psycopg's in all but its pipelines."""

    @contextmanager
    def pipeline(self) -> Iterator[Pipeline]:
        with self.lock:
            if self._pipeline is None:
                self._pipeline = PatientPipeline(self)
        with super().pipeline() as pipeline:
            yield pipeline

    def _start_query(self) -> PQGen[None]:
        """Begin a transaction if there is none."""
        pipeline = self._pipeline
        if not isinstance(pipeline, PatientPipeline):
            yield from super()._start_query()
        elif not (self._autocommit or pipeline.has_begun or self.pgconn.transaction_status != TransactionStatus.IDLE):
            pipeline.has_begun = True
            yield from self._exec_command(self._get_tx_start_command())


def send_off(cursor: Cursor[Any]) -> None:
    """Have Postgres begin with the statements that wait in the cursor's pipeline, if it is in one."""
    connection = cursor.connection
    with connection.lock:
        pipeline = connection._pipeline  # noqa: SLF001 - psycopg gives it to nobody but who opened it
        if isinstance(pipeline, PatientPipeline):
            connection.wait(pipeline.send_off())
