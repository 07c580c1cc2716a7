"""Connections whose pipelines defer statements until a result is needed, then send all at once; many rows as JSON."""

import os
import re
import select
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, partial
from time import monotonic
from typing import Any, Final, NamedTuple, Self, TypeVar

import orjson
from psycopg import Connection, Cursor, DataError, Error, OperationalError, Pipeline, sql
from psycopg.abc import PQGen
from psycopg.errors import _WaitTimeout as WaitTimeoutError
from psycopg.generators import send
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

from duckicelake.errors import UnavailableError
from duckicelake.postgres.queries import BATCH_ROWS, Row, find_statement_name

T = TypeVar("T")
TraceBlock = Callable[[str], AbstractContextManager[object]]
"""Opens a block for the statement of a name."""
_WAIT_SECONDS: Final = 0.1
"""psycopg's seconds after which a wait looks for signals."""
_BIGINT_OID: Final = 20
_INFERRED_OID: Final = 0
"""The type id by which Postgres infers a type from the context, as it does for psycopg's texts."""
_PLACEHOLDER_PATTERN: Final = re.compile(r"%\((\w+)\)s|%%")
_SEND_BYTES: Final = 256 * 1024
"""Bytes of parameters after which waiting statements are sent, so that few of very many rows wait in memory."""


class WriteGate:
    """Shared by all connections of a pool. reason: why writes are refused now; None while they are allowed."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def require_open(self) -> None:
        """Raise UnavailableError with the reason while writes are refused."""
        if self.reason is not None:
            raise UnavailableError(f"Nothing was written: {self.reason}")


def check_gate_open(cursor: Cursor[Any]) -> None:
    """Call `WriteGate.require_open` of the pool that the cursor's connection is from."""
    gate = getattr(cursor.connection, "gate", None)
    if gate is not None:
        gate.require_open()


class PreparedStatement(NamedTuple):
    """A prepared statement: its SQL as written, the SQL with $1 and so on, and which parameters are integers."""

    text: str
    query: bytes
    are_numbers: tuple[bool, ...]


class _PendingPreparation(NamedTuple):
    """A statement that the pipeline is preparing; the session forgets its name if that fails."""

    statement_names: dict[PreparedStatement, bytes]
    statement: PreparedStatement


class SyncedPipeline(Pipeline):
    """psycopg's own pipeline, as of `executemany`, without the flush that follows its sync.

    Postgres counts the time for which a transaction is idle from a sync on, until it reads anything else.
    """

    def _exit_gen(self) -> PQGen[None]:
        try:
            self._enqueue_sync()
            yield from self._communicate_gen()
        finally:
            yield from self._fetch_gen(flush=False)


class DeferredPipeline(SyncedPipeline):
    """A pipeline that keeps statements in its queue until a result is fetched, or until a sync, as at the end."""

    has_begun = False
    """Whether BEGIN is among the statements: the connection's status changes only after a sync."""
    has_ended = False
    """Whether COMMIT was sent, as the last."""
    sent_at: float | None = None
    """The monotonic time at which the first statement was sent."""
    refused: Error | None = None
    """The error of the statement that Postgres refused; Postgres runs no later one, nor COMMIT."""

    def send_off(self) -> PQGen[None]:
        """Send the waiting statements without waiting for results, so that Postgres begins with them.

        A sync follows: only after one does Postgres count the time for which a transaction is idle. Without it, a
        process that is frozen here would hold its locks until it wakes.
        """
        if self.sent_at is None:
            self.sent_at = monotonic()
        if self.command_queue and self.command_queue[-1] != self._send_sync:
            self._enqueue_sync()
        while self.command_queue:
            self.command_queue.popleft()()
        yield from send(self.pgconn)

    def commit(self) -> PQGen[None]:
        """Send COMMIT with the waiting statements; raise `refused` unless COMMIT itself failed."""
        yield from self._conn._exec_command(b"COMMIT")  # noqa: SLF001 - as psycopg's own pipeline would
        self.has_ended = True
        try:
            yield from self._sync_gen()
        except Error:
            if self.refused is None:
                raise
            raise self.refused from None

    def _exit_gen(self) -> PQGen[None]:
        if not self.has_ended:
            yield from super()._exit_gen()

    def _enqueue_sync(self) -> None:
        self.command_queue.append(self._send_sync)
        self.result_queue.append(None)

    def _send_sync(self) -> None:
        """Send a sync. Where it can't be sent, psycopg says of a lost connection that it isn't in pipeline mode."""
        try:
            self.pgconn.pipeline_sync()
        except OperationalError as error:
            if self.pgconn.status == ConnStatus.OK:
                raise
            cause = "" if self.pgconn.error_message == b"" else f": {self.pgconn.get_error_message()}"
            raise OperationalError(f"the connection was lost before all was sent{cause}") from error

    def _process_results(self, queued: Any, results: Any) -> None:
        if isinstance(queued, _PendingPreparation):
            if results[0].status != ExecStatus.COMMAND_OK:
                queued.statement_names.pop(queued.statement, None)
            queued = None
        try:
            super()._process_results(queued, results)
        except Error as error:
            is_statement = not self.has_ended or len(self.result_queue) > 1  # after it come COMMIT and the sync
            if is_statement and error.sqlstate is not None and self.refused is None:
                self.refused = error
            raise

    def _communicate_gen(self) -> PQGen[None]:
        """Do nothing after a statement; psycopg would send it here."""
        yield from ()

    def _fetch_gen(self, *, flush: bool) -> PQGen[None]:  # noqa: ARG002 - a sync does what a flush does
        yield from self.send_off()
        yield from super()._fetch_gen(flush=False)


