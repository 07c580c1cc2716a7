"""A pool of connections to one Postgres database, and its transactions."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from threading import Lock
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import orjson
import psycopg
from psycopg import Connection, Cursor, IsolationLevel
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import ReadOnlySqlTransaction, UndefinedColumn
from psycopg.pq import TransactionStatus
from psycopg.types.json import JsonDumper, set_json_dumps, set_json_loads

from duckicelake.errors import CommitStateUnknownError, UnavailableError
from duckicelake.postgres.failures import (
    DatabaseRules,
    TimelineGuard,
    is_standby,
    read_timeline,
    roll_back_on_error,
    translate_outage,
)
from duckicelake.postgres.notify import NotificationListener
from duckicelake.postgres.pipeline import DeferredConnection, WriteGate, is_pipeline_refused
from duckicelake.postgres.pool import LifoPool, TraceBlock, build_traced_connection, check_connection_open
from duckicelake.postgres.queries import Row, Transaction
from duckicelake.postgres.session import PinnedSession, check_encoding, check_sessions, check_triggers_enabled

POOL_CONNECTIONS = 8
POOL_TIMEOUT_SECONDS = 10.0
_RECONNECT_SECONDS = 4.0
"""Seconds in which a lost connection is tried anew, with pauses that double; then the next request tries at once."""
_LOST_AFTER_MS = 30_000
_LISTENER_LOST_AFTER_MS = 10_000
"""Milliseconds within which Postgres's machine must acknowledge what it is sent, or the connection counts as lost.
Keepalives don't notice that: they go only over connections without unacknowledged data. TCP tries for 15 minutes."""
_CLOSE_SECONDS = 2.0
"""Seconds in which the pool's own threads, which may be connecting, must end."""
_CHECK_SECONDS = 5.0
"""Seconds for an answer to a check of the connection."""
_CONNECTION_DEFAULTS = {
    "connect_timeout": 5,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "fallback_application_name": "duckicelake",  # distinguishes our sessions from DuckDB's
    "target_session_attrs": "primary",  # of several hosts, or of one that changes roles, never a standby
}
RETRYABLE_SQLSTATES = frozenset({"40001", "40P01", "55P03", "23505"})


def is_retryable(error: BaseException) -> bool:
    """Return whether the transaction may succeed if it runs again.

    That holds for a serialization failure, a deadlock, and a lock or key that another transaction holds.
    """
    return isinstance(error, psycopg.Error) and error.sqlstate in RETRYABLE_SQLSTATES


class _SideConnection(Protocol):
    def close(self) -> None: ...


S = TypeVar("S", bound=_SideConnection)
MakeSideConnection = Callable[[str, Mapping[str, Any], PinnedSession, TimelineGuard | None], S]


class _DictDumper(JsonDumper):
    """Dumps dicts by orjson. JsonDumper uses the standard library, which takes ten times as long, whatever is set."""

    _dumps = orjson.dumps


