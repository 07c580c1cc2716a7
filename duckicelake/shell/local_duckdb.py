"""Run SQL in a DuckDB of the shell's own process, in which a lake is attached as `lake`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import duckdb

from duckicelake.errors import BadInputError, MissingRequirementError, NotAllowedError
from duckicelake.extras import import_extra

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake

_READING: Final = frozenset({"SELECT", "EXPLAIN", "SET", "LOAD", "PREPARE", "EXECUTE", "TRANSACTION"})
"""Types of statements that change no lake; a lake that is read-only is attached so, too."""
_WAIT_SECONDS: Final = 0.2
LAKE: Final = "lake"


class LocalDuckDB:
    """A DuckDB with some of its extensions. read_only_by: what forbids changes, as `profile work`."""

    def __init__(self, extensions: Sequence[str], read_only_by: str | None) -> None:
        self._connection = duckdb.connect()
        self._read_only_by = read_only_by
        self._thread = ThreadPoolExecutor(1, "duckdb")  # so that Ctrl-C reaches the main thread at once
        for extension in extensions:
            self._load(extension)

    def close(self) -> None:
        """Close DuckDB."""
        self._thread.shutdown()
        self._connection.close()

    def attach(self, source: str, options: Mapping[str, str]) -> None:
        """Attach a lake in place of the one that is attached. options: of ATTACH, quoted. Raises BadInputError."""
        given = dict(options)
        if self._read_only_by is not None:
            given["READ_ONLY"] = ""
        listed = f" ({', '.join(f'{name} {value}'.strip() for name, value in given.items())})" if given else ""
        for statement in ("USE memory", f"DETACH DATABASE IF EXISTS {LAKE}"):
            self.run_own(statement)
        self.run_own(f"ATTACH {quote(source)} AS {LAKE}{listed}")

    def run(self, sql: str) -> Any:
        """Run a statement and return its rows as a `pyarrow.Table`; after Ctrl-C raise KeyboardInterrupt.

        Raises BadInputError for what DuckDB refuses, NotAllowedError for a change where the lake is read-only.
        """
        self._check(sql)
        return self.run_own(sql)

    def run_own(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Run a statement of the shell's own, which isn't checked."""
        import_extra("pyarrow")
        running = self._thread.submit(lambda: self._connection.execute(sql, parameters).to_arrow_table())
        try:
            while True:
                try:
                    return running.result(_WAIT_SECONDS)
                except TimeoutError:
                    continue
        except KeyboardInterrupt:
            self._connection.interrupt()
            running.exception()
            raise
        except (duckdb.Error, RuntimeError) as error:
            raise BadInputError(explain_error(error)) from error

    def find_rows(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a question of the shell's own."""
        rows: list[dict[str, Any]] = self.run_own(sql, parameters).to_pylist()
        return rows

    def _check(self, sql: str) -> None:
        if self._read_only_by is None:
            return
        try:
            kinds = [statement.type.name for statement in duckdb.extract_statements(sql)]
        except duckdb.Error as error:
            raise BadInputError(explain_error(error)) from error
        for kind in kinds:
            if kind not in _READING:
                raise NotAllowedError(f"{self._read_only_by} is read-only: {kind} is refused")

    def _load(self, extension: str) -> None:
        try:
            self._connection.execute(f"LOAD {extension}")
        except duckdb.Error:
            self._import(extension)

    def _import(self, extension: str) -> None:
        try:
            from duckdb_extensions import import_extension

            import_extension(extension, con=self._connection)
            self._connection.execute(f"LOAD {extension}")
        except (ImportError, duckdb.Error, OSError) as error:
            raise MissingRequirementError(
                f"SQL on this lake needs DuckDB's extension {extension}: pip install 'duckicelake[duckdb]'"
            ) from error


def attach_iceberg(lake: Lake) -> LocalDuckDB:
    """Attach another Iceberg REST catalog. Raises MissingRequirementError, BadInputError."""
    connection = lake.client.connection
    engine = LocalDuckDB(("avro", "httpfs", "iceberg"), connection.read_only_by)
    token = lake.client.get_token()
    login = {"AUTHORIZATION_TYPE": "'none'"} if token is None else {"TOKEN": quote(token)}
    options = {"TYPE": "iceberg", "ENDPOINT": quote(connection.uri.rstrip("/")), **login}
    engine.attach(connection.warehouse or "", options)
    for namespace in lake.client.namespaces():  # without a schema in the search path, DuckDB finds none of the others
        engine.run_own(f"USE {LAKE}.{quote_identifier('.'.join(namespace))}")
        break
    return engine


def explain_error(error: Exception) -> str:
    """Return the message of an error of DuckDB without the statement that it repeats, and without HTML."""
    message = str(error).split("\n\nLINE ", 1)[0]
    if "<html" in message.lower():
        title = message.partition("<title>")[2].partition("</title>")[0]
        return f"the catalog's answer to DuckDB is a page in HTML: {title or 'without a title'}"
    return message


def quote(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"


def quote_identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'
