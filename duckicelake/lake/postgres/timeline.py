"""Which timeline of Postgres a process lives on: a failover begins another, on which the last commits may be missing.

What a process remembers of those it can't tell from what is there, as another may have given their numbers again. So it
uses one timeline only. Each connection is asked once, since none outlives a failover; but those to a standby, which may
become the primary, each time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, Connection

from duckicelake.errors import FailedOver

_TIMELINE: Final = "SELECT CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END"


def is_standby(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether Postgres was one when it last answered."""
    return connection.info.parameter_status("in_hot_standby") == "on"


def timeline_of(connection: Connection[Any]) -> str | None:
    """The connection's, which is left without a transaction; None if Postgres doesn't tell, as a standby doesn't."""
    row = None
    with _untold():
        row = connection.execute(_TIMELINE).fetchone()
    connection.rollback()
    return row[0] if row else None


async def timeline_of_async(connection: AsyncConnection[Any]) -> str | None:
    """The same of a connection of an event loop that commits by itself."""
    row = None
    with _untold():
        row = await (await connection.execute(_TIMELINE)).fetchone()
    return row[0] if row else None


@contextmanager
def _untold() -> Iterator[None]:
    """Not every service that speaks Postgres's language has a timeline, or shows it to all."""
    try:
        yield
    except psycopg.OperationalError:
        raise
    except psycopg.DatabaseError:
        pass


class Timeline:
    """The one that was met first."""

    def __init__(self, left: Callable[[], None]) -> None:
        """left: called once, when Postgres turns out to be on another."""
        self._left = left
        self._first: str | None = None
        self._is_left = False
        self._lock = Lock()

    def check(self, met: str | None) -> None:
        """FailedOver if a connection to another was met, now or before; None is any."""
        with self._lock:
            self._first = self._first or met
            if not self._is_left and met not in (None, self._first):
                self._is_left = True
                self._left()
        if self._is_left:
            raise FailedOver("Postgres has failed over; nothing was written, try again")