class DeferredConnection(Connection[Any]):
    """A psycopg connection with deferred pipelines, which closes itself if no answer comes in time."""

    timeline: str | None = None
    """Postgres's timeline, if it is known."""
    gate: WriteGate | None = None
    """The gate of the lake that has the connection."""
    session: object = None
    """The session whose schema it has."""
    answer_seconds: float | None = None
    """Most time for one answer; None: any. A Postgres that is stopped, or whose disk stalls, takes what it is sent, so
    that neither its own limits nor those of the network end the wait."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._statement_names: dict[PreparedStatement, bytes] = {}
        self._statement_count = 0
        self.entered_paths: set[str] = set()
        """The search paths that it has had."""

    def wait(self, gen: PQGen[Any], interval: float = _WAIT_SECONDS, timeout: float | None = None) -> Any:
        """Run an exchange with Postgres to its end. Raises OperationalError if no answer comes in time."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.answer_seconds)
        except WaitTimeoutError:
            self.pgconn.finish()
            raise OperationalError(f"no answer within {self.answer_seconds:g} s, the connection is given up") from None

    def cut_off(self) -> None:
        """Make a wait for an answer fail at once; for another thread than the one that waits."""
        with suppress(Error, OSError), socket.socket(fileno=os.dup(self.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)

    @property
    def has_begun_pipeline(self) -> bool:
        """Whether it is in a pipeline, and in a transaction that has begun there."""
        return isinstance(self._pipeline, DeferredPipeline) and self._pipeline.has_begun

    @property
    def is_refused(self) -> bool:
        """Whether a statement has failed in the pipeline, so that COMMIT after it does not count."""
        return isinstance(self._pipeline, DeferredPipeline) and self._pipeline.refused is not None

    @property
    def is_ended(self) -> bool:
        """Whether Postgres has ended the session, as far as that has arrived; no round trip."""
        poll = select.poll()
        try:
            poll.register(self.pgconn.socket, select.POLLIN)
            while poll.poll(0):
                self.pgconn.consume_input()
        except OperationalError:
            return True
        return False

    def execute_with_begin(self, statement: str) -> None:
        """Send a statement with BEGIN: in a pipeline of its own both take one round trip, in another's none."""
        with nullcontext() if self._pipeline is not None else self.pipeline():
            self.execute(statement)

    def execute_no_result(self, statement: PreparedStatement, texts: Sequence[bytes | None]) -> None:
        """Queue a statement in the pipeline; of its answer only an error counts (the function `execute_no_result`)."""
        pipeline = self._pipeline
        assert pipeline is not None
        name = self._statement_names.get(statement)
        if name is None:
            self._statement_count += 1
            name = self._statement_names[statement] = b"unread_%d" % self._statement_count
            types = [_BIGINT_OID if is_number else _INFERRED_OID for is_number in statement.are_numbers]
            pipeline.command_queue.append(partial(self.pgconn.send_prepare, name, statement.query, types))
            pipeline.result_queue.append(_PendingPreparation(self._statement_names, statement))  # type: ignore[arg-type]
        pipeline.command_queue.append(partial(self.pgconn.send_query_prepared, name, texts))
        pipeline.result_queue.append(None)

    @property
    def prepared_count(self) -> int:
        """How many statements psycopg has given names, to prepare them."""
        return self._prepared._prepared_idx  # noqa: SLF001 - psycopg has no public name for it

    def forget_prepared(self, since: int) -> None:
        """Forget the statements whose names came after so many, so that psycopg prepares them anew."""
        names = self._prepared._names  # noqa: SLF001 - as above
        for key in [key for key, name in names.items() if int(name.rpartition(b"_")[2]) >= since]:
            del names[key]

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        if name is None:
            self._statement_names.clear()
        return super()._deallocate(name)

    @contextmanager
    def pipeline(self) -> Iterator[Pipeline]:
        with self.lock:
            if self._pipeline is None:
                self._pipeline = DeferredPipeline(self)
        with super().pipeline() as pipeline:
            yield pipeline

    @contextmanager
    def _pipeline_nolock(self) -> Iterator[Pipeline]:
        """Have the pipeline of `executemany`, whose caller has the lock."""
        pipeline = self._pipeline = SyncedPipeline(self, _no_lock=True)
        try:
            with pipeline:
                yield pipeline
        finally:
            self._pipeline = None

    def _start_query(self) -> PQGen[None]:
        """Begin a transaction if there is none."""
        pipeline = self._pipeline
        if not isinstance(pipeline, DeferredPipeline):
            yield from super()._start_query()
        elif not (self._autocommit or pipeline.has_begun or self.pgconn.transaction_status != TransactionStatus.IDLE):
            pipeline.has_begun = True
            yield from self._exec_command(self._get_tx_start_command())

    def _commit_gen(self) -> PQGen[None]:
        pipeline = self._pipeline
        if isinstance(pipeline, DeferredPipeline):
            yield from pipeline.commit()
        else:
            yield from super()._commit_gen()


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


def json_param(value: Sequence[object] | dict[str, Any]) -> str:
    """Encode rows, or an object, as JSON; a text that is JSON already comes as `orjson.Fragment`."""
    return orjson.dumps(value).decode()


def split_batches(rows: Sequence[T]) -> list[Sequence[T]]:
    """Split the rows into parts, one for each statement; no rows are no parts."""
    return [rows[start : start + BATCH_ROWS] for start in range(0, len(rows), BATCH_ROWS)]


def flush_pipeline(cursor: Cursor[Any]) -> None:
    """Send the statements that wait in the cursor's pipeline, if it is in one, so that Postgres begins."""
    connection = cursor.connection
    with connection.lock:
        pipeline = connection._pipeline  # noqa: SLF001 - psycopg gives it only to who opened it
        if isinstance(pipeline, DeferredPipeline):
            connection.wait(pipeline.send_off())


def measure_lock_seconds(cursor: Cursor[Any]) -> Callable[[], float]:
    """Return a function that measures for how many seconds Postgres has held the locks taken by now.

    In a pipeline of which nothing was sent yet, the time begins when something is sent.
    """
    since, pipeline = monotonic(), cursor.connection._pipeline  # noqa: SLF001 - as above

    def measure() -> float:
        sent_at = pipeline.sent_at if isinstance(pipeline, DeferredPipeline) else None
        return monotonic() - max(since, sent_at or since)

    return measure


class BatchedQuery(NamedTuple):
    """A statement with its parameters."""

    statement: str | sql.Composed
    parameters: Mapping[str, object]


class Write(NamedTuple):
    """A statement whose result is not needed, with its parameters as `execute_no_result` takes them."""

    statement: str
    parameters: Mapping[str, object]


def fetch_all_batched(cursor: Cursor[Row], *queries: BatchedQuery) -> list[list[Any]]:
    """Run independent reads in one round trip, in the cursor's transaction; return the rows of each."""
    connection = cursor.connection
    with connection.pipeline():
        cursors = [connection.cursor().execute(query.statement, query.parameters) for query in queries]
    return [answer.fetchall() for answer in cursors]


def execute_no_result(cursor: Cursor[Any], statement: str, parameters: Mapping[str, object]) -> None:
    """Send a statement whose result is not needed; an error still aborts the transaction.

    In a pipeline it takes a fifth of the time of `cursor.execute`. parameters: by the names in the statement; integers
    and lists of them, texts, bytes, mappings as JSON, None.
    """
    connection = cursor.connection
    if isinstance(connection, DeferredConnection) and connection.has_begun_pipeline:
        query, names = _compile_statement(statement)
        values = [parameters[name] for name in names]
        are_numbers = tuple([type(value) is int for value in values])
        connection.execute_no_result(
            PreparedStatement(statement, query, are_numbers), [_encode_text(value) for value in values]
        )
    else:
        cursor.execute(statement, parameters)


def execute_writes(cursor: Cursor[Any], writes: Iterable[Write]) -> None:
    """Send statements in their order, as `execute_no_result` does; outside of a pipeline in one of their own."""
    connection, waiting = cursor.connection, 0
    with nullcontext() if connection._pipeline is not None else connection.pipeline():  # noqa: SLF001 - as above
        for statement, parameters in writes:
            execute_no_result(cursor, statement, parameters)
            waiting += sum([len(value) for value in parameters.values() if isinstance(value, str)])
            if waiting >= _SEND_BYTES:
                flush_pipeline(cursor)
                waiting = 0


@cache
def _compile_statement(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the statement with $1 and so on, and the names of the parameters in this order."""
    names: dict[str, int] = {}

    def number_parameter(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

    return _PLACEHOLDER_PATTERN.sub(number_parameter, statement).encode(), tuple(names)


def _encode_text(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, str):
        text = value.encode()
        if b"\0" in text:
            raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return text
    if isinstance(value, bytes):
        return b"\\x%s" % value.hex().encode()
    if isinstance(value, list):
        return b"{%s}" % b",".join([b"%d" % number for number in value])
    return orjson.dumps(value)
