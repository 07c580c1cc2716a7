"""One transaction around several functions that each make one of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import Cursor

from duckicelake.postgres.database import Database


class JoinedDatabase(Database):
    """A database whose transactions and reads are parts of one transaction that is open.

    What is to be done after the commit is done after that of the open transaction.
    """

    def __init__(self, database: Database, cursor: Cursor[tuple[Any, ...]]) -> None:
        vars(self).update(vars(database))
        self._cursor = cursor

    @contextmanager
    def transaction(self, *, pipelined: bool = False) -> Iterator[Cursor[tuple[Any, ...]]]:  # noqa: ARG002
        """Go on in the open transaction."""
        yield self._cursor

    @contextmanager
    def reading(self) -> Iterator[Cursor[tuple[Any, ...]]]:
        """Read in the open transaction."""
        yield self._cursor

    @contextmanager
    def statement(self, *, only_reads: bool = False) -> Iterator[Cursor[tuple[Any, ...]]]:  # noqa: ARG002
        """Run a statement in the open transaction."""
        yield self._cursor