class Database:
    """A pool of connections to one Postgres database; its URL may name several hosts, of which the primary counts.

    Rows are plain tuples. `json` columns arrive as Python values, and dicts may be passed for them.

    Errors for which `is_retryable` is true reach the caller, unless it only reads. If Postgres does not answer,
    UnavailableError is raised before COMMIT was sent, and CommitStateUnknownError after. A statement that takes longer
    than `statement_seconds` (0: unlimited) counts as no answer, and so does a transaction that is idle for as long.
    Postgres ends such a statement. If it doesn't, the connection is closed a little later.

    traced: makes a block for each statement. left: called once when another Postgres took over, which may lack commits;
    from then on every transaction raises FailoverError. session_settings: set on every connection. After `require`,
    each transaction begins with a statement that may refuse it.
    """

    def __init__(
        self,
        url: str,
        pool_size: int = POOL_CONNECTIONS,
        statement_seconds: float = 0,
        pool_seconds: float = POOL_TIMEOUT_SECONDS,
        traced: TraceBlock | None = None,
        left: Callable[[], None] | None = None,
        session_settings: Mapping[str, str] | None = None,
        *,
        rules: DatabaseRules,
    ) -> None:
        self.url = url
        self._precondition: str | None = None
        self._timeline = None if left is None else TimelineGuard(left)
        milliseconds = str(round(statement_seconds * 1000))
        self._answer_seconds = (
            statement_seconds + _compute_answer_margin(statement_seconds) if statement_seconds else None
        )
        self._rules = rules
        self._session = PinnedSession(
            rules.marker_table,
            jit="off",  # to compile one of our statements takes longer than any of them
            statement_timeout=milliseconds,
            idle_in_transaction_session_timeout=milliseconds,
            **(session_settings or {}),
        )
        self.gate = WriteGate()
        self._lock = Lock()
        self._connections: WeakSet[DeferredConnection] = WeakSet()
        self._is_cut_off = False
        self._pool = LifoPool(
            url,
            connection_class=build_traced_connection(traced) if traced else DeferredConnection,
            kwargs=_build_defaults(url),
            min_size=1,
            max_size=pool_size,
            timeout=pool_seconds,
            reconnect_timeout=_RECONNECT_SECONDS,
            open=True,
            configure=self._configure,
            check=check_connection_open,
            name="duckicelake",
        )
        self._side_connections: list[_SideConnection] = []
        self._afterwards: dict[Transaction, list[Callable[[], None]]] = {}

    @contextmanager
    def transaction(self, *, pipelined: bool = False) -> Iterator[Cursor[Row]]:
        """Run one READ COMMITTED transaction: committed at the end of the block, rolled back if it raises.

        pipelined: statements wait until a result is fetched, and the last ones go with COMMIT. Their rows can be
        fetched after the block.
        """
        with (
            self._connection(IsolationLevel.READ_COMMITTED, read_only=None) as connection,
            connection.pipeline() if pipelined else nullcontext(),
        ):
            with connection.cursor() as cursor:
                try:
                    self._check_precondition(connection)
                    yield cursor
                finally:
                    afterwards = self._afterwards.pop(cursor, ())
            _commit(connection)
        for act in afterwards:
            with suppress(Exception):  # the transaction is committed: nothing may look as if it weren't
                act()

    def after_commit(self, cursor: Transaction, act: Callable[[], None]) -> None:
        """Call a function once the cursor's transaction is committed, and only then; its errors are dropped."""
        self._afterwards.setdefault(cursor, []).append(act)

    @contextmanager
    def reading(self) -> Iterator[Cursor[Row]]:
        """Run one REPEATABLE READ, READ ONLY transaction: every statement in it sees the same state."""
        with (
            self._connection(IsolationLevel.REPEATABLE_READ, read_only=True, only_reads=True) as connection,
            connection.cursor() as cursor,
        ):
            self._check_precondition(connection)
            yield cursor

    @contextmanager
    def statement(self, *, only_reads: bool = False) -> Iterator[Cursor[Row]]:
        """Run each statement as a READ COMMITTED transaction of its own: one round trip for one statement.

        only_reads: the caller runs none again, so that no error is retryable, as in `reading`.
        """
        with self._connection(IsolationLevel.READ_COMMITTED, read_only=None, only_reads=only_reads) as connection:
            connection.autocommit = True
            try:
                with connection.cursor() as cursor:
                    yield cursor
            finally:
                if not connection.closed:
                    connection.autocommit = False

    def require(self, precondition: str) -> None:
        """Begin each later transaction with a statement that fails if this server must not continue."""
        self._precondition = precondition

    def check(self) -> None:
        """Connect outside the pool; UnavailableError says why Postgres refuses, or that it does not answer.

        Raises UnsupportedCatalogError for a database that can hold no lake, and UnknownFormatError where the
        precondition fails.
        """
        try:
            with DeferredConnection.connect(self.url, autocommit=True, **_build_defaults(self.url)) as connection:
                connection.answer_seconds = _CHECK_SECONDS
                check_encoding(connection)
                check_triggers_enabled(connection)
                self._session.pin(connection)
                if self._precondition is not None:
                    connection.execute(self._precondition)
        except psycopg.OperationalError as error:
            reason = "refuses the connection" if "FATAL:" in str(error) else "does not answer"
            raise UnavailableError(f"Postgres {reason}: {error}") from error
        except psycopg.Error as error:
            raise self._rules.translate(error) or error from error

    def check_sessions(self) -> None:
        """Raise UnsupportedCatalogError if a pooler shares sessions between transactions."""

        def connect() -> DeferredConnection:
            connection = DeferredConnection.connect(self.url, autocommit=True, **_build_defaults(self.url))
            connection.answer_seconds = _CHECK_SECONDS
            self._session.pin(connection)
            return connection

        try:
            check_sessions(connect)
        except psycopg.OperationalError as error:
            raise UnavailableError(f"Postgres does not answer: {error}") from error

    def statistics(self) -> dict[str, int]:
        """Return the pool's figures under psycopg_pool's names, as pool_size and requests_waiting."""
        return self._pool.get_stats()

    def open_side_connection(self, make: MakeSideConnection[S]) -> S:
        """Make a connection outside the pool, which `close` closes too.

        make: called with the URL, parameters of connections, the pinned session, and the guard of the timeline if any.
        """
        connection = make(self.url, _build_defaults(self.url), self._session, self._timeline)
        self._side_connections.append(connection)
        return connection

    def prune(self, query: str, before: datetime, batch: int) -> int:
        """Delete old rows in transactions of `batch` rows; return how many rows went.

        query: deletes at most `%(most)s` rows older than `%(before)s`.
        """
        pruned = 0
        while True:
            with self.transaction() as cursor:
                deleted = cursor.execute(query, {"before": before, "most": batch}).rowcount
            pruned += deleted
            if deleted < batch:
                return pruned

    def open_listener(self, channel: str | None) -> NotificationListener:
        """Make a listener outside the pool for the notifications of a channel; `close` closes it too."""
        listener = NotificationListener(
            self.url, _build_defaults(self.url, _LISTENER_LOST_AFTER_MS), channel, self._configure_at_once
        )
        self._side_connections.append(listener)
        return listener

    def cut_off(self) -> None:
        """Make every wait for Postgres fail at once, now and later: for a process that must end."""
        self._is_cut_off = True
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.cut_off()

    def close(self) -> None:
        self._pool.close(timeout=_CLOSE_SECONDS)
        for line in self._side_connections:
            line.close()

    @contextmanager
    def _connection(
        self, isolation: IsolationLevel, *, read_only: bool | None, only_reads: bool = False
    ) -> Iterator[DeferredConnection]:
        """Take a connection for one transaction, and translate its errors.

        read_only: None keeps Postgres's own default, which may refuse writes. only_reads: leave no error retryable.
        """
        if self._is_cut_off:
            raise UnavailableError("This server ends; nothing was written")
        try:
            with self._pool.connection() as connection:
                self._check_timeline(connection)
                if (connection.isolation_level, connection.read_only) != (isolation, read_only):
                    connection.isolation_level, connection.read_only = isolation, read_only
                connection.answer_seconds = self._answer_seconds
                try:
                    with roll_back_on_error(connection, self._rules.error_by_column):
                        yield connection
                except psycopg.Error as error:
                    refusal = self._rules.translate(error)
                    if refusal is not None:
                        raise refusal from error
                    if isinstance(error, UndefinedColumn):  # a migration may have renamed it since BEGIN
                        self.check()
                    if read_only or not is_standby(connection):
                        raise
                    self._reconnect_to_primary(connection)
                    raise UnavailableError(
                        f"This Postgres is a standby; nothing was written, try again: {error}"
                    ) from error
        except psycopg.Error as error:
            is_refused_write = read_only and isinstance(error, ReadOnlySqlTransaction)
            is_for_caller = is_refused_write or (is_retryable(error) and not only_reads)
            translated = None if is_for_caller else translate_outage(error)
            if translated is None:
                raise
            raise translated from error

    def _check_precondition(self, connection: DeferredConnection) -> None:
        """Send the precondition with BEGIN: in a pipeline of its own both take one round trip, in another's none."""
        if self._precondition is not None:
            with nullcontext() if connection.has_pipeline else connection.pipeline():
                connection.execute(self._precondition)

    def _check_timeline(self, connection: DeferredConnection) -> None:
        """Raise FailoverError if the connection is on another timeline than this process.

        A standby may have become the primary since the connection was made.
        """
        if self._timeline is not None:
            if is_standby(connection):
                connection.timeline = read_timeline(connection)
            self._timeline.check(connection.timeline)

    def _reconnect_to_primary(self, connection: Connection[Row]) -> None:
        """Connect all of the pool anew, to the host that is the primary now."""
        connection.close()
        self._pool.drain()

    def _configure(self, connection: DeferredConnection) -> None:
        self._set(connection)
        connection.gate = self.gate
        if self._timeline is not None:
            connection.timeline = read_timeline(connection)

    def _configure_at_once(self, connection: DeferredConnection) -> None:
        """Configure a connection outside the pool, and check its timeline."""
        self._set(connection)
        if self._timeline is not None:
            self._timeline.check(read_timeline(connection))

    def _set(self, connection: DeferredConnection) -> None:
        connection.answer_seconds = self._answer_seconds
        with self._lock:
            self._connections.add(connection)
        set_json_dumps(orjson.dumps, connection)
        set_json_loads(orjson.loads, connection)
        connection.adapters.register_dumper(dict, _DictDumper)
        self._session.pin(connection)


