"""Listen for NOTIFY on a connection of its own."""

import select
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import Cursor, Notify, sql

from duckicelake.errors import UnavailableError
from duckicelake.postgres.pipeline import DeferredConnection
from duckicelake.postgres.queries import Row


class NotificationListener:
    """Listens on a connection of its own, for one thread; another thread may close it."""

    def __init__(
        self,
        url: str,
        defaults: Mapping[str, Any],
        channel: str | None,
        configure: Callable[[DeferredConnection], None],
    ) -> None:
        """Store the parameters of the connection, without connecting.

        channel: listened to from the beginning. configure: makes connections like the pool's. defaults: parameters of
        connections, as how soon to give up.
        """
        self._url = url
        self._defaults = defaults
        self._channel = channel
        self._configure = configure
        self._wakes: tuple[socket.socket, socket.socket] | None = None
        self._connection: DeferredConnection | None = None
        self._channel_listened: str | None = None
        self._news: set[str] = set()
        self.is_closed = False

    @contextmanager
    def connect(self) -> Iterator[Cursor[Row]]:
        """Connect until the block ends; each statement is a transaction. Raises UnavailableError if that fails.

        A notification from now on ends a `wait`, also if it came while a statement ran. UnavailableError is also raised
        if the connection is lost.
        """
        try:
            with DeferredConnection.connect(self._url, autocommit=True, **self._defaults) as connection:
                self._configure(connection)
                connection.add_notify_handler(self._hear)
                self._connection, self._channel_listened = connection, None
                self.listen_to(self._channel)
                yield connection.cursor()
        except psycopg.Error as error:
            raise UnavailableError(f"Postgres does not answer: {error}") from error
        finally:
            self._connection = None

    def listen_to(self, channel: str | None) -> bool:
        """Listen to a channel, or to none, which saves Postgres the notifications.

        Returns whether the channel is new, so that notifications may have been missed until now.
        """
        if self._connection is None or channel == self._channel_listened:
            return False
        listen = sql.SQL("UNLISTEN *") if channel is None else sql.SQL("LISTEN {}").format(sql.Identifier(channel))
        self._connection.execute(listen)
        self._channel_listened = channel
        return channel is not None

    def wait(self, seconds: float) -> frozenset[str]:
        """Wait for a notification, `close`, or so many seconds; return what was notified since the last wait.

        UnavailableError if the connection is lost.
        """
        connection = self._connection
        if not self._news:
            self._poll(seconds, *(() if connection is None else (connection.fileno(),)))
        if connection is not None:
            connection.pgconn.consume_input()
            while (notice := connection.pgconn.notifies()) is not None:
                self._news.add(notice.extra.decode())
        heard, self._news = frozenset(self._news), set()
        return heard

    def rest(self, seconds: float) -> None:
        """Wait so many seconds, or until `close`; notifications don't end it."""
        self._poll(seconds)

    def _poll(self, seconds: float, *files: int) -> None:
        self._wakes = self._wakes or socket.socketpair()
        poll = select.poll()
        for file in (self._wakes[0].fileno(), *files):
            poll.register(file, select.POLLIN)
        if not self.is_closed:
            poll.poll(seconds * 1000)

    def close(self) -> None:
        """End the wait under way, and all that would follow."""
        self.is_closed = True
        if self._wakes is not None:
            with suppress(OSError):  # the thread has ended before
                self._wakes[1].send(b"!")

    def release(self) -> None:
        """Close the sockets. The thread calls it last."""
        for end in self._wakes or ():
            end.close()

    def _hear(self, notice: Notify) -> None:
        self._news.add(notice.payload)
