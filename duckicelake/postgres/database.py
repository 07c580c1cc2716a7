"""A pool of connections to one Postgres database, and its transactions."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from functools import partial
from threading import Event, Lock
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import Cursor, IsolationLevel
from psycopg.errors import ReadOnlySqlTransaction, UndefinedColumn
from psycopg_pool import PoolClosed

from duckicelake.errors import UnavailableError
from duckicelake.postgres.failures import (
    DatabaseRules,
    TimelineGuard,
    commit,
    is_retryable,
    is_standby,
    read_timeline,
    roll_back,
    translate_outage,
)
from duckicelake.postgres.notify import NotificationListener
from duckicelake.postgres.pipeline import DeferredConnection, TraceBlock, WriteGate, build_traced_connection
from duckicelake.postgres.queries import Row, Transaction
from duckicelake.postgres.session import (
    LISTENER_LOST_AFTER_MS,
    LifoPool,
    PinnedSession,
    adapt_json,
    build_parameters,
    check_connection_open,
    check_database,
    check_sessions,
    connect_for_check,
)

POOL_CONNECTIONS = 8
POOL_TIMEOUT_SECONDS = 10.0
_WATCH_SECONDS = 2.0
"""Seconds for which who watches for changes waits for the connection that all such threads share."""
_RECONNECT_SECONDS = 4.0
"""Seconds in which a lost connection is tried anew, with pauses that double; then the next request tries at once."""
_CLOSE_SECONDS = 2.0
"""Seconds in which the pool's own threads, which may be connecting, must end."""


class _SideConnection(Protocol):
    def close(self) -> None: ...


S = TypeVar("S", bound=_SideConnection)
MakeSideConnection = Callable[[str, Mapping[str, Any], PinnedSession, "TimelineGuard | None"], S]


