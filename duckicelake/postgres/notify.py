"""Listen for NOTIFY on a connection of its own."""

import select
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import Cursor, Notify, sql

from duckicelake.errors import Unavailable
from duckicelake.postgres.pipeline import DeferredConnection
from duckicelake.postgres.queries import Row


class NotificationListener:
    """For one thread, which listens until this is closed by another, and then releases what it has."""

    def __init__(
        self,
        url: str,
        patience: Mapping[str, Any],
        channel: str | None,
        configure: Callable[[DeferredConnection], None],
    ) -> None:
        """channel: heard from the beginning. configure: makes connections like the pool's.

        patience: parameters of connections that say how soon to give up.
        """
        self._url = url
        self._patience = patience
        self._channel = channel
        self._configure = configure
        self._wakes: tuple[socket.socket, socket.socket] | None = None
        self._connection: DeferredConnection | None = None
        self._channel_listened: str | None = None
        self._has_news = False
        self.is_closed = False

    @contextmanager
    def listening(self) -> Iterator[Cursor[Row]]:
        """A connection of its own on which each statement is a transaction; Unavailable if it can't be had, or is lost.

        What is notified from now on ends a `wait`, also if it came while a statement ran.
        """
        try:
            with DeferredConnection.connect(self._url, autocommit=True, **self._patience) as connection:
                self._configure(connection)
                connection.add_notify_handler(self._hear)
                self._connection, self._channel_listened = connection, None
                self.listen_to(self._channel)
                yield connection.cursor()
        except psycopg.Error as error:
            raise Unavailable(f"Postgres does not answer: {error}") from error
        finally:
            self._connection = None

    def listen_to(self, channel: str | None) -> bool:
        """Have a `wait` end by what is notified there; None: by nothing, which spares Postgres to tell of it.

        Whether that is new, so that something may have been missed until now.
        """
        if self._connection is None or channel == self._channel_listened:
            return False
        listen = sql.SQL("UNLISTEN *") if channel is None else sql.SQL("LISTEN {}").format(sql.Identifier(channel))
        self._connection.execute(listen)
        self._channel_listened = channel
        return channel is not None

    def wait(self, seconds: float) -> None:
        """Until there is news, this is closed, or so long; Unavailable if the connection is lost."""
        connection = self._connection
        if not self._has_news:
            self._poll(seconds, *(() if connection is None else (connection.fileno(),)))
        if connection is not None:
            connection.pgconn.consume_input()
            while connection.pgconn.notifies() is not None:
                pass
        self._has_news = False

    def rest(self, seconds: float) -> None:
        """So long, whatever news there is, or until this is closed."""
        self._poll(seconds)

    def _poll(self, seconds: float, *files: int) -> None:
        self._wakes = self._wakes or socket.socketpair()
        poll = select.poll()
        for file in (self._wakes[0].fileno(), *files):
            poll.register(file, select.POLLIN)
        if not self.is_closed:
            poll.poll(seconds * 1000)

    def close(self) -> None:
        """Have the wait under way end, and all that would follow."""
        self.is_closed = True
        if self._wakes is not None:
            with suppress(OSError):  # the thread has ended before
                self._wakes[1].send(b"!")

    def release(self) -> None:
        """For the thread, as the last it does."""
        for end in self._wakes or ():
            end.close()

    def _hear(self, _: Notify) -> None:
        self._has_news = True
