"""Whether a connection to Postgres has a session of its own, which poolers don't give in transaction mode."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from psycopg import Connection
from psycopg.errors import ProtocolViolation

from duckicelake.errors import UnsupportedCatalog

_ROUNDS: Final = 3
_SHARED: Final = (
    "the database's address is a pooler's that shares sessions between transactions (pgbouncer's pool_mode = "
    "transaction), but the server needs its own for settings, prepared statements, LISTEN and advisory locks: "
    "use pool_mode = session, or Postgres's own address"
)

Connect = Callable[[], AbstractContextManager[Connection[Any]]]


def check_sessions(connect: Connect) -> None:
    """Raise UnsupportedCatalog if transactions of two connections meet in one session.

    connect: makes connections that commit by themselves.
    """
    with connect() as first:
        if first.info.backend_pid == _session_of(first):
            return  # Postgres itself: a pooler would have given an id of its own
        with connect() as second:
            if any(_is_shared(first, second) for _ in range(_ROUNDS)):
                raise UnsupportedCatalog(_SHARED)


def _is_shared(first: Connection[Any], second: Connection[Any]) -> bool:
    """Whether the second's transaction has the first's session, or keeps the first from having its own again."""
    before = _session_of(first)
    try:
        with second.transaction():
            return before == _session_of(second) or before != _session_of(first)
    except ProtocolViolation:  # transactions of several statements are refused: pool_mode = statement
        return True


def _session_of(connection: Connection[Any]) -> int | None:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return None if row is None else int(row[0])
