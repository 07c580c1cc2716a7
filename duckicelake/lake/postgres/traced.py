"""Connections to Postgres whose statements somebody traces."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

from psycopg import Cursor

from duckicelake.lake.postgres.pipelines import PatientConnection, Statement
from duckicelake.lake.postgres.queries import name_of

Around = Callable[[str], AbstractContextManager[object]]
"""Gives a block for the statement of a name."""


def traced_by(around: Around) -> type[PatientConnection]:
    """The class of connections that make each statement and each COMMIT in a block of its own."""

    class TracedCursor(Cursor[Any]):
        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Self:
            with around(name_of(query)):
                return super().execute(query, *args, **kwargs)

        def executemany(self, query: Any, params_seq: Iterable[Any], **kwargs: Any) -> None:
            with around(name_of(query)):
                super().executemany(query, params_seq, **kwargs)

    class TracedConnection(PatientConnection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.cursor_factory = TracedCursor

        def tell(self, statement: Statement, texts: Sequence[bytes | None]) -> None:
            with around(name_of(statement.text)):
                super().tell(statement, texts)

        def commit(self) -> None:
            with around("COMMIT"):
                super().commit()

    return TracedConnection
