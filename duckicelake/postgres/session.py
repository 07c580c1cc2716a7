"""How connections are made: parameters, JSON, settings pinned for every session, and checks of a connection."""

import select
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from threading import Lock
from typing import Any, Final

import orjson
import psycopg
from psycopg import AsyncConnection, Connection, Cursor, sql, waiting
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import ProtocolViolation
from psycopg.generators import fetch_many
from psycopg.pq import TransactionStatus
from psycopg.types.json import JsonDumper, set_json_dumps, set_json_loads
from psycopg_pool import ConnectionPool
from psycopg_pool.pool import AddConnection

from duckicelake.errors import UnsupportedCatalogError
from duckicelake.postgres.frozen_sessions import UNLIMITED_KEY
from duckicelake.postgres.pipeline import DeferredConnection
from duckicelake.postgres.queries import Row

_LOST_AFTER_MS: Final = 30_000
LISTENER_LOST_AFTER_MS: Final = 10_000
"""Milliseconds within which Postgres's machine must acknowledge what it is sent, or the connection counts as lost.
Keepalives don't notice that: they go only over connections without unacknowledged data. TCP tries for 15 minutes."""
_CHECK_SECONDS: Final = 5.0
"""Seconds for an answer to a check of the connection."""
_CONNECTION_DEFAULTS: Final[Mapping[str, Any]] = {
    "connect_timeout": 5,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "fallback_application_name": "duckicelake",  # distinguishes our sessions from DuckDB's
    "target_session_attrs": "primary",  # of several hosts, or of one that changes roles, never a standby
}

PINNED_SETTINGS: Final[Mapping[str, str]] = {
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "backslash_quote": "safe_encoding",
    "extra_float_digits": "1",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "quote_all_identifiers": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "exit_on_error": "off",
    "lock_timeout": "0",
    "idle_session_timeout": "0",
}
"""Settings that any login may set. `search_path` is pinned beside them: see `PinnedSession`."""
_FIND_SCHEMA_SQL: Final = sql.SQL(
    """\
SELECT set_config('search_path', coalesce(quote_ident(coalesce(
    (SELECT name FROM unnest(current_schemas(false)
                             || CASE WHEN source <> 'client' THEN ARRAY['public'::name] END)
         WITH ORDINALITY AS s (name, ordinal)
     WHERE to_regclass(quote_ident(name) || {marker}) IS NOT NULL ORDER BY ordinal LIMIT 1),
    nullif(current_schema(), 'pg_catalog'), CASE WHEN source <> 'client' THEN 'public' END))
    || ', pg_temp', setting), false)
FROM pg_settings WHERE name = 'search_path'"""
)
"""Set the search path to the first schema in it that has the marker table. Unless the URL gives the path, `public`
follows it."""
_TRANSACTION_TIMEOUT_VERSION: Final = 17_00_00
"""The first version of Postgres that has this setting."""
_CHECK_ROUNDS: Final = 3
_SHARED_SESSION_MESSAGE: Final = (
    "the database's address is a pooler's that shares sessions between transactions (pgbouncer's pool_mode = "
    "transaction), but the server needs its own for settings, prepared statements, LISTEN and advisory locks: "
    "use pool_mode = session, or Postgres's own address"
)
MAX_ENTERED_PATHS: Final = 32
"""Schemas after which a connection is replaced. Postgres keeps tables, functions and plans of each in the session, some
0.9 MB, and looks through all plans at each change of a table. With sessions that lived on, the 500th warehouse took 16
times as long to make as the first."""
ConnectFunction = Callable[[], AbstractContextManager[Connection[Any]]]


class InterruptibleConnection(Connection[Row]):
    """A connection that runs statements after Ctrl-C, too.

    psycopg cancels the statement. Where Ctrl-C came into its own code, it leaves the answer unread, and refuses every
    later statement ("another command is already in progress").
    """

    def wait(self, gen: PQGen[Any], *args: Any, **options: Any) -> Any:
        """Run an exchange with Postgres to its end; after Ctrl-C, read what is left of it."""
        try:
            return super().wait(gen, *args, **options)
        except KeyboardInterrupt:
            self._read_rest()
            raise

    def _read_rest(self) -> None:
        if self.closed or self.pgconn.transaction_status != TransactionStatus.ACTIVE:
            return
        try:
            waiting.wait(fetch_many(self.pgconn), self.pgconn.socket, timeout=_CHECK_SECONDS)
        except psycopg.Error:
            self.pgconn.finish()


