"""The folder of the embedded Postgres's socket: closed to other users, and short enough for an address.

It is the data directory, unless the path would be too long for a socket, or has a comma. Then it is a folder below the
temporary one. Its name is random, so that nobody can take it before, and is kept in the lake's folder.
"""

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from duckicelake.errors import StartupError
from duckicelake.lake.postgres.install import is_open

_LONGEST: Final = 103
"""Bytes of a socket's path: 107 on Linux, 103 on macOS and BSD."""
_SOCKET: Final = ".s.PGSQL.5432"
_NOTE: Final = ".socket"


def socket_folder(data: Path) -> Path:
    """Where clients find the socket, as far as that is known before the first start."""
    return data if is_usable(data) else _noted(data) or data


def make_socket_folder(data: Path, owner: tuple[int, int] | None) -> Path:
    """The same once it is there. owner: whom Postgres runs as, if it is another user. Raises StartupError."""
    if is_usable(data):
        return data
    noted = _noted(data)
    if noted is not None and _is_ours(noted, owner):
        return noted
    made = Path(tempfile.gettempdir()).resolve() / f"duckicelake-{secrets.token_hex(8)}"
    if owner is not None and not is_open(made.parent):
        raise StartupError(
            f"Postgres's user can't enter {made.parent}, where its socket would be: set TMPDIR to another"
        )
    if not is_usable(made):
        raise StartupError(f"{made} is no folder for a socket: set TMPDIR to a short one without a comma")
    try:
        made.mkdir(0o700)
        if owner is not None:
            os.chown(made, *owner)
        (data.parent / _NOTE).write_text(str(made))
    except OSError as error:
        raise StartupError(f"no folder for the socket can be made in {made.parent}: {error.strerror}") from error
    return made


def remove_socket_folder(data: Path) -> None:
    """Remove it after a stop, if it isn't the data directory."""
    noted = _noted(data)
    if noted is not None:
        with suppress(OSError):
            noted.rmdir()


def is_usable(folder: Path) -> bool:
    """Whether clients can be given it: not too long, and without a comma, by which libpq divides hosts."""
    return len(os.fsencode(folder / _SOCKET)) <= _LONGEST and "," not in str(folder)


def _noted(data: Path) -> Path | None:
    try:
        return Path((data.parent / _NOTE).read_text().strip())
    except FileNotFoundError:
        return None


def _is_ours(folder: Path, owner: tuple[int, int] | None) -> bool:
    """Whether it is there, closed, and whose it must be; it is made again if a cleaner removed it."""
    with suppress(OSError):
        folder.mkdir(0o700)
        if owner is not None:
            os.chown(folder, *owner)
    try:
        found = folder.lstat()
    except OSError:
        return False
    is_closed = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
    return is_closed and found.st_uid == (os.geteuid() if owner is None else owner[0])
