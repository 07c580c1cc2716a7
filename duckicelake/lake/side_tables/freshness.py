"""Check whether cached tables are the newest, in a transaction or from an event loop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import orjson
import psycopg
from psycopg import AsyncConnection, Cursor
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult

from duckicelake.errors import UnavailableError
from duckicelake.lake.state import Freshness, FreshnessQuery
from duckicelake.postgres.database import Database
from duckicelake.postgres.failures import TimelineGuard, is_standby, read_timeline_async
from duckicelake.postgres.queries import Row, load_queries
from duckicelake.postgres.session import PinnedSession

_SQL = load_queries("lake", "state")
_STATEMENT_NAME: Final = b"duckicelake_freshness"
"""Name of the statement that a line has prepared."""
_ANSWER_SECONDS: Final = 2.0
"""Seconds for an answer over the line; after them the request asks in a transaction, with limits of its own."""
_CONNECT_SECONDS: Final = 15.0
"""Seconds to make a new line, with all questions before others use it."""
_PAUSE_SECONDS: Final = 0.5
"""Seconds between a connection that failed and the next attempt."""


def read_freshness(cursor: Cursor[Row], asked: Sequence[FreshnessQuery]) -> list[Freshness | None]:
    """Read how tables are now, to compare with a cache, in the order asked for; None for a missing table."""
    return _sort_by_query(
        cursor.execute(_SQL.freshness, {"asked": _encode_queries(asked).decode()}).fetchall(), len(asked)
    )


class FreshnessLine:
    """A connection for one event loop that asks one question at a time; made at the first, and after a loss."""

    def __init__(
        self, url: str, defaults: Mapping[str, Any], session: PinnedSession, timeline: TimelineGuard | None = None
    ) -> None:
        """Keep how to connect; nothing is connected yet.

        defaults: parameters of connections, as how soon to give up. timeline: refuses connections to another one.
        """
        self._url = url
        self._defaults = defaults
        self._session = session
        self._timeline = timeline
        self._line: _PreparedLine | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._is_closed = False

    async def freshness(self, asked: Sequence[FreshnessQuery]) -> list[Freshness | None]:
        """Ask as `read_freshness`. Raises UnavailableError while there is no connection, which is made meanwhile."""
        return await self._ask(self._find_line(), asked)

    async def freshness_in(self, search_path: str, asked: Sequence[FreshnessQuery]) -> list[Freshness | None]:
        """Ask as `freshness` about tables of a lake in another schema; other lakes wait for the answer."""
        async with self._turn:
            line = self._find_line()
            try:
                await line.set_path(search_path)
            except psycopg.Error as error:
                raise UnavailableError(f"Postgres does not answer: {error}") from error
            return await self._ask(line, asked)

    def _find_line(self) -> "_PreparedLine":
        line = self._line
        if line is None or line.is_closed:
            self._start_connecting()
            raise UnavailableError("There is no line to Postgres yet")
        return line

    async def _ask(self, line: "_PreparedLine", asked: Sequence[FreshnessQuery]) -> list[Freshness | None]:
        try:
            result = await line.ask(_encode_queries(asked))
        except psycopg.Error as error:
            raise UnavailableError(f"Postgres does not answer: {error}") from error
        return _sort_by_query(map(partial(_parse_row, result), range(result.ntuples)), len(asked))

    def close(self) -> None:
        """Close the connection for good; also from outside the loop, once that has ended."""
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
        except (psycopg.Error, UnavailableError, TimeoutError):
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            self._line = line
            if self._is_closed:
                line.close()

    async def _new_line(self) -> "_PreparedLine":
        connection = await AsyncConnection.connect(self._url, autocommit=True, **self._defaults)
        try:
            if self._timeline is not None:
                await _check_connection(self._timeline, connection)
            await self._session.pin_async(connection)
            line = _PreparedLine(connection)
            await line.prepare()
        except BaseException:
            await connection.close()
            raise
        return line


@dataclass(frozen=True, slots=True)
class SchemaLine:
    """The part of a line that lakes in other schemas share, for the lake of one of them."""

    line: FreshnessLine
    search_path: str

    async def freshness(self, asked: Sequence[FreshnessQuery]) -> list[Freshness | None]:
        return await self.line.freshness_in(self.search_path, asked)


def open_freshness_line(database: Database) -> FreshnessLine:
    """Make a line that is closed with the database."""
    return database.open_side_connection(FreshnessLine)


async def _check_connection(timeline: TimelineGuard, connection: AsyncConnection[Any]) -> None:
    _check_primary(connection)
    timeline.check(await read_timeline_async(connection))


def _check_primary(connection: AsyncConnection[Any]) -> None:
    """Raise UnavailableError on a standby: a line lasts, and does not notice that its host becomes the primary."""
    if is_standby(connection):
        raise UnavailableError("This Postgres is a standby")


class _PreparedLine:
    """A connection that the loop drives through libpq: psycopg's cursors take twice as long, and all loads wait."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self.backend_pid = connection.info.backend_pid
        self.is_closed = False
        self._connection = connection
        self._libpq = connection.pgconn
        self._socket = connection.pgconn.socket  # libpq forgets it with the connection
        self._loop = asyncio.get_running_loop()
        self._search_path: str | None = None
        self._answer: asyncio.Future[PGresult] | None = None
        self._result: PGresult | None = None
        self._loop.add_reader(self._socket, self._read)

    async def set_path(self, search_path: str) -> None:
        """Have the next questions be about the lake that a search path leads to."""
        if self._search_path != search_path:
            await self._request(partial(self._libpq.send_query, f"SET search_path TO {search_path}".encode()))
            self._search_path = search_path

    async def prepare(self) -> None:
        sql = _SQL.freshness.replace("%(asked)s", "$1").encode()
        await self._request(partial(self._libpq.send_prepare, _STATEMENT_NAME, sql))

    async def ask(self, asked: bytes) -> PGresult:
        """Return the rows; psycopg.Error, after which the line is closed."""
        return await self._request(partial(self._libpq.send_query_prepared, _STATEMENT_NAME, [asked]))

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._libpq.finish()

    async def _request(self, send: Callable[[], None]) -> PGresult:
        answer: asyncio.Future[PGresult] = self._loop.create_future()
        self._answer = answer
        late = self._loop.call_later(_ANSWER_SECONDS, self._fail_on_timeout)
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
        """Send the rest of a question that didn't fit into the socket."""
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
        """Give the whole answer, or its error, to the question that waits."""
        result, self._result = self._result, None
        if self._libpq.status != ConnStatus.OK:
            self._fail(psycopg.OperationalError("the connection is lost"))
        elif result is not None and result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            self._fail(psycopg.OperationalError(result.get_error_message()))
        elif result is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(result)

    def _fail_on_timeout(self) -> None:
        self._fail(psycopg.OperationalError("it takes too long"))

    def _fail(self, error: psycopg.Error) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


def _parse_row(result: PGresult, number: int) -> Row:
    """Parse a row of the query `freshness` from Postgres's text."""
    ordinal, *integers, has_overdue, is_untouched, seen = (result.get_value(number, column) for column in range(9))
    assert ordinal is not None
    assert seen is not None
    known = (None if integer is None else int(integer) for integer in integers)
    return int(ordinal), *known, has_overdue == b"t", is_untouched == b"t", seen.decode()


def _encode_queries(asked: Sequence[FreshnessQuery]) -> bytes:
    return orjson.dumps([query._asdict() for query in asked])


def _sort_by_query(rows: Iterable[Row], count: int) -> list[Freshness | None]:
    found: list[Freshness | None] = [None] * count
    for ordinal, *facts in rows:
        found[ordinal - 1] = Freshness(*facts)
    return found
