"""Failures of Postgres: what may be run again, what is rolled back, outages as errors of the request, timelines."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.errors import NotNullViolation
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg_pool import PoolTimeout, TooManyRequests

from duckicelake.errors import (
    CatalogError,
    CommitStateUnknownError,
    FailoverError,
    InvalidRequestError,
    UnavailableError,
)
from duckicelake.postgres.pipeline import DeferredConnection

_REASON_BY_STATE: Final[Mapping[str, str]] = {
    "25006": "Postgres takes no writes now (default_transaction_read_only is on, as where a disk is full, or it is a "
    "standby)",
    "42501": "Postgres denies the server's login what it needs (`duckicelake grants` prints what gives it)",
    "53100": "Postgres's disk is full",
    "53200": "Postgres is out of memory",
    "53300": "Postgres has no connections left",
    "57014": "This took too long",
    "57P03": "Postgres is starting up, recovering or shutting down",
    "25P03": "This took too long (idle_in_transaction_session_timeout)",
}
"""Reasons by SQLSTATE; a class gives the reason for states that are not listed."""
_REASON_BY_CLASS: Final[Mapping[str, str]] = {
    "40": "Postgres has ended this for the sake of another transaction",
    "53": "Postgres has run out of what it needs",
    "58": "Postgres's system fails it",
}
RETRYABLE_SQLSTATES: Final = frozenset({"40001", "40P01", "55P03", "23505"})
_ENDED_WHILE_IDLE: Final = "25P03"
"""Postgres ended the session before it ran COMMIT: it looks for this timeout once more before each command."""
_UNFIT_CLASS: Final = "42"
"""The class of errors by what a statement names, or how it is written."""
_LIMIT_CLASS: Final = "54"
"""The class of errors at a limit of the program, such as the size of an index row or the depth of a statement."""
_TIMELINE_SQL: Final = (
    "SELECT CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END"
)


TableColumn = tuple[str | None, str | None]
"""Names of a table and of a column of it."""


class DatabaseRules(NamedTuple):
    """Rules of the schema that a Database serves.

    marker_table: the schema that has this table is served. error_by_column: errors by the NOT NULL columns that our
    statements set to NULL on purpose, to fail where their result is not fetched. translate: gives the request's error
    for an SQLSTATE of the schema's own triggers and functions, None for any other.
    """

    marker_table: str
    error_by_column: Mapping[TableColumn, type[Exception]]
    translate: Callable[[psycopg.Error], CatalogError | None]

    def find_provoked(self, error: psycopg.Error) -> type[Exception] | None:
        """Find the error that our SQL provoked on purpose; None for any other."""
        if not isinstance(error, NotNullViolation):
            return None
        return self.error_by_column.get((error.diag.table_name, error.diag.column_name))


def commit(connection: DeferredConnection) -> None:
    """Commit. Raises UnavailableError if nothing was written, CommitStateUnknownError if that isn't known."""
    # Postgres answers COMMIT of a failed transaction with a silent ROLLBACK.
    failed = (TransactionStatus.INERROR, TransactionStatus.UNKNOWN)
    if not connection.is_refused and connection.info.transaction_status in failed:
        raise UnavailableError("the transaction had failed before its COMMIT; nothing was written")
    if connection.is_ended:
        raise UnavailableError("Postgres ended the connection before COMMIT was sent; nothing was written, try again")
    try:
        connection.commit()
    except psycopg.Error as error:
        if is_retryable(error) or connection.is_refused or error.sqlstate == _ENDED_WHILE_IDLE:
            raise
        raise CommitStateUnknownError(f"COMMIT was sent and its outcome is not known: {error}") from error


def roll_back(connection: DeferredConnection, prepared_before: int) -> None:
    """Roll back after an error that isn't Postgres's.

    psycopg would also forget all statements that the session has prepared. Postgres keeps these, and later transactions
    need them. After an error in a pipeline, only statements that were still to be prepared are forgotten: those since
    `prepared_before`.
    """
    connection.forget_prepared(prepared_before)
    is_plain = connection.pgconn.pipeline_status == PipelineStatus.OFF
    if is_plain and connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        connection.pgconn.exec_(b"ROLLBACK")


def is_retryable(error: BaseException) -> bool:
    """Return whether the transaction may succeed if it runs again.

    That holds for a serialization failure, a deadlock, and a lock or key that another transaction holds.
    """
    return isinstance(error, psycopg.Error) and error.sqlstate in RETRYABLE_SQLSTATES


def is_unfit_statement(error: BaseException) -> bool:
    """Return whether a statement doesn't fit the tables that it names: they lack what it is written for."""
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_UNFIT_CLASS)


def translate_outage(error: psycopg.Error) -> CatalogError | None:
    """Translate a failure into the request's error; None if Postgres's state or absence didn't cause it."""
    state = error.sqlstate or ""
    if isinstance(error, psycopg.OperationalError) and state.startswith(_LIMIT_CLASS):
        return InvalidRequestError("Postgres can't hold so much in one piece; nothing was written")
    reason = _REASON_BY_STATE.get(state) or _REASON_BY_CLASS.get(state[:2]) or _translate_stateless(error)
    return None if reason is None else UnavailableError(f"{reason}; nothing was written, try again: {error}")


def _translate_stateless(error: psycopg.Error) -> str | None:
    if isinstance(error, PoolTimeout | TooManyRequests):
        return "Postgres does not answer, or all connections to it are busy"
    if isinstance(error, psycopg.OperationalError):
        return "Postgres does not answer"
    return None


def read_timeline(connection: Connection[Any]) -> str | None:
    """Read the connection's timeline, and leave no transaction; None if Postgres reports none, as a standby."""
    row = None
    with _hide_undefined():
        row = connection.execute(_TIMELINE_SQL).fetchone()
    connection.rollback()
    return row[0] if row else None


async def read_timeline_async(connection: AsyncConnection[Any]) -> str | None:
    """Read the timeline on a connection of an event loop that commits by itself."""
    row = None
    with _hide_undefined():
        row = await (await connection.execute(_TIMELINE_SQL)).fetchone()
    return row[0] if row else None


@contextmanager
def _hide_undefined() -> Iterator[None]:
    """Ignore errors of services that speak Postgres's protocol and have no timeline, or hide it."""
    try:
        yield
    except psycopg.OperationalError:
        raise
    except psycopg.DatabaseError:
        pass


def is_standby(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Return whether Postgres was a standby when it last answered."""
    return connection.info.parameter_status("in_hot_standby") == "on"


class TimelineGuard:
    """Remembers the first timeline that a connection was on, and refuses others."""

    def __init__(self, left: Callable[[], None]) -> None:
        """Remember no timeline yet. left: called once, when Postgres turns out to be on another one."""
        self._left = left
        self._first: str | None = None
        self._is_left = False
        self._lock = Lock()

    def check(self, met: str | None) -> None:
        """Raise FailoverError if a connection was on another timeline, now or before; None counts as any."""
        with self._lock:
            self._first = self._first or met
            if not self._is_left and met not in (None, self._first):
                self._is_left = True
                self._left()
        if self._is_left:
            raise FailoverError("Postgres has failed over; nothing was written, try again")
