"""Bound the whole time of an HTTP request: names, TLS, head and body, however slowly the other side sends.

Timeouts of sockets count anew with each byte, so one byte a second would keep a request for days.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Timer
from typing import Any, Final, cast

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

_TOO_LATE: Final = "its answer takes too long"
_current = threading.local()
"""The deadline of the request that a thread sends on kept connections."""


class Deadline:
    """Ends the connections of a request when its time is over."""

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._sockets: list[socket.socket] = []
        self._lock = Lock()
        self._timer = Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, connection: socket.socket) -> None:
        """Have a connection ended when the time is over, or now if it is."""
        with self._lock:  # TLS takes the socket over, and can't be copied itself; a copy ends the same connection
            self._sockets.append(socket.fromfd(connection.fileno(), connection.family, connection.type))
        if self.is_over:
            self._end()

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            while self._sockets:
                self._sockets.pop().close()

    def _end(self) -> None:
        self.is_over = True
        with self._lock:
            for connection in self._sockets:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def keep_deadline(seconds: float) -> Iterator[Deadline]:
    """End what is watched, and requests of this thread on timed pools, after so many seconds: then TimeoutError."""
    deadline = Deadline(seconds)
    _current.deadline = deadline
    try:
        yield deadline
    except (HTTPError, OSError) as error:
        if deadline.is_over:
            raise TimeoutError(_TOO_LATE) from error
        raise
    finally:
        _current.deadline = None
        deadline.close()
    if deadline.is_over:
        raise TimeoutError(_TOO_LATE)


def time_pools(pools: urllib3.PoolManager) -> urllib3.PoolManager:
    """Let the pools' connections end with `keep_deadline`, new and kept ones alike; return them."""
    pools.pool_classes_by_scheme = cast("Any", {"http": _TimedHTTPPool, "https": _TimedHTTPSPool})
    return pools


def _watch(connection: socket.socket) -> None:
    deadline: Deadline | None = getattr(_current, "deadline", None)
    if deadline is not None:
        deadline.watch(connection)


class _TimedHTTPConnection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        connection = super()._new_conn()
        _watch(connection)
        return connection

    def request(self, *args: Any, **options: Any) -> None:
        """Send a request; the time counts on a kept connection, too."""
        if self.sock is not None:
            _watch(self.sock)
        super().request(*args, **options)


class _TimedHTTPSConnection(_TimedHTTPConnection, HTTPSConnection):
    """Timed as the other."""


class _TimedHTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _TimedHTTPConnection


class _TimedHTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TimedHTTPSConnection
