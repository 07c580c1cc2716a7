"""The embedded Postgres of a lake's folder: its URL, its lock, and its restart after a crash."""

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from duckicelake.errors import CatalogError, InvalidSettingsError, LakeInUseError
from duckicelake.postgres.install import find_socket_folder, require_programs
from duckicelake.postgres.server import STOP_SECONDS, RunningPostgres, build_url, start_postgres

_PLACE_KEYWORDS = ("host", "hostaddr", "port", "dbname", "options", "service")
WarnFunction = Callable[[str], object]
_POLL_SECONDS: Final = 0.5
_MAX_PAUSE_SECONDS: Final = 30.0
"""Seconds between two starts that fail; the first pause is `_POLL_SECONDS`, every other twice the one before."""
_START_SECONDS: Final = 5.0


def build_embedded_url(folder: Path) -> str:
    """Return the URL at which the embedded Postgres of the lake in `folder` answers while it runs."""
    return build_url(find_socket_folder(folder.resolve() / "postgres"))


def extract_database_parts(url: str) -> list[Any]:
    """Return the parts of a Postgres URL that identify the lake, without the login."""
    given = parse_url(url)
    return [given.get(key) for key in _PLACE_KEYWORDS]


def check_url(url: str) -> None:
    """Raise InvalidSettingsError unless libpq can read it; nothing is connected."""
    parse_url(url)


def parse_url(url: str) -> dict[str, Any]:
    """Return the libpq keywords in a Postgres URL; InvalidSettingsError if libpq can't read it."""
    try:
        return conninfo_to_dict(url)
    except ProgrammingError as error:
        reason = str(error).split(" in URI")[0]  # what follows repeats the URL, password included
        raise InvalidSettingsError(
            f"database_url is not a Postgres URL ({reason}); write postgresql://user:password@host:5432/name"
        ) from None


class PostgresKeeper:
    """Restarts one Postgres whenever it ends, from `keep` to `release`."""

    def __init__(self, server: RunningPostgres, start: Callable[[], RunningPostgres]) -> None:
        self._server = server
        self._start = start
        self._released = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, warn: WarnFunction) -> None:
        """Start Postgres again whenever it ends. warn: called with what happened."""
        self._thread = threading.Thread(target=self._run, args=(warn,), name="postgres-keeper", daemon=True)
        self._thread.start()

    def release(self) -> RunningPostgres:
        """Stop restarting the server, and return it. Waits a while for a start under way."""
        self._released.set()
        if self._thread is not None:
            self._thread.join(_START_SECONDS)
        return self._server

    def _run(self, warn: WarnFunction) -> None:
        pause = _POLL_SECONDS
        while not self._released.wait(pause):
            if self._server.is_running():
                pause = _POLL_SECONDS
            elif self._restart(warn):
                warn("the embedded Postgres had ended; it runs again")
            else:
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    def _restart(self, warn: WarnFunction) -> bool:
        try:
            self._server = self._start()
        except (CatalogError, OSError) as error:
            warn(f"the embedded Postgres has ended and can't be started: {error}")
            return False
        return True


class EmbeddedPostgres:
    """Postgres in `<folder>/postgres`, held by one process at a time through `<folder>/.lock`.

    Other processes (workers, DuckDB) connect with `url`, a Unix socket. If the holder is killed, Postgres keeps running
    and the next holder takes it over. If Postgres is killed, the holder starts it again after a call of `keep`.
    """

    def __init__(self, folder: Path) -> None:
        """Start Postgres, creating the folder if need be; LakeInUseError if another process holds it.

        Raises InvalidSettingsError if the folder can't be made or written, StartupError if Postgres doesn't start.
        """
        require_programs()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _lock_file(folder / ".lock")
        except OSError as error:
            raise InvalidSettingsError(
                f"the lake can't be kept in {folder}: {error.strerror}; choose a folder that this user can write"
            ) from error
        try:
            data = folder.resolve() / "postgres"
            server = start_postgres(data)
            self._keeper = PostgresKeeper(server, lambda: start_postgres(data))
            self.url: str = server.url
        except BaseException:
            os.close(self._lock)
            raise

    def keep(self, warn: WarnFunction) -> None:
        """Start Postgres again whenever it ends, as long as this holds the lake. warn: called with what happened."""
        self._keeper.keep(warn)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop Postgres and release the lake; kill it after `seconds`. A second call does nothing."""
        if self._lock >= 0:
            self._keeper.release().stop(seconds)
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _lock_file(path: Path) -> int:
    """Lock the file while this process lives, and write its pid into it for the message of the next process."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise LakeInUseError(
            f"another server, process {holder}, holds the lake in {path.parent}; stop it or choose another folder"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)
    return handle
