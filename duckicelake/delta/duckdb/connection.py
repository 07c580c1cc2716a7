"""DuckDB's connection with `read_delta` and `delta_history`, bound by SQL: no extension, nothing registered."""

import re
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import duckdb
from duckdb import StatementType
from duckdb.func import FunctionNullHandling

from duckicelake.delta.duckdb.filters import (
    ColumnBounds,
    PlanNode,
    build_condition,
    build_partition_bounds,
    build_statistics_bounds,
    read_scan_filters,
)
from duckicelake.delta.duckdb.log import DeltaTable, build_history_query, escape_pattern, open_table, read_live_files
from duckicelake.delta.duckdb.scan import build_probe, build_scan, split_parts
from duckicelake.errors import CatalogError, InvalidRequestError

_QUARTER: Final = 15 * 60
_READ_DELTA: Final = """
    CREATE OR REPLACE TEMP MACRO read_delta(path, version := NULL, "timestamp" := NULL) AS TABLE
    FROM query(duckicelake_read_delta(
        path::VARCHAR, version::BIGINT, epoch_ms("timestamp"::TIMESTAMPTZ), current_setting('TimeZone')))
"""
_DELTA_HISTORY: Final = """
    CREATE OR REPLACE TEMP MACRO delta_history(path) AS TABLE FROM query(duckicelake_delta_history(path::VARCHAR))
"""
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


class DeltaCall(NamedTuple):
    """A call of `read_delta` in a statement."""

    path: str
    version: int | None
    timestamp_ms: int | None


@dataclass(slots=True)
class BoundCalls:
    """A statement while DuckDB binds it: its tables, and the filters of each scan of a call."""

    tables: dict[DeltaCall, DeltaTable] = field(default_factory=dict)
    calls: list[DeltaCall] = field(default_factory=list)
    scans: dict[DeltaCall, list[list[PlanNode]]] = field(default_factory=dict)
    probing: bool = True
    quarter: int = 0
    error: CatalogError | None = None


