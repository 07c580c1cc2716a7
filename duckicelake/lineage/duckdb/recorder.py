"""Record what one connection has run, and emit its events in the background."""

import atexit
import logging
from collections.abc import Callable, Iterable
from copy import copy
from datetime import UTC, datetime
from functools import partial
from queue import Full, Queue
from threading import Lock, Thread
from typing import Final, Protocol, TypeVar

import duckdb
from openlineage.client.event_v2 import RunEvent

from duckicelake.lineage.duckdb.events import (
    Program,
    StatementRun,
    build_aborted,
    build_begun,
    build_completed,
    build_failed,
)
from duckicelake.lineage.duckdb.names import DuckNames
from duckicelake.lineage.duckdb.statements import DuckStatement
from duckicelake.lineage.sql.dialects import mask_message

CAPACITY: Final = 10_000
"""Work items that may wait; further ones are dropped."""
Work = Callable[[], Iterable[RunEvent]]
"""Makes events, in the background as well."""
_log: Final = logging.getLogger(__name__)
T = TypeVar("T")


class Emitter(Protocol):
    """Sends one event: an OpenLineage client or transport."""

    def emit(self, event: RunEvent) -> object: ...


class EventOutbox:
    """Makes and sends events in order, in a thread of its own. Errors never reach the user's code.

    Connections share it. Each calls `open` and `close`. The last `close` waits until all is sent, or for its seconds.
    """

    def __init__(self, emitter: Emitter, capacity: int = CAPACITY) -> None:
        self.dropped = self.record_failure = 0
        self._emitter = emitter
        self._waiting: Queue[Work | None] = Queue(capacity)
        self._thread: Thread | None = None
        self._users = 0
        self._lock = Lock()

    @property
    def users(self) -> int:
        """The number of connections that share it."""
        return self._users

    def open(self) -> None:
        """Add a connection."""
        with self._lock:
            self._users += 1

    def close(self, seconds: float) -> bool:
        """Remove a connection. If it was the last, wait; return whether all is sent."""
        with self._lock:
            self._users -= 1
            last = self._users <= 0
        return self.flush(seconds) if last else True

    def put(self, work: Work) -> None:
        """Queue work; drop it if too much waits."""
        with self._lock:
            self._start()
        try:
            self._waiting.put_nowait(work)
        except Full:
            self.dropped += 1
            if self.dropped == 1:
                _log.warning("lineage: the receiver is slow; events are dropped")

    def flush(self, seconds: float) -> bool:
        """Wait until all is sent, or for `seconds`; return whether it is."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None:
            return True
        atexit.unregister(self.flush)
        try:
            self._waiting.put(None, timeout=seconds)
        except Full:
            return False
        thread.join(seconds)
        return not thread.is_alive()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="duckicelake-lineage", daemon=True)
            self._thread.start()
            atexit.register(self.flush, 5.0)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            self._do(work)

    def _do(self, work: Work) -> None:
        try:
            for event in work():
                self._emitter.emit(event)
        except Exception as error:  # noqa: BLE001 - lineage is never worth a failure of the program that it is about
            self.record_failure += 1
            _log.log(
                logging.WARNING if self.record_failure == 1 else logging.DEBUG, "lineage: %s", type(error).__name__
            )


class StatementRecorder:
    """Records what a connection runs. Its own errors are never raised.

    Statements of a transaction are complete at its commit, and aborted at its rollback.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        program: Program,
        outbox: EventOutbox | None,
        catalog_uri: str | None,
    ) -> None:
        self._connection, self._program, self._outbox, self._uri = connection, program, outbox, catalog_uri
        self._names = DuckNames(connection, program.name, catalog_uri)
        self._pending: list[StatementRun] | None = None
        self._prepared: dict[str, DuckStatement] = {}
        self._count: tuple[str, int] | None = None
        if outbox is not None:
            outbox.open()

    def beside(self, connection: duckdb.DuckDBPyConnection) -> "StatementRecorder":
        """Return a recorder for another connection to the same database."""
        return StatementRecorder(connection, self._program, self._outbox, self._uri)

    def quietly(self, function: Callable[[], T]) -> T | None:
        """Call a function; return None if it fails."""
        try:
            return function() if self._outbox is not None else None
        except Exception as error:  # noqa: BLE001 - lineage is never worth a failure of the program that it is about
            _log.debug("lineage: %s", type(error).__name__)
            return None

    def begin(self, statement: DuckStatement) -> StatementRun | None:
        """Record the begin of a statement; None for one without lineage."""
        self._count = None
        run = self._prepared.get(statement.executed or "", statement)
        return self.quietly(lambda: self._begin(run)) if run.matters else None

    def done(self, statement: DuckStatement, run: StatementRun | None, *, counting: bool) -> None:
        """Record the end of a statement. counting: whether its result may be read; `restore_result` gives it back."""
        self.quietly(lambda: self._done(statement, run, counting=counting))

    def record_failure(self, statement: DuckStatement, run: StatementRun | None, error: BaseException) -> None:
        """Record the failure or interruption of a statement."""
        self.quietly(lambda: self._record_failure(statement, run, error))

    def close(self, seconds: float) -> None:
        """Record that the connection is closed, and its transaction with it."""
        self.quietly(self._rolled_back)
        if self._outbox is not None:
            self._outbox.close(seconds)

    def restore_result(self) -> None:
        """Restore the result of the last statement, its row count, so that the user can fetch it."""
        if self._count is not None:
            (name, count), self._count = self._count, None
            self._connection.execute(f'SELECT {count}::BIGINT AS "{name}"')

    def _begin(self, statement: DuckStatement) -> StatementRun:
        names = {parts: self._names.find(parts) for parts in statement.names}
        run = StatementRun(self._program, statement, names)
        run.writes_nothing = statement.only_if_new and names.get(statement.created or ()) is not None
        self._put(partial(build_begun, copy(run)))
        return run

    def _done(self, statement: DuckStatement, run: StatementRun | None, *, counting: bool) -> None:
        if run is not None and counting and run.statement.gives_count and not run.writes_nothing:
            run.rows = self._read_count()
        if statement.prepared is not None:
            self._prepared |= [statement.prepared]
        if statement.changes_names:
            self._names.forget()
            self._names.has_temporary |= statement.makes_temporary
        transaction = statement.transaction
        if transaction == "begin":
            self._pending = []
        elif transaction == "commit":
            pending, self._pending = self._pending or [], None
            for waiting in pending:
                self._complete(waiting)
        elif transaction == "rollback":
            self._rolled_back()
        if run is not None and self._pending is not None:
            self._pending.append(run)
        elif run is not None:
            self._complete(run)

    def _record_failure(self, statement: DuckStatement, run: StatementRun | None, error: BaseException) -> None:
        at = datetime.now(UTC)
        runs = [] if run is None else [run]
        if statement.transaction == "commit":
            runs, self._pending = self._pending or [], None
        by_user = not isinstance(error, Exception) or isinstance(error, duckdb.InterruptException)
        message = mask_message(error, keep=self._program.literals)
        for pending_run in runs:
            self._put(
                partial(build_aborted, pending_run, at) if by_user else partial(build_failed, pending_run, at, message)
            )

    def _rolled_back(self) -> None:
        pending, self._pending = self._pending or [], None
        at = datetime.now(UTC)
        for waiting in pending:
            self._put(partial(build_aborted, waiting, at))

    def _complete(self, run: StatementRun) -> None:
        at = datetime.now(UTC)
        created = run.statement.created
        if created is not None and not run.writes_nothing:
            run.names = {**run.names, created: self._names.find(created)}
        output = run.output
        if output is not None and output.lake is not None and self._outbox is not None and self._outbox.users == 1:
            run.version = self._names.last_snapshot(output.lake)
        self._put(partial(build_completed, run, at))

    def _read_count(self) -> int | None:
        """Read the row count from a statement's result."""
        described = self._connection.description
        if not described or len(described) != 1 or described[0][0] != "Count":
            return None
        row = self._connection.fetchone()
        if row is None:
            return None
        self._count = "Count", int(row[0])
        return int(row[0])

    def _put(self, work: Work) -> None:
        if self._outbox is not None:
            self._outbox.put(work)
