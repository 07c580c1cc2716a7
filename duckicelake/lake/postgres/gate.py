"""Whether a process may write the lake: it may not while its files are in another lake's warehouse."""

from typing import Any

from psycopg import Cursor

from duckicelake.errors import Unavailable


class Gate:
    """Shared by all connections of a pool. reason: why nothing may be written now; None while all may."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def require_open(self) -> None:
        """Raise Unavailable with the reason while nothing may be written."""
        if self.reason is not None:
            raise Unavailable(f"Nothing was written: {self.reason}")


def require_open(cursor: Cursor[Any]) -> None:
    """`Gate.require_open` of the pool that the cursor's connection is from."""
    gate = getattr(cursor.connection, "gate", None)
    if gate is not None:
        gate.require_open()