def build_parameters(url: str, lost_after: int = _LOST_AFTER_MS) -> dict[str, Any]:
    """Return the parameters of connections that the URL leaves out: the host to choose, and when to give up on it."""
    given = conninfo_to_dict(url)
    defaults = {**_CONNECTION_DEFAULTS, "tcp_user_timeout": lost_after}
    return {name: value for name, value in defaults.items() if name not in given}


def build_search_path(schema: str) -> str:
    """Return the search path of a session that has this schema."""
    return f"{sql.Identifier(schema).as_string(None)}, pg_temp"


def build_schema_url(url: str, schema: str) -> str:
    """Return the connection string whose sessions have this schema first, whatever the URL's own options say."""
    name = sql.Identifier(schema).as_string(None).replace("\\", "\\\\").replace(" ", "\\ ")
    options = conninfo_to_dict(url).get("options")
    return make_conninfo(url, options=f"{options or ''} -csearch_path={name}".strip())


def connect_for_check(url: str) -> DeferredConnection:
    """Connect outside a pool, to check what Postgres answers within seconds; statements commit by themselves."""
    connection = DeferredConnection.connect(url, autocommit=True, **build_parameters(url))
    connection.answer_seconds = _CHECK_SECONDS
    return connection


class LifoPool(ConnectionPool[DeferredConnection]):
    """Hands out the connection that was returned last: its session has the most frequent statements prepared.

    Connections that the server has closed, as all are after a restart of Postgres, are replaced and not handed out.
    psycopg's own check pauses for about 1 s once a request has met two of them. Connections that have been in many
    schemas are replaced, too: see `MAX_ENTERED_PATHS`.
    """

    def _get_ready_connection(self, timeout: float | None) -> DeferredConnection | None:
        while True:
            self._pool.rotate()
            connection = super()._get_ready_connection(timeout)
            if connection is None or not is_closed_by_server(connection):
                return connection
            connection.close()
            self._stats[self._CONNECTIONS_LOST] += 1
            self.run_task(AddConnection(self))

    def _return_connection(self, conn: DeferredConnection, from_getconn: bool) -> None:
        if len(conn.entered_paths) > MAX_ENTERED_PATHS:
            conn._expire_at = 0.0  # noqa: SLF001
        super()._return_connection(conn, from_getconn)


def is_closed_by_server(connection: Connection[Any]) -> bool:
    """Return whether an idle connection has ended, without a round trip: nothing else makes one readable."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def check_connection_open(connection: Connection[Any]) -> None:
    """Refuse a connection that the server has closed; the pool's check before a waiting request gets it."""
    if is_closed_by_server(connection):
        connection.close()
        raise psycopg.OperationalError("the server closed an idle connection")


class _DictDumper(JsonDumper):
    """Dumps dicts by orjson. JsonDumper uses the standard library, which takes ten times as long, whatever is set."""

    _dumps = orjson.dumps


def adapt_json(connection: Connection[Any]) -> None:
    """Let `json` columns arrive as Python values, and dicts be passed for them."""
    set_json_dumps(orjson.dumps, connection)
    set_json_loads(orjson.loads, connection)
    connection.adapters.register_dumper(dict, _DictDumper)


def disable_timeout(cursor: Cursor[Row]) -> None:
    """Let the statements of this transaction run for any time: a migration builds indexes."""
    cursor.execute("SET LOCAL statement_timeout TO 0")
    cursor.execute("SELECT pg_advisory_xact_lock_shared(%s, 0)", [UNLIMITED_KEY])
    if isinstance(cursor.connection, DeferredConnection):
        cursor.connection.answer_seconds = None