class Database:
    """A pool of connections to one Postgres database; its URL may name several hosts, of which the primary counts.

    Rows are plain tuples. `json` columns arrive as Python values, and dicts may be passed for them.

    Errors for which `is_retryable` is true reach the caller, unless it only reads. If Postgres does not answer,
    UnavailableError is raised before COMMIT was sent, and CommitStateUnknownError after. A statement that takes longer
    than `statement_seconds` (0: unlimited) counts as no answer, and so does a transaction that is idle for as long.
    Postgres ends such a statement. If it doesn't, the connection is closed a little later.

    traced: makes a block for each statement. left: called once when another Postgres took over, which may lack commits;
    from then on every transaction raises FailoverError. session_settings: set on every connection. After `require`,
    each transaction begins with a statement that may refuse it. lost: called when no connection could be made for a
    while. max_waiting: how many may wait for a connection, further ones get UnavailableError at once; 0: any number.
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
        lost: Callable[[], None] | None = None,
        max_waiting: int = 0,
    ) -> None:
        self.url = url
        self._precondition: str | None = None
        self._timeline = None if left is None else TimelineGuard(left)
        milliseconds = str(round(statement_seconds * 1000))
        # Postgres gets some seconds to report by itself that a statement took too long.
        margin = min(5.0, max(1.0, statement_seconds / 4))
        self._answer_seconds = statement_seconds + margin if statement_seconds else None
        self._statement_seconds = statement_seconds
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
        self._cut_off = Event()
        build_pool = partial(
            LifoPool,
            url,
            connection_class=build_traced_connection(traced) if traced else DeferredConnection,
            kwargs=build_parameters(url),
            reconnect_timeout=_RECONNECT_SECONDS,
            configure=self._configure,
            check=check_connection_open,
            reconnect_failed=None if lost is None else lambda _: lost(),
        )
        self._pool = build_pool(
            min_size=1,
            max_size=pool_size,
            timeout=pool_seconds,
            max_waiting=max_waiting,
            open=True,
            name="duckicelake",
        )
        self._watch_pool = build_pool(
            min_size=0, max_size=1, timeout=_WATCH_SECONDS, open=False, num_workers=1, name="duckicelake-watch"
        )
        """The one connection of `watching`, which is made when that is first called."""
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
                    if self._precondition is not None:
                        connection.execute_with_begin(self._precondition)
                    yield cursor
                finally:
                    afterwards = self._afterwards.pop(cursor, ())
            commit(connection)
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
            if self._precondition is not None:
                connection.execute_with_begin(self._precondition)
            yield cursor

    @contextmanager
    def statement(self, *, only_reads: bool = False) -> Iterator[Cursor[Row]]:
        """Run each statement as a READ COMMITTED transaction of its own: one round trip for one statement.

        only_reads: the caller runs none again, so that no error is retryable, as in `reading`.
        """
        with self._run_alone(self._pool, only_reads=only_reads) as cursor:
            yield cursor

    @contextmanager
    def watching(self) -> Iterator[Cursor[Row]]:
        """Run statements that only read, as `statement` does, over a connection that no request takes.

        It is for threads that look a few times a second whether something has changed: a busy pool doesn't delay them.
        """
        try:
            self._watch_pool.open()
        except PoolClosed as error:
            raise UnavailableError("The database is closed: nothing was read") from error
        with self._run_alone(self._watch_pool, only_reads=True) as cursor:
            yield cursor

    @contextmanager
    def _run_alone(self, pool: LifoPool, *, only_reads: bool) -> Iterator[Cursor[Row]]:
        """Run each statement as a transaction of its own."""
        with self._connection(
            IsolationLevel.READ_COMMITTED, read_only=None, only_reads=only_reads, pool=pool
        ) as connection:
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

        Raises UnsupportedCatalogError for a database that can hold no lake, UnknownFormatError where the precondition
        fails, and FailoverError after a failover, which a server without requests finds out by this.
        """
        try:
            with connect_for_check(self.url) as connection:
                check_database(connection)
                if self._timeline is not None:
                    self._timeline.check(read_timeline(connection))
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
            connection = connect_for_check(self.url)
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
        connection = make(self.url, build_parameters(self.url), self._session, self._timeline)
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
            self.url,
            build_parameters(self.url, LISTENER_LOST_AFTER_MS),
            channel,
            self._configure_at_once,
            self._statement_seconds,
        )
        self._side_connections.append(listener)
        return listener

    def cut_off(self) -> None:
        """Make every wait for Postgres fail at once, now and later: for a process that must end."""
        self._cut_off.set()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.cut_off()

    def close(self) -> None:
        self._pool.close(timeout=_CLOSE_SECONDS)
        self._watch_pool.close(timeout=_CLOSE_SECONDS)
        self.close_side_connections()

    def close_side_connections(self) -> None:
        for line in self._side_connections:
            line.close()

    @contextmanager
    def _connection(
        self,
        isolation: IsolationLevel,
        *,
        read_only: bool | None,
        only_reads: bool = False,
        pool: LifoPool | None = None,
    ) -> Iterator[DeferredConnection]:
        """Take a connection for one transaction, and translate its errors.

        read_only: None keeps Postgres's own default, which may refuse writes. only_reads: leave no error retryable.
        pool: None is that of requests.
        """
        if self._cut_off.is_set():
            raise UnavailableError("This server ends; nothing was written")
        try:
            with (pool or self._pool).connection() as connection:
                self._check_timeline(connection)
                if connection.session is not self._session:
                    self._session.enter(connection)
                connection.gate = self.gate
                if (connection.isolation_level, connection.read_only) != (isolation, read_only):
                    connection.isolation_level, connection.read_only = isolation, read_only
                connection.answer_seconds = self._answer_seconds
                prepared_before = connection.prepared_count
                try:
                    yield connection
                except psycopg.Error as error:
                    self._raise_refusal(connection, prepared_before, error, can_write=not read_only)
                    raise
                except BaseException:
                    roll_back(connection, prepared_before)
                    raise
        except psycopg.Error as error:
            is_refused_write = read_only and isinstance(error, ReadOnlySqlTransaction)
            is_for_caller = is_refused_write or (is_retryable(error) and not only_reads)
            translated = None if is_for_caller else translate_outage(error)
            if translated is None:
                raise
            raise translated from error

    def _raise_refusal(
        self, connection: DeferredConnection, prepared_before: int, error: psycopg.Error, *, can_write: bool
    ) -> None:
        """Raise the error that the schema's rules, or a standby, give for one of Postgres; return if there is none."""
        provoked = self._rules.find_provoked(error)
        if provoked is not None:
            roll_back(connection, prepared_before)
            raise provoked from error
        refusal = self._rules.translate(error)
        if refusal is not None:
            raise refusal from error
        if isinstance(error, UndefinedColumn):  # a migration may have renamed it since BEGIN
            self.check()
        if can_write and is_standby(connection):
            connection.close()
            self._pool.drain()  # so that all of it connects anew, to the host that is the primary now
            raise UnavailableError(f"This Postgres is a standby; nothing was written, try again: {error}") from error

    def _check_timeline(self, connection: DeferredConnection) -> None:
        """Raise FailoverError if the connection is on another timeline than this process.

        A standby may have become the primary since the connection was made.
        """
        if self._timeline is not None:
            if is_standby(connection):
                connection.timeline = read_timeline(connection)
            self._timeline.check(connection.timeline)

    def _configure(self, connection: DeferredConnection) -> None:
        self._set(connection)
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
        adapt_json(connection)
        self._session.pin(connection)
