"""Whether what is known of tables is still so: asked in a transaction, or from an event loop over a line of its own."""

import asyncio
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import orjson
import psycopg
from psycopg import AsyncConnection, AsyncCursor, Cursor

from duckicelake.errors import Unavailable
from duckicelake.lake.queries import queries
from duckicelake.lake.state import Asked, Freshness

Row = tuple[Any, ...]
_SQL = queries("state")
_PATIENCE_SECONDS: Final = 2.0
"""For an answer over the line. Who asked in vain asks in a transaction, which has a patience of its own."""
_PAUSE_SECONDS: Final = 0.5
"""After a line could not be had, before the next try."""


def freshness(cursor: Cursor[Row], asked: Sequence[Asked]) -> list[Freshness | None]:
    """What tells whether cached tables are still the newest, in the order asked for; None for one that isn't there."""
    return _by_asked(cursor.execute(_SQL.freshness, _parameters(asked)).fetchall(), len(asked))


class FreshnessLine:
    """A connection for one event loop that asks one thing at a time; made when it is first needed, and after a loss."""

    def __init__(self, url: str, patience: Mapping[str, Any]) -> None:
        """patience: parameters of connections that say how soon to give up."""
        self._url = url
        self._patience = patience
        self._cursor: AsyncCursor[Row] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False

    async def freshness(self, asked: Sequence[Asked]) -> list[Freshness | None]:
        """As the function. Unavailable at once while there is no line: it is being made meanwhile."""
        cursor = self._cursor
        if cursor is None:
            self._start_connecting()
            raise Unavailable("There is no line to Postgres yet")
        try:
            with _hanging_up(cursor.connection):
                await cursor.execute(_SQL.freshness, _parameters(asked), prepare=True)
                return _by_asked(await cursor.fetchall(), len(asked))
        except psycopg.Error as error:
            self._give_up()
            raise Unavailable(f"Postgres does not answer: {error}") from error

    def close(self) -> None:
        """Give the line up for good; also from outside the loop, once that has ended."""
        self._is_closed = True
        self._give_up()

    def _give_up(self) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.connection.pgconn.finish()

    def _start_connecting(self) -> None:
        if not self._is_closed and (self._connecting is None or self._connecting.done()):
            self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            connection = await AsyncConnection.connect(self._url, autocommit=True, **self._patience)
        except psycopg.Error:
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            self._cursor = connection.cursor()
            if self._is_closed:
                self._give_up()


@contextmanager
def _hanging_up(connection: AsyncConnection[Any]) -> Iterator[None]:
    """Let the block's question fail if it isn't answered in time."""
    late = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, _hang_up, connection)
    try:
        yield
    finally:
        late.cancel()


def _hang_up(connection: AsyncConnection[Any]) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def _parameters(asked: Sequence[Asked]) -> dict[str, str]:
    return {"asked": orjson.dumps([each._asdict() for each in asked]).decode()}


def _by_asked(rows: Iterable[Row], count: int) -> list[Freshness | None]:
    found: list[Freshness | None] = [None] * count
    for ordinal, *facts in rows:
        found[ordinal - 1] = Freshness(*facts)
    return found
