"""Change a lake's DuckLake format: stop writers, let one ATTACH of DuckDB 2 migrate the lake, and let writers go on.

DuckDB's own migration does the work; this module writes no DDL. A row in `duckicelake_format_change` refuses writers,
and opens the guard of `ducklake_metadata` for the ATTACH that names its token. The row counts only as long as the
session that made it lives, and only for a time.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import Connection, sql

from duckicelake.errors import FormatChangeError, UnavailableError, UnsupportedCatalogError
from duckicelake.lake.ducklake.database import build_attach_source, open_lake_session, quote_literal
from duckicelake.postgres.queries import Row, load_queries
from duckicelake.postgres.session import InterruptibleConnection

_SQL = load_queries("lake", "format_change")
_KEY: Final = 0x666D7463  # "fmtc"; migration 0045 has it, too. The other part is the lake's
_DRAIN_MARGIN_SECONDS: Final = 60
"""Seconds for which writers are refused at most after the drain's own time, if the command hangs."""
_POLL_SECONDS: Final = 0.2
_ATTACH_SETTING: Final = "duckicelake.format_change"
APPLICATION_NAME: Final = "duckicelake"


@dataclass(frozen=True, slots=True)
class Session:
    """A session in Postgres. pid: None for a prepared transaction. seconds: since its transaction began, if known.

    writes: whether it holds a lock of a writer. table: one of DuckLake's that it has locked.
    """

    pid: int | None
    user: str | None
    application: str | None
    address: str | None
    state: str | None
    seconds: int | None
    writes: bool
    table: str

    @property
    def is_ours(self) -> bool:
        """Whether a server or a command of duckicelake has the session."""
        return self.application == APPLICATION_NAME

    @property
    def identity(self) -> str:
        """What of it doesn't change."""
        if self.pid is None:
            return f"a prepared transaction that has locked {self.table} (pg_prepared_xacts)"
        parts = [f"pid {self.pid}", f"user {self.user}" if self.user else "", self.application or ""]
        parts += [f"from {self.address}" if self.address else ""]
        return ", ".join(part for part in parts if part)

    def __str__(self) -> str:
        """Give what `pg_stat_activity` has of it."""
        parts = [self.identity, self.state or ""]
        parts += [f"in a transaction for {self.seconds} s" if self.seconds is not None else ""]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Migrated:
    """The outcome of the ATTACH. backend: DuckDB's session."""

    at: datetime
    backend: int


