"""DuckDB's connection that emits OpenLineage events for its statements."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Literal, Self

import duckdb
from openlineage.client import OpenLineageClient
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport
from openlineage.client.transport.noop import NoopTransport
from openlineage.client.transport.transport import Transport

from duckicelake.lineage.duckdb.events import Program, parse_parent
from duckicelake.lineage.duckdb.recorder import EventOutbox, StatementRecorder
from duckicelake.lineage.duckdb.statements import DuckStatement, split_statements

LITERALS: Final = "DUCKICELAKE_LINEAGE_LITERALS"
_CALL: Final = compile("duckicelake_lineage_call_()", "<duckicelake.lineage.duckdb>", "eval")


def connect(
    database: str | Path = ":memory:",
    *arguments: Any,
    client: OpenLineageClient | None = None,
    transport: Transport | None = None,
    catalog_uri: str | None = None,
    token: str | None = None,
    job_namespace: str | None = None,
    job_name: str | None = None,
    literals: Literal["mask", "keep"] | None = None,
    close_seconds: float = 5.0,
    **options: Any,
) -> "LineageConnection":
    """Open a connection as `duckdb.connect`, with events to `client`, `transport`, or the catalog at `catalog_uri`.

    Without any of them, OpenLineage's own configuration says where to (`OPENLINEAGE_URL`, `openlineage.yml`, …). A
    `catalog_uri` also gives tables of its lake the names that its own events have for them; `token` is for it. Jobs
    are in `job_namespace` (else `OPENLINEAGE_NAMESPACE`); their names begin with `job_name` (else the program's).
    Literals of SQL are masked unless `literals`, or DUCKICELAKE_LINEAGE_LITERALS, is "keep". `close` waits for at most
    `close_seconds`, whose former name is accepted, too.
    """
    sender = client or _open_client(transport, catalog_uri, token)
    program = Program(
        namespace=job_namespace or os.environ.get("OPENLINEAGE_NAMESPACE") or "duckdb",
        name=job_name or Path(sys.argv[0]).stem or "python",
        folder=str(Path.cwd()),
        parent=parse_parent(os.environ),
        literals=(literals or os.environ.get(LITERALS)) == "keep",
    )
    close_seconds = options.pop("patience", close_seconds)
    opened = duckdb.connect(database, *arguments, **options)
    outbox = None if isinstance(sender.transport, NoopTransport) else EventOutbox(sender)
    return LineageConnection(opened, StatementRecorder(opened, program, outbox, catalog_uri), close_seconds)


class LineageConnection:
    """DuckDB's connection. Attributes that aren't defined here are DuckDB's."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, recorder: StatementRecorder, close_seconds: float
    ) -> None:
        self._connection, self._recorder, self._close_seconds = connection, recorder, close_seconds
        self._closed = False

    def execute(self, query: Any, parameters: object = None) -> Any:
        """Run one or several statements. The parameters are for the last one. Returns None without a statement."""
        given = () if parameters is None else (parameters,)
        result = self._run(_find_caller(), self._connection.execute, query, given, {})
        return None if result is None else self

    def executemany(self, query: Any, parameters: object = None) -> Any:
        """Run the statement with each set of parameters, as one run."""
        given = () if parameters is None else (parameters,)
        result = self._run(_find_caller(), self._connection.executemany, query, given, {}, counting=False)
        return None if result is None else self

    def sql(self, query: Any, **options: Any) -> Any:
        """Make a relation of a query; run any other statement."""
        return self._run(_find_caller(), self._connection.sql, query, (), options, counting=False)

    def query(self, query: Any, **options: Any) -> Any:
        """Make a relation of a query; run any other statement."""
        return self._run(_find_caller(), self._connection.query, query, (), options, counting=False)

    def begin(self) -> Self:
        """Begin a transaction."""
        self._run(None, self._connection.execute, "BEGIN", (), {})
        return self

    def commit(self) -> Self:
        """Commit the transaction, and send the events of its statements."""
        self._run(None, self._connection.execute, "COMMIT", (), {})
        return self

    def rollback(self) -> Self:
        """Roll the transaction back, and send that as the end of its statements."""
        self._run(None, self._connection.execute, "ROLLBACK", (), {})
        return self

    def cursor(self) -> "LineageConnection":
        """Open another connection to the database, which also sends events."""
        opened = self._connection.cursor()
        return LineageConnection(opened, self._recorder.beside(opened), self._close_seconds)

    duplicate = cursor

    def close(self) -> None:
        """Close the connection; the last one waits until all events are sent, or for `close_seconds`."""
        self._connection.close()
        if not self._closed:
            self._closed = True
            self._recorder.close(self._close_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self._recorder.restore_result()
        return getattr(self._connection, name)

    def _run(
        self,
        frame: FrameType | None,
        function: Callable[..., Any],
        query: Any,
        given: Sequence[Any],
        options: Mapping[str, Any],
        *,
        counting: bool = True,
    ) -> Any:
        statements = self._recorder.quietly(lambda: split_statements(self._connection, query))
        if not statements:
            return _call_as(frame, partial(function, query, *given, **options))
        for statement in statements[:-1]:
            self._one(frame, partial(self._connection.execute, statement.text), statement, counting=False)
        last = query if len(statements) == 1 else statements[-1].text
        return self._one(frame, partial(function, last, *given, **options), statements[-1], counting=counting)

    def _one(
        self, frame: FrameType | None, call: Callable[[], Any], statement: DuckStatement, *, counting: bool
    ) -> Any:
        run = self._recorder.begin(statement)
        try:
            result = _call_as(frame, call)
        except BaseException as error:
            self._recorder.record_failure(statement, run, error)
            raise
        self._recorder.done(statement, run, counting=counting)
        return result


def _open_client(transport: Transport | None, catalog_uri: str | None, token: str | None) -> OpenLineageClient:
    if transport is None and catalog_uri is not None:
        config = HttpConfig(url=catalog_uri.rstrip("/"), endpoint="api/v1/lineage")
        if token:
            config.auth = ApiKeyTokenProvider({"apiKey": token})
        transport = HttpTransport(config)
    return OpenLineageClient(transport=transport)


def _find_caller() -> FrameType | None:
    """Return the frame of the user's code, two calls up."""
    return sys._getframe(2)  # noqa: SLF001 - inspect.currentframe is the same, twice as long


def _call_as(frame: FrameType | None, call: Callable[[], Any]) -> Any:
    """Call a function from the user's frame: DuckDB looks there for variables that a query names."""
    if frame is None:
        return call()
    names = {**frame.f_locals, "duckicelake_lineage_call_": call}
    return eval(_CALL, frame.f_globals, names)  # noqa: S307 - our own code, in the user's names