def disable_timeout(cursor: Cursor[Row]) -> None:
    """Let the statements of this transaction run for any time: a migration builds indexes."""
    cursor.execute("SET LOCAL statement_timeout TO 0")
    if isinstance(cursor.connection, DeferredConnection):
        cursor.connection.answer_seconds = None


def _compute_answer_margin(statement_seconds: float) -> float:
    """Return the seconds in which Postgres may report by itself that a statement took too long."""
    return min(5.0, max(1.0, statement_seconds / 4))


def _build_defaults(url: str, lost_after: int = _LOST_AFTER_MS) -> dict[str, Any]:
    """Return the parameters of connections that the URL leaves out: the host to choose, and when to give up on it."""
    given = conninfo_to_dict(url)
    defaults = {**_CONNECTION_DEFAULTS, "tcp_user_timeout": lost_after}
    return {name: value for name, value in defaults.items() if name not in given}


def _commit(connection: Connection[Row]) -> None:
    # Postgres answers COMMIT of a failed transaction with a silent ROLLBACK.
    if connection.info.transaction_status in (TransactionStatus.INERROR, TransactionStatus.UNKNOWN):
        raise UnavailableError("the transaction had failed before its COMMIT; nothing was written")
    try:
        connection.commit()
    except psycopg.Error as error:
        if is_retryable(error) or is_pipeline_refused(connection):
            raise
        raise CommitStateUnknownError(f"COMMIT was sent and its outcome is not known: {error}") from error
