"""What DuckDB asks while it binds `read_delta` and `delta_history`: the SQL that stands for a call.

What a macro's columns and files are must be known when it is bound, and table functions take constants only: SQL alone
can't get them from a log. But `query(text)` takes any constant text. So a call becomes `query(duckicelake_read_delta(
path, …))`, and that function, in Python, has the log read by SQL (`sql/`) on another connection to the same database,
with its secrets; Python decides which files of the log those are, decodes deletion vectors, and writes the SQL of the
scan. DuckDB binds plans that read files anew at each execution, also of a prepared statement, so all of ours do.
"""

import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
from duckdb.func import FunctionNullHandling

from duckicelake.delta.duckdb.bounds import Bounds, partition_bounds, statistics_bounds
from duckicelake.delta.duckdb.filters import Node, condition, scan_filters
from duckicelake.delta.duckdb.log import Table, history_query, live_files, open_table
from duckicelake.delta.duckdb.parts import parts_of
from duckicelake.delta.duckdb.scan import probe, scan
from duckicelake.delta.duckdb.store import escaped
from duckicelake.errors import CatalogError, InvalidRequest

_QUARTER: Final = 15 * 60
_READ_DELTA: Final = """
    CREATE OR REPLACE TEMP MACRO read_delta(path, version := NULL, "timestamp" := NULL) AS TABLE
    FROM query(duckicelake_read_delta(
        path::VARCHAR, version::BIGINT, epoch_ms("timestamp"::TIMESTAMPTZ), current_setting('TimeZone')))
"""
_DELTA_HISTORY: Final = """
    CREATE OR REPLACE TEMP MACRO delta_history(path) AS TABLE FROM query(duckicelake_delta_history(path::VARCHAR))
"""


class Call(NamedTuple):
    """What a statement asks for."""

    path: str
    version: int | None
    timestamp_ms: int | None


@dataclass(slots=True)
class Bound:
    """A statement while DuckDB binds it: the tables it reads, and what each scan of a call asks of its rows."""

    tables: dict[Call, Table] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    scans: dict[Call, list[list[Node]]] = field(default_factory=dict)
    probing: bool = True
    quarter: int = 0
    error: CatalogError | None = None


class Macros:
    """Answers of one database's macros; `connection` may be any to it, and stays open.

    A statement that is bound outside of `statement`, as by a relation, reads every file of its tables. `changes`
    counts how often there have come views that may call them.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since 1970."""
        self._connection, self._clock = connection.cursor(), clock
        self.changes = 0
        self._here = threading.local()
        folder = tempfile.mkdtemp(prefix="duckicelake-delta-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._probe = str(Path(folder, "probe.parquet"))
        self._connection.execute(f"COPY (SELECT 1 AS nothing) TO '{escaped(self._probe)}'")
        _create(connection, "duckicelake_read_delta", self.read_delta, ["VARCHAR", "BIGINT", "BIGINT", "VARCHAR"])
        _create(connection, "duckicelake_delta_history", self.delta_history, ["VARCHAR"])

    def define(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make the macros known to one connection; they aren't stored with its database."""
        for macro in (_READ_DELTA, _DELTA_HISTORY):
            connection.execute(macro)

    def views_changed(self) -> None:
        self.changes += 1

    @contextmanager
    def statement(self) -> Iterator[Bound]:
        """A statement, to be explained first, and run after `explained`; what fails here is raised as it is."""
        self._here.bound = bound = Bound(quarter=self._quarter())
        try:
            yield bound
        except duckdb.Error:
            if bound.error is None:
                raise
            raise bound.error from None
        finally:
            self._here.bound = None

    def explained(self, bound: Bound, plan: str) -> None:
        """Take from the plan what the statement asks of rows: from now on its calls pass files over."""
        bound.probing = False
        found: dict[int, list[list[Node]]] = {}
        for number, nodes in scan_filters(self._connection.cursor(), plan):
            found.setdefault(number, []).append(nodes)
        for number, call in enumerate(bound.calls):
            # A call whose scan isn't in the plan may still be run: it asks for everything.
            bound.scans.setdefault(call, []).extend(found.get(number, [[]]))

    def read_delta(self, path: str | None, version: int | None, timestamp_ms: int | None, zone: str) -> str:
        """The query for a table's rows."""
        with self._answer("read_delta", path) as bound:
            call = Call(str(path), version, timestamp_ms)
            if call not in bound.tables:
                bound.tables[call] = open_table(self._connection.cursor(), *call)
            table = bound.tables[call]
            if bound.probing:
                bound.calls.append(call)
                return probe(table, len(bound.calls) - 1, self._probe)
            files = live_files(table, condition(self._scans(bound, call), _bounds(table)))
            return scan(table, parts_of(table, files, zone), self._probe)

    def _scans(self, bound: Bound, call: Call) -> list[list[Node]]:
        """What is asked of rows; nothing if meanwhile, by clocks of any zone, `current_date` may be another."""
        return bound.scans.get(call, [[]]) if bound.quarter == self._quarter() else [[]]

    def _quarter(self) -> int:
        return int(self._clock() // _QUARTER)

    def delta_history(self, path: str | None) -> str:
        """The query for what commits say of themselves."""
        with self._answer("delta_history", path):
            return history_query(self._connection.cursor(), str(path))

    @contextmanager
    def _answer(self, name: str, path: str | None) -> Iterator[Bound]:
        """The statement being bound, which keeps the error: of one raised here, DuckDB would give only the text."""
        bound: Bound = getattr(self._here, "bound", None) or Bound(probing=False)
        try:
            if path is None:
                raise InvalidRequest(f"{name} needs a path, and got NULL")
            yield bound
        except CatalogError as error:
            bound.error = error
            raise


def _create(connection: duckdb.DuckDBPyConnection, name: str, answer: Callable[..., str], types: list[Any]) -> None:
    connection.create_function(
        name, answer, types, "VARCHAR", null_handling=FunctionNullHandling.SPECIAL, side_effects=True
    )


def _bounds(table: Table) -> list[Bounds]:
    partitions = set(table.metadata.partition_columns)
    return [partition_bounds(each) if each.name in partitions else statistics_bounds(each) for each in table.columns]
