"""Whether what is known of tables is still so: asked in a transaction, or from an event loop over a line of its own."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson
import psycopg
from psycopg import AsyncConnection, Cursor
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult

from duckicelake.errors import Unavailable
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.postgres.session import PinnedSession
from duckicelake.lake.postgres.timeline import Timeline, is_standby, timeline_of_async
from duckicelake.lake.state import Asked, Freshness

Row = tuple[Any, ...]
_SQL = queries("state")
_NAME: Final = b"duckicelake_freshness"
"""Of the statement that a line has prepared."""
_PATIENCE_SECONDS: Final = 2.0
"""For an answer over the line. Who asked in vain asks in a transaction, which has a patience of its own."""
_CONNECT_SECONDS: Final = 15.0
"""For a new line with all that is asked on it before others use it."""
_PAUSE_SECONDS: Final = 0.5
"""After a line could not be had, before the next try."""


def freshness(cursor: Cursor[Row], asked: Sequence[Asked]) -> list[Freshness | None]:
    """What tells whether cached tables are still the newest, in the order asked for; None for one that isn't there."""
    return _by_asked(cursor.execute(_SQL.freshness, {"asked": _in_json(asked).decode()}).fetchall(), len(asked))


class FreshnessLine:
    """A connection for one event loop that asks one thing at a time; made when it is first needed, and after a loss."""

    def __init__(
        self, url: str, patience: Mapping[str, Any], session: PinnedSession, timeline: Timeline | None = None
    ) -> None:
        """patience: parameters of connections that say how soon to give up. timeline: the only one to ask."""
        self._url = url
        self._patience = patience
        self._session = session
        self._timeline = timeline
        self._line: _Line | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False

    async def freshness(self, asked: Sequence[Asked]) -> list[Freshness | None]:
        """As the function. Unavailable at once while there is no line: it is being made meanwhile."""
        line = self._line
        if line is None or line.is_closed:
            self._start_connecting()
            raise Unavailable("There is no line to Postgres yet")
        try:
            result = await line.ask(_in_json(asked))
        except psycopg.Error as error:
            raise Unavailable(f"Postgres does not answer: {error}") from error
        return _by_asked(map(partial(_row, result), range(result.ntuples)), len(asked))

    def close(self) -> None:
        """Give the line up for good; also from outside the loop, once that has ended."""
        self._is_closed = True
        if self._line is not None:
            self._line.close()

    def _start_connecting(self) -> None:
        if not self._is_closed and (self._connecting is None or self._connecting.done()):
            self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                line = await self._new_line()
        except (psycopg.Error, Unavailable, TimeoutError):
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            self._line = line
            if self._is_closed:
                line.close()

    async def _new_line(self) -> "_Line":
        connection = await AsyncConnection.connect(self._url, autocommit=True, **self._patience)
        try:
            if self._timeline is not None:
                await _check(self._timeline, connection)
            await self._session.pin_async(connection)
            line = _Line(connection)
            await line.prepare()
        except BaseException:
            await connection.close()
            raise
        return line


async def _check(timeline: Timeline, connection: AsyncConnection[Any]) -> None:
    _check_primary(connection)
    timeline.check(await timeline_of_async(connection))


def _check_primary(connection: AsyncConnection[Any]) -> None:
    """Unavailable on a standby: a line lasts, and nobody would hear on it that this has become the primary."""
    if is_standby(connection):
        raise Unavailable("This Postgres is a standby")


class _Line:
    """libpq itself, watched by the loop: psycopg's cursors take twice as long, and all who load wait for it."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self.backend_pid = connection.info.backend_pid
        self.is_closed = False
        self._connection = connection
        self._libpq = connection.pgconn
        self._socket = connection.pgconn.socket  # libpq forgets it with the connection
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[PGresult] | None = None
        self._result: PGresult | None = None
        self._loop.add_reader(self._socket, self._read)

    async def prepare(self) -> None:
        sql = _SQL.freshness.replace("%(asked)s", "$1").encode()
        await self._answered(partial(self._libpq.send_prepare, _NAME, sql))

    async def ask(self, asked: bytes) -> PGresult:
        """The rows; psycopg.Error, after which the line is closed."""
        return await self._answered(partial(self._libpq.send_query_prepared, _NAME, [asked]))

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._libpq.finish()

    async def _answered(self, send: Callable[[], None]) -> PGresult:
        answer: asyncio.Future[PGresult] = self._loop.create_future()
        self._answer = answer
        late = self._loop.call_later(_PATIENCE_SECONDS, self._fail_late)
        try:
            send()
            if self._libpq.flush():
                self._loop.add_writer(self._socket, self._write)
            return await answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = None
            late.cancel()

    def _write(self) -> None:
        """Go on with a question that didn't fit into the socket."""
        try:
            if not self._libpq.flush():
                self._loop.remove_writer(self._socket)
        except psycopg.Error as error:
            self._fail(error)

    def _read(self) -> None:
        try:
            self._libpq.consume_input()
            while not self._libpq.is_busy():
                result = self._libpq.get_result()
                if result is None:
                    self._finish()
                    return
                self._result = result
        except psycopg.Error as error:
            self._fail(error)

    def _finish(self) -> None:
        """All that there is to an answer is there."""
        result, self._result = self._result, None
        if self._libpq.status != ConnStatus.OK:
            self._fail(psycopg.OperationalError("the connection is lost"))
        elif result is not None and result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            self._fail(psycopg.OperationalError(result.get_error_message()))
        elif result is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(result)

    def _fail_late(self) -> None:
        self._fail(psycopg.OperationalError("it takes too long"))

    def _fail(self, error: psycopg.Error) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


def _row(result: PGresult, number: int) -> Row:
    """What `freshness` selects, read from Postgres's text."""
    ordinal, *integers, has_overdue, is_untouched, seen = (result.get_value(number, each) for each in range(9))
    assert ordinal is not None
    assert seen is not None
    known = (None if each is None else int(each) for each in integers)
    return int(ordinal), *known, has_overdue == b"t", is_untouched == b"t", seen.decode()


def _in_json(asked: Sequence[Asked]) -> bytes:
    return orjson.dumps([each._asdict() for each in asked])


def _by_asked(rows: Iterable[Row], count: int) -> list[Freshness | None]:
    found: list[Freshness | None] = [None] * count
    for ordinal, *facts in rows:
        found[ordinal - 1] = Freshness(*facts)
    return found