class PinnedSession:
    """Settings and the schema that all connections of one process to one database share.

    The first connection looks for the schema that holds the marker table. All later ones use the same schema: one that
    appears before it in the search path can't divide a running server between two schemas.
    """

    def __init__(self, marker_table: str, schema: str | None = None, **settings: str) -> None:
        """Pin further settings, as `jit` for the pool.

        marker_table: the schema that has such a table is pinned. schema: is pinned instead, whatever it has.
        """
        self._marker_table = marker_table
        self._find_schema_sql = _FIND_SCHEMA_SQL.format(marker=sql.Literal(f".{marker_table}")).as_string(None)
        self._settings = {**PINNED_SETTINGS, **settings}
        self._search_path = None if schema is None else build_search_path(schema)
        self._lock = Lock()

    def in_schema(self, schema: str) -> "PinnedSession":
        """Return a session with the same settings, and this schema instead of the first one's."""
        return PinnedSession(self._marker_table, schema, **self._settings)

    def enter(self, connection: DeferredConnection) -> None:
        """Give a pinned connection without an open transaction this session's schema: one round trip."""
        connection.autocommit = True
        try:
            self._set_path(connection)
        finally:
            if not connection.closed:
                connection.autocommit = False

    def pin(self, connection: Connection[Any]) -> None:
        """Pin the settings for a connection without an open transaction: two round trips, three for the first."""
        is_autocommit = connection.autocommit
        if not is_autocommit:
            connection.autocommit = True
        try:
            connection.execute(self._statement(connection))
            self._set_path(connection)
        finally:
            if not is_autocommit and not connection.closed:
                connection.autocommit = False

    def _set_path(self, connection: Connection[Any]) -> None:
        path = self._search_path
        if path is None:
            path = self._adopt_search_path(str(connection.execute(self._find_schema_sql).fetchall()[0][0]))
        connection.execute(_build_set_path(path))
        if isinstance(connection, DeferredConnection):
            connection.session = self
            connection.entered_paths.add(path)

    async def pin_async(self, connection: AsyncConnection[Any]) -> None:
        """Do as `pin`, for a connection of an event loop that commits by itself."""
        await connection.execute(self._statement(connection))
        path = self._search_path
        if path is None:
            answer = await connection.execute(self._find_schema_sql)
            path = self._adopt_search_path(str((await answer.fetchall())[0][0]))
        await connection.execute(_build_set_path(path))

    def _adopt_search_path(self, found: str) -> str:
        """Store the first search path that a connection finds; return the stored one."""
        with self._lock:
            self._search_path = self._search_path or found
            return self._search_path

    def _statement(self, connection: Connection[Any] | AsyncConnection[Any]) -> sql.Composed:
        parts = [sql.SQL("SET {} TO {}").format(sql.Identifier(n), sql.Literal(v)) for n, v in self._settings.items()]
        if connection.info.server_version >= _TRANSACTION_TIMEOUT_VERSION:
            parts.append(sql.SQL("SET transaction_timeout TO 0").format())
        return sql.SQL("; ").join(parts)


def _build_set_path(path: str) -> sql.Composed:
    return sql.SQL("SET search_path TO {}").format(sql.SQL(path))


def check_database(connection: Connection[Any]) -> None:
    """Raise UnsupportedCatalogError for a database that can't hold every name, or whose sessions fire no triggers."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in (None, "UTF8"):
        raise UnsupportedCatalogError(
            f"the database is in the encoding {encoding}, in which not every text can be kept: "
            "make one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )
    row = connection.execute("SELECT current_setting('session_replication_role')").fetchone()
    if row is not None and row[0] == "replica":
        raise UnsupportedCatalogError(
            "session_replication_role is replica here, so no trigger fires and DuckDB could delete files that are "
            "needed: ALTER DATABASE or ALTER ROLE … RESET session_replication_role"
        )


def check_sessions(connect: ConnectFunction) -> None:
    """Raise UnsupportedCatalogError if transactions of two connections meet in one session.

    connect: makes connections that commit by themselves.
    """
    with connect() as first:
        if first.info.backend_pid == _read_session_id(first):
            return  # Postgres itself: a pooler would have given an id of its own
        with connect() as second:
            if any(_is_session_shared(first, second) for _ in range(_CHECK_ROUNDS)):
                raise UnsupportedCatalogError(_SHARED_SESSION_MESSAGE)


def _is_session_shared(first: Connection[Any], second: Connection[Any]) -> bool:
    """Return whether both transactions share a session, or the first keeps the second from having its own again."""
    before = _read_session_id(first)
    try:
        with second.transaction():
            return before == _read_session_id(second) or before != _read_session_id(first)
    except ProtocolViolation:  # transactions of several statements are refused: pool_mode = statement
        return True


def _read_session_id(connection: Connection[Any]) -> int | None:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return None if row is None else int(row[0])
