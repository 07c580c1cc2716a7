"""DuckDB's connection with Delta tables to read in place, by SQL of its own: no extension, nothing registered.

    from duckicelake import delta

    connection = delta.connect()
    connection.execute("FROM read_delta('/lake/orders', version => 3) WHERE day = '2026-11-22'")
    connection.execute('''FROM read_delta('/lake/orders', "timestamp" => TIMESTAMPTZ '2026-11-01 00:00:00Z')''')
    connection.execute("FROM delta_history('/lake/orders')")

The word timestamp has its quotes because DuckDB's parser asks for them. Every execution reads the log anew, also of a
prepared statement; a statement that names a table twice has the same version of it twice. Files that statistics or
partition values rule out aren't opened: what a statement asks of the rows is what DuckDB's own plan of it says. That
is known of what is executed by this connection, also by way of views and prepared statements; a relation (`sql`,
`query`) reads all files of its tables. For what is passed over, `now()` is a moment earlier than for the rows.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb
from duckdb import StatementType

from duckicelake.delta.duckdb.macros import Macros

_PLANNED: Final = frozenset(
    {
        StatementType.SELECT,
        StatementType.INSERT,
        StatementType.UPDATE,
        StatementType.DELETE,
        StatementType.MERGE_INTO,
        StatementType.COPY,
        StatementType.CREATE,
        StatementType.EXECUTE,
        StatementType.EXPLAIN,
    }
)
_EXPLAIN: Final = re.compile(r"\s*EXPLAIN(\s+ANALYZE)?(\s*\([^)]*\))?", re.IGNORECASE)
_VIEWS: Final = "SELECT 1 FROM duckdb_views() WHERE NOT internal AND contains(lower(sql), 'read_delta') LIMIT 1"


def connect(database: str | Path = ":memory:", *arguments: Any, **options: Any) -> "Connection":
    """As `duckdb.connect`, with `read_delta` and `delta_history`."""
    return install(duckdb.connect(database, *arguments, **options))


def install(connection: Any) -> "Connection":
    """Give them to a connection that is open, DuckDB's or one that acts as such, the first to its database."""
    return Connection(connection, Macros(connection))


class Connection:
    """DuckDB's connection; what isn't here is its own."""

    def __init__(self, connection: Any, macros: Macros) -> None:
        self._connection, self._macros = connection, macros
        self._views: tuple[int, bool] | None = None
        macros.define(connection)
        # DuckDB looks for the names of data frames in the frame that calls it, which now is one of this module.
        connection.execute("SET python_scan_all_frames = true")

    def execute(self, query: Any, parameters: object = None) -> Self:
        """Run one or several statements; the parameters are the last one's."""
        statements = self._connection.extract_statements(query) if isinstance(query, str) else [query]
        for each in statements[:-1]:
            self._run(each, ())
        for each in statements[-1:]:
            self._run(each, () if parameters is None else (parameters,))
        return self

    def cursor(self) -> "Connection":
        """One more connection to the database."""
        return Connection(self._connection.cursor(), self._macros)

    duplicate = cursor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._connection, name)

    def _run(self, statement: duckdb.Statement, given: Sequence[object]) -> None:
        with self._macros.statement() as bound:
            plan = self._plan(statement.query, given) if self._reads_delta(statement) else "[]"
            self._macros.explained(bound, plan)
            self._connection.execute(statement, *given)

    def _reads_delta(self, statement: duckdb.Statement) -> bool:
        """Whether it may, by a name in it, a view's, or one that it was prepared with."""
        named = "read_delta" in statement.query.lower()
        if statement.type == StatementType.ATTACH or (named and statement.type == StatementType.CREATE):
            self._macros.views_changed()
        if statement.type not in _PLANNED or named or statement.type == StatementType.EXECUTE:
            return statement.type in _PLANNED
        return self._has_views()

    def _has_views(self) -> bool:
        """Whether views may read Delta tables; asked seldom, as it takes its time where catalogs are large."""
        if self._views is None or self._views[0] != self._macros.changes:
            found = self._connection.execute(_VIEWS).fetchone() is not None
            self._views = self._macros.changes, found
        return self._views[1]

    def _plan(self, text: str, given: Sequence[object]) -> str:
        """DuckDB's plan, as JSON; an empty one for what it doesn't explain."""
        explaining = f"EXPLAIN (FORMAT json)\n{_EXPLAIN.sub('', text, count=1)}"
        try:
            rows = self._connection.execute(explaining, *given).fetchall()
        except (duckdb.ParserException, duckdb.NotImplementedException):
            return "[]"
        return next((plan for kind, plan in rows if kind == "physical_plan"), "[]")
