"""Options of logins from the settings, and the task that ends logins and covers new tables of inlined rows."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final
from weakref import WeakKeyDictionary

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import DeadlockDetected, LockNotAvailable

from duckicelake.catalog.context.background_threads import run_in_thread
from duckicelake.catalog.context.services import Services
from duckicelake.changelog.entries import SNAPSHOTS
from duckicelake.cli.serve.hooks import FeatureService, TaskReporter
from duckicelake.duckdb_login.attachment import LoginOptions
from duckicelake.duckdb_login.logins import (
    LoginRole,
    end_login,
    end_overstaying,
    find_place,
    is_any_live,
    list_roles,
    read_reach,
    read_version,
)
from duckicelake.duckdb_login.rules import cover_inlined, find_rules
from duckicelake.errors import InvalidSettingsError
from duckicelake.postgres.database import Database
from duckicelake.postgres.shared_pools import LeasedDatabase
from duckicelake.settings.model import Settings

LOOK_SECONDS: Final = 0.4
"""Between two looks at logins and tables: what is revoked ends within a second."""
_PAUSE_SECONDS: Final = 0.02
"""At least between two looks, however often DuckDB commits."""
_FAILURE_SECONDS: Final = 2.0
_options: Final[WeakKeyDictionary[Database, LoginOptions]] = WeakKeyDictionary()


class DuckdbLoginService(FeatureService):
    """Looks after logins where the settings turn them on."""

    def check(self, settings: Settings) -> None:
        """Raise InvalidSettingsError for an address that DuckDB's users can't use."""
        url = settings.duckdb_login_url
        if url is None:
            return
        if settings.database_url is None:
            raise InvalidSettingsError(
                "DUCKICELAKE_DUCKDB_LOGIN_URL needs a Postgres of your own (DUCKICELAKE_DATABASE_URL): the embedded "
                "one lets in the server's user alone"
            )
        try:
            given = conninfo_to_dict(url)
        except ProgrammingError as error:
            raise InvalidSettingsError(f"Invalid DUCKICELAKE_DUCKDB_LOGIN_URL: {error}".strip()) from error
        if given.get("user") or given.get("password"):
            raise InvalidSettingsError(
                "Invalid DUCKICELAKE_DUCKDB_LOGIN_URL: leave out user and password; each login has its own"
            )

    @contextmanager
    def run_tasks(self, settings: Settings, services: Services, report: TaskReporter) -> Iterator[None]:
        """Keep the options, and look after the logins of all warehouses beside the first one's services."""
        is_elsewhere = isinstance(services.database, LeasedDatabase)  # another Postgres than that of the URL
        _options[services.database] = LoginOptions(None, 0) if is_elsewhere else read_options(settings)
        try:
            if settings.duckdb_login_url is None or services.prefix:
                yield
                return
            failed = report.on_failure("duckdb_login", "Logins of DuckDB could not be looked after")
            with look_after_logins(services, failed):
                yield
        finally:
            _options.pop(services.database, None)


class LoginCaretaker:
    """Looks at all logins of a database, again and again. Each worker has one; what one has done, others find done."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._place = find_place(services)
        self._version: int | None = None
        self._reach: dict[str, frozenset[int]] = {}

    def look(self) -> None:
        """End logins that are over or have lost something; let the others read new tables of inlined rows."""
        roles = list_roles(self._database, self._place)
        ended = {role.name for role in roles if role.is_over}
        live = [role for role in roles if not role.is_over]
        ended |= self._find_diminished(live)
        for name in ended:
            end_login(self._database, self._place, name)
            self._reach.pop(name, None)
        live = [role for role in live if role.name not in ended]
        if live:
            end_overstaying(self._database, [role.name for role in live])
        for schema in dict.fromkeys(role.schema for role in live):
            cover_inlined(self._database, find_rules(self._database, schema), _try_once)

    def _find_diminished(self, live: Sequence[LoginRole]) -> set[str]:
        """Find logins that may no longer read what they might, as its table is still there.

        DuckDB keeps the definitions of tables, and would take such a table for an empty one.
        """
        if not live:
            self._version = None
            return set()
        version = read_version(self._database, self._place)
        found = set()
        for role in live:
            known = self._reach.get(role.name)
            if known is not None and version == self._version:
                continue
            self._reach[role.name] = read_reach(self._database, role)
            lost = (known or frozenset()) - self._reach[role.name]
            if lost and is_any_live(self._database, role, lost):
                found.add(role.name)
        self._version = version
        return found


def read_options(settings: Settings) -> LoginOptions:
    """Read the options of logins from the settings."""
    return LoginOptions(settings.duckdb_login_url, settings.duckdb_login_seconds)


def find_options(services: Services) -> LoginOptions:
    """Find the options of the lake; without a server that has set others, there are no logins."""
    return _options.get(services.database) or LoginOptions(None, 0)


def _try_once(change: Callable[[], None]) -> None:
    """Leave a table that another transaction has for the next look."""
    with suppress(LockNotAvailable, DeadlockDetected):
        change()


@contextmanager
def look_after_logins(services: Services, failed: Callable[[Exception], object]) -> Iterator[None]:
    """Look after the logins of a database in a thread, at once when a snapshot is committed."""
    caretaker, notices = LoginCaretaker(services), services.database.open_listener(SNAPSHOTS)

    def run(ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                with notices.connect():
                    while not ended.wait(_PAUSE_SECONDS):
                        caretaker.look()
                        notices.wait(LOOK_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look may find it gone
                failed(error)
                ended.wait(_FAILURE_SECONDS)
        notices.release()

    with run_in_thread("duckdb-logins", run):
        try:
            yield
        finally:
            notices.close()


SERVICE: Final = DuckdbLoginService()
