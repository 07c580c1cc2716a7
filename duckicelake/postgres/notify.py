"""Listen for NOTIFY on a connection of its own, which may hold a lease of its session."""

import select
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf, isfinite
from time import monotonic
from typing import Any, Final

import psycopg
from psycopg import Cursor, Notify, sql

from duckicelake.errors import UnavailableError
from duckicelake.postgres.lease import LEASE_USES, LeaseKeeper
from duckicelake.postgres.pipeline import DeferredConnection
from duckicelake.postgres.queries import Row

_LIMIT_IDLENESS_SQL: Final = "SELECT set_config('idle_session_timeout', current_setting('statement_timeout'), false)"


class NotificationListener:
    """Listens on a connection of its own, for one thread; another thread may close it."""

    def __init__(
        self,
        url: str,
        defaults: Mapping[str, Any],
        channel: str | None,
        configure: Callable[[DeferredConnection], None],
        statement_seconds: float = 0,
    ) -> None:
        """Store the parameters of the connection, without connecting.

        channel: listened to from the beginning. configure: makes connections like the pool's. defaults: parameters of
        connections, as how soon to give up. statement_seconds: for which a statement may run; 0: any time.
        """
        self._url = url
        self._defaults = defaults
        self._channel = channel
        self._configure = configure
        self._lease_pause = statement_seconds / LEASE_USES or inf
        self._use_seconds = inf
        """The longest time for which the session is left idle."""
        self._wakes: tuple[socket.socket, socket.socket] | None = None
        self._connection: DeferredConnection | None = None
        self._keeper: LeaseKeeper | None = None
        self._channel_listened: str | None = None
        self._news: set[str] = set()
        self.is_closed = False

    @contextmanager
    def connect(self, *, is_lease: bool = False) -> Iterator[Cursor[Row]]:
        """Connect until the block ends; each statement is a transaction. Raises UnavailableError if that fails.

        A notification from now on ends a `wait`, also if it came while a statement ran. UnavailableError is also raised
        if the connection is lost.

        is_lease: whether the session is to hold a lock as a lease. Postgres then ends the session once it is idle for
        as long as a statement may take, as that of a process that is frozen. `wait`, `rest` and `kept_alive` use it.
        """
        try:
            with DeferredConnection.connect(self._url, autocommit=True, **self._defaults) as connection:
                self._configure(connection)
                connection.add_notify_handler(self._hear)
                self._connection, self._channel_listened = connection, None
                if is_lease:
                    connection.execute(_LIMIT_IDLENESS_SQL)
                    self._use_seconds = self._lease_pause
                self.listen_to(self._channel)
                yield connection.cursor()
        except psycopg.Error as error:
            raise UnavailableError(f"Postgres does not answer: {error}") from error
        finally:
            self._connection, self._use_seconds = None, inf
            if self._keeper is not None:
                self._keeper.end()
                self._keeper = None

    @contextmanager
    def kept_alive(self) -> Iterator[None]:
        """Use a lease's session now and then while the block does long work without it.

        The lease then lasts as long as the work, but ends if the process is frozen.
        """
        if self._connection is None or not isfinite(self._use_seconds):
            yield
            return
        if self._keeper is None:
            self._keeper = LeaseKeeper(self._connection, self._use_seconds)
        with self._keeper.keep():
            yield

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
        until = monotonic() + seconds
        while not self.is_closed:
            left = max(0.0, until - monotonic())
            if poll.poll(min(left, self._use_seconds) * 1000) or left <= self._use_seconds:
                return
            if self._connection is not None:
                self._connection.execute("SELECT")
            if files and self._news:
                return

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