class DeltaMacros:
    """Answers the macros of one database. connection: any to it; it stays open.

    A statement that is bound outside of `statement`, as by a relation, reads all files of its tables. changes: the
    number of times that views which may call the macros were added.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, clock: Callable[[], float] = time.time) -> None:
        """clock: returns seconds since 1970."""
        self._connection, self._clock = connection.cursor(), clock
        self.changes = 0
        self._here = threading.local()
        folder = tempfile.mkdtemp(prefix="duckicelake-delta-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._probe = str(Path(folder, "probe.parquet"))
        self._connection.execute(f"COPY (SELECT 1 AS nothing) TO '{escape_pattern(self._probe)}'")
        _create(connection, "duckicelake_read_delta", self.read_delta, ["VARCHAR", "BIGINT", "BIGINT", "VARCHAR"])
        _create(connection, "duckicelake_delta_history", self.delta_history, ["VARCHAR"])

    def define(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Define the macros in one connection. They aren't stored in its database."""
        for macro in (_READ_DELTA, _DELTA_HISTORY):
            connection.execute(macro)

    def views_changed(self) -> None:
        self.changes += 1

    @contextmanager
    def statement(self) -> Iterator[BoundCalls]:
        """Yield a statement, to be explained first and run after `explain_calls`.

        Errors of the block are raised unchanged.
        """
        self._here.bound = bound = BoundCalls(quarter=self._quarter())
        try:
            yield bound
        except duckdb.Error:
            if bound.error is None:
                raise
            raise bound.error from None
        finally:
            self._here.bound = None

    def explain_calls(self, bound: BoundCalls, plan: str) -> None:
        """Read the statement's filters from its plan. From now on its calls skip files."""
        bound.probing = False
        found: dict[int, list[list[PlanNode]]] = {}
        for number, nodes in read_scan_filters(self._connection.cursor(), plan):
            found.setdefault(number, []).append(nodes)
        for number, call in enumerate(bound.calls):
            # A call whose scan isn't in the plan may still run: it needs all files.
            bound.scans.setdefault(call, []).extend(found.get(number, [[]]))

    def read_delta(self, path: str | None, version: int | None, timestamp_ms: int | None, zone: str) -> str:
        """Build the query for a table's rows."""
        with self._answer("read_delta", path) as bound:
            call = DeltaCall(str(path), version, timestamp_ms)
            if call not in bound.tables:
                bound.tables[call] = open_table(self._connection.cursor(), *call)
            table = bound.tables[call]
            if bound.probing:
                bound.calls.append(call)
                return build_probe(table, len(bound.calls) - 1, self._probe)
            files = read_live_files(table, build_condition(self._scans(bound, call), _build_bounds(table)))
            return build_scan(table, split_parts(table, files, zone), self._probe)

    def _scans(self, bound: BoundCalls, call: DeltaCall) -> list[list[PlanNode]]:
        """Return the filters of each scan; none if `current_date` may have changed meanwhile in any time zone."""
        return bound.scans.get(call, [[]]) if bound.quarter == self._quarter() else [[]]

    def _quarter(self) -> int:
        return int(self._clock() // _QUARTER)

    def delta_history(self, path: str | None) -> str:
        """Build the query for the history of commits."""
        with self._answer("delta_history", path):
            return build_history_query(self._connection.cursor(), str(path))

    @contextmanager
    def _answer(self, name: str, path: str | None) -> Iterator[BoundCalls]:
        """Yield the statement being bound, and keep the error in it.

        DuckDB would give only the text of an error that is raised here.
        """
        bound: BoundCalls = getattr(self._here, "bound", None) or BoundCalls(probing=False)
        try:
            if path is None:
                raise InvalidRequestError(f"{name} needs a path, and got NULL")
            yield bound
        except CatalogError as error:
            bound.error = error
            raise


def _create(connection: duckdb.DuckDBPyConnection, name: str, answer: Callable[..., str], types: list[Any]) -> None:
    connection.create_function(
        name, answer, types, "VARCHAR", null_handling=FunctionNullHandling.SPECIAL, side_effects=True
    )


def _build_bounds(table: DeltaTable) -> list[ColumnBounds]:
    partitions = set(table.metadata.partition_columns)
    return [
        build_partition_bounds(column) if column.name in partitions else build_statistics_bounds(column)
        for column in table.columns
    ]


def connect(database: str | Path = ":memory:", *arguments: Any, **options: Any) -> "DeltaConnection":
    """Open a connection like `duckdb.connect`, with `read_delta` and `delta_history`."""
    return install(duckdb.connect(database, *arguments, **options))


def install(connection: Any) -> "DeltaConnection":
    """Add `read_delta` and `delta_history` to an open connection of DuckDB's, or one that acts like it."""
    return DeltaConnection(connection, DeltaMacros(connection))


class DeltaConnection:
    """DuckDB's connection. Attributes that aren't defined here are DuckDB's."""

    def __init__(self, connection: Any, macros: DeltaMacros) -> None:
        self._connection, self._macros = connection, macros
        self._views: tuple[int, bool] | None = None
        macros.define(connection)
        # DuckDB looks for data frames in its caller's frame, which is now one of this module.
        connection.execute("SET python_scan_all_frames = true")

    def execute(self, query: Any, parameters: object = None) -> Self:
        """Run one or several statements. The parameters are for the last one."""
        statements = self._connection.extract_statements(query) if isinstance(query, str) else [query]
        for statement in statements[:-1]:
            self._run(statement, ())
        for last in statements[-1:]:
            self._run(last, () if parameters is None else (parameters,))
        return self

    def cursor(self) -> "DeltaConnection":
        """Open another connection to the database."""
        return DeltaConnection(self._connection.cursor(), self._macros)

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
            self._macros.explain_calls(bound, plan)
            self._connection.execute(statement, *given)

    def _reads_delta(self, statement: duckdb.Statement) -> bool:
        """Return whether a statement may read Delta tables, by its names, its views, or its prepared statement."""
        named = "read_delta" in statement.query.lower()
        if statement.type == StatementType.ATTACH or (named and statement.type == StatementType.CREATE):
            self._macros.views_changed()
        if statement.type not in _PLANNED or named or statement.type == StatementType.EXECUTE:
            return statement.type in _PLANNED
        return self._has_views()

    def _has_views(self) -> bool:
        """Return whether views may read Delta tables. Rarely asked, since it is slow in large catalogs."""
        if self._views is None or self._views[0] != self._macros.changes:
            found = self._connection.execute(_VIEWS).fetchone() is not None
            self._views = self._macros.changes, found
        return self._views[1]

    def _plan(self, text: str, given: Sequence[object]) -> str:
        """Return DuckDB's plan as JSON; empty if DuckDB doesn't explain the statement."""
        explaining = f"EXPLAIN (FORMAT json)\n{_EXPLAIN.sub('', text, count=1)}"
        try:
            rows = self._connection.execute(explaining, *given).fetchall()
        except (duckdb.ParserException, duckdb.NotImplementedException):
            return "[]"
        return next((plan for kind, plan in rows if kind == "physical_plan"), "[]")
