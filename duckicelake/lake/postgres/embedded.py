"""A Postgres of our own in the lake's folder, for a server that was given none."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duckicelake.errors import InvalidSettings, LakeInUse
from duckicelake.lake.postgres.keeper import PostgresKeeper, Warn
from duckicelake.lake.postgres.start import STOP_SECONDS, start_postgres


class EmbeddedPostgres:
    """Postgres in `<folder>/postgres`, held by one process at a time through `<folder>/.lock`.

    Other processes (workers, DuckDB) connect with `url`, a Unix socket. If the holder is killed, Postgres keeps running
    and the next holder takes it over. If Postgres is killed, the holder starts it again once it was told to `keep` it.
    """

    def __init__(self, folder: Path) -> None:
        """Start Postgres, creating the folder if need be; LakeInUse if another process holds it.

        Raises InvalidSettings if the folder can't be made or written, StartupError if Postgres doesn't start.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _hold(folder / ".lock")
        except OSError as error:
            raise InvalidSettings(
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

    def keep(self, warn: Warn) -> None:
        """Start Postgres again whenever it has ended, as long as this holds the lake. warn: gets what has happened."""
        self._keeper.keep(warn)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop Postgres and let others have the lake; a second call does nothing. One that takes longer is killed."""
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


def duckdb_attach(url: str, alias: str = "lake", data_path: str | None = None) -> str:
    """SQL by which DuckDB attaches the catalog at a Postgres URL; `data_path` only where DuckDB is to create it."""
    parts = {key: value for key, value in conninfo_to_dict(url).items() if value not in (None, "")}
    source = _literal("ducklake:postgres:" + make_conninfo("", **parts))
    options = "" if data_path is None else f" (DATA_PATH {_literal(data_path)})"
    name = '"' + alias.replace('"', '""') + '"'
    return f"ATTACH {source} AS {name}{options}"


def _hold(path: Path) -> int:
    """Lock the file for as long as this process lives and write our pid into it, for the message of who comes later."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise LakeInUse(
            f"another server, process {holder}, holds the lake in {path.parent}; stop it or choose another folder"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)
    return handle


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
