"""Databases that take another's connections: of a lake in a schema of its own, and of one open transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import Cursor

from duckicelake.postgres.database import Database
from duckicelake.postgres.pipeline import WriteGate
from duckicelake.postgres.queries import Row
from duckicelake.postgres.session import build_schema_url, build_search_path


class SchemaDatabase(Database):
    """The database of another lake in a schema of its own: it takes connections of a pool, and sets their schema.

    `close` closes its side connections alone.
    """

    def __init__(self, database: Database, schema: str) -> None:
        vars(self).update(vars(database))
        self.url = build_schema_url(database.url, schema)
        self.gate = WriteGate()
        self._session = self._session.in_schema(schema)
        self.search_path = build_search_path(schema)
        self._precondition = None
        self._side_connections, self._afterwards = [], {}

    def close(self) -> None:
        self.close_side_connections()


class JoinedDatabase(Database):
    """A database whose transactions and reads are parts of one transaction that is open.

    What is to be done after the commit is done after that of the open transaction.
    """

    def __init__(self, database: Database, cursor: Cursor[Row]) -> None:
        vars(self).update(vars(database))
        self._cursor = cursor

    @contextmanager
    def transaction(self, *, pipelined: bool = False) -> Iterator[Cursor[Row]]:  # noqa: ARG002
        """Go on in the open transaction."""
        yield self._cursor

    @contextmanager
    def reading(self) -> Iterator[Cursor[Row]]:
        """Read in the open transaction."""
        yield self._cursor

    @contextmanager
    def statement(self, *, only_reads: bool = False) -> Iterator[Cursor[Row]]:  # noqa: ARG002
        """Run a statement in the open transaction."""
        yield self._cursor