class FormatChange:
    """A format change under way, held by one session of Postgres."""

    def __init__(self, connection: Connection[Row]) -> None:
        """Take over a connection that commits by itself and holds the lock."""
        self._connection = connection
        self._is_begun = False

    def begin(self, seconds: float) -> str:
        """Refuse writers from now on; return the token of the ATTACH.

        seconds: time for the writers under way to end.
        """
        with self._connection.transaction():
            self._connection.execute(_SQL.forget)
            ((token,),) = self._fetch(_SQL.begin, {"seconds": seconds + _DRAIN_MARGIN_SECONDS})
        self._is_begun = True
        return str(token)

    def wait_for_writers(self, seconds: float, note: Callable[[list[Session]], None]) -> list[Session]:
        """Wait until no session writes; return those that still write after so many seconds.

        note: called with the sessions that write, each time they are looked up.
        """
        until = time.monotonic() + seconds
        while True:
            writing = [session for session in self.find_lockers() if session.writes]
            note(writing)
            if not writing or time.monotonic() > until:
                return writing
            time.sleep(_POLL_SECONDS)

    def open(self, seconds: float) -> None:
        """Let the ATTACH with the token pass from now on, for so many seconds."""
        self._connection.execute(_SQL.open, {"seconds": seconds})

    def wait_for_attach(self, seconds: float, note: Callable[[list[Session]], None]) -> Migrated | None:
        """Wait until the ATTACH has migrated the lake; None if it hasn't within so many seconds.

        note: called with the sessions that the ATTACH waits for, each time they are looked up.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            rows = self._fetch(_SQL.progress)
            if not rows:
                return None
            migrated_at, migrated_by, _ = rows[0]
            if migrated_at is not None:
                return Migrated(migrated_at, migrated_by)
            note(self.find_blockers())
            time.sleep(_POLL_SECONDS)
        return None

    def close(self) -> Migrated | None:
        """Close the guard and let writers go on; return the outcome of an ATTACH that was as fast."""
        if not self._is_begun:
            return None
        rows = self._fetch(_SQL.close)
        self._is_begun = False
        return Migrated(*rows[0]) if rows and rows[0][0] is not None else None

    def find_lockers(self) -> list[Session]:
        """Find the sessions that hold locks on DuckLake's tables, those of readers included."""
        return [Session(*row) for row in self._fetch(_SQL.lockers)]

    def find_blockers(self) -> list[Session]:
        """Find the sessions that a migration waits for now."""
        pids = {pid for (pid,) in self._fetch(_SQL.blockers)}
        return [session for session in self.find_lockers() if session.pid in pids] if pids else []

    def find_attached(self, before: datetime, but: int | None) -> list[Session]:
        """Find the sessions that aren't duckicelake's and began before a moment, but for one."""
        return [Session(*row) for row in self._fetch(_SQL.others, {"before": before, "but": but})]

    def end_session(self, session: Session) -> bool:
        """Have Postgres end a session; False if it is over, or this login may not end it."""
        if session.pid is None:
            return False
        try:
            ((is_ended,),) = self._fetch(_SQL.end_session, {"pid": session.pid})
        except psycopg.errors.InsufficientPrivilege:
            return False
        return bool(is_ended)

    def read(self, query: str, parameters: dict[str, Any] | None = None) -> list[Row]:
        """Run a query of the checks."""
        return self._fetch(query, parameters)

    def _fetch(self, query: str, parameters: dict[str, Any] | None = None) -> list[Row]:
        return self._connection.execute(query, parameters).fetchall()


@contextmanager
def hold_format(url: str, *, exclusive: bool = True) -> Iterator[FormatChange]:
    """Hold the right to change the lake's format; on every way out of the block the guard is closed.

    Args:
        url: of the lake's database.
        exclusive: False only to look: several commands may look at once.

    Raises:
        FormatChangeError: another command holds it.
        UnavailableError: Postgres doesn't answer.

    """
    try:
        with InterruptibleConnection.connect(
            url, autocommit=True, connect_timeout=5, fallback_application_name=APPLICATION_NAME
        ) as connection:
            open_lake_session().pin(connection)
            if exclusive:
                _hold(connection)
            change = FormatChange(connection)
            try:
                yield change
            finally:
                if not connection.closed:
                    change.close()
    except psycopg.OperationalError as error:
        raise UnavailableError(f"Postgres does not answer: {error}; the guard closes by itself") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise UnsupportedCatalogError(
            f"the server's login lacks rights in Postgres ({error.diag.message_primary}): run this command with the "
            "login of the servers"
        ) from error


def _hold(connection: Connection[Row]) -> None:
    if connection.execute(_SQL.hold, {"key": _KEY}).fetchall() == [(True,)]:
        return
    holders = connection.execute(_SQL.holder, {"key": _KEY}).fetchall()
    by = ", ".join(f"pid {pid}, user {user}, since {since:%H:%M:%S}" for pid, user, _, since in holders)
    raise FormatChangeError(
        f"another `duckicelake migrate` is at it ({by or 'it has just ended'}): wait until it ends, or end its session "
        "with pg_terminate_backend"
    )


def build_migrating_attach(url: str, token: str, owner: str | None, alias: str = "lake") -> str:
    """Return the ATTACH statement that may migrate the lake.

    Args:
        url: of the lake's database.
        token: that of the opening.
        owner: the role that DuckLake's tables belong to, if the login isn't it: new tables must be its own, too.
        alias: what DuckDB calls the lake.

    """
    settings = [f"-c {_ATTACH_SETTING}={token}", *([f"-c role={_escape_option(owner)}"] if owner else [])]
    source = build_attach_source(url, {"options": " ".join(settings)})
    return f"ATTACH {quote_literal(source)} AS {sql.Identifier(alias).as_string(None)} (AUTOMATIC_MIGRATION TRUE);"


def _escape_option(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")  # libpq divides options at spaces
