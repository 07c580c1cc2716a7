"""Start and stop an embedded Postgres server that only local, permitted users reach."""

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final
from urllib.parse import quote

from duckicelake.errors import StartupError
from duckicelake.postgres.install import (
    PostgresAccount,
    find_account,
    find_programs,
    is_folder_open,
    make_socket_folder,
    remove_copy,
    remove_socket_folder,
)

_RECOVERY_SECONDS: Final = 600.0
STOP_SECONDS: Final = 60.0
_KILL_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.02
_PID_FILE_LINES: Final = 8
"""Lines of a complete `postmaster.pid`: the first holds the process id, the last whether Postgres is ready."""
_CURRENT_FOLDER: Final = "/proc/self/cwd"
"""A name of the data directory for processes that were started in it, and may not enter the folders above it."""
_HBA_FILE_NAME: Final = "duckicelake_hba.conf"
_IDENT_FILE_NAME: Final = "duckicelake_ident.conf"
_KEPT_VARIABLES: Final = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_REASON_PATTERNS: Final = (re.compile(r"(?:FATAL|PANIC|error): *(.+)"), re.compile(r"HINT: *(.+)"))


@dataclass(slots=True)
class RunningPostgres:
    """A Postgres that takes connections. process: where it is a child of this one, which must ask for its end."""

    data: Path
    pid: int
    url: str
    process: "subprocess.Popen[bytes] | None" = None

    def is_running(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        return _is_running(self.pid)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop it as fast as possible without a later recovery. Kill it if it hangs for so long."""
        program = _read_program(self.data)
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if self.is_running():
                self._send(number)
                self._wait(seconds if number == signal.SIGINT else _KILL_SECONDS)
        remove_socket_folder(self.data)
        remove_copy(program)

    def _send(self, number: int) -> None:
        """Signal Postgres, and its children too if it kills: stopped ones outlive their parent and keep memory."""
        for process in (*(_find_children(self.pid) if number == signal.SIGKILL else ()), self.pid):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def _wait(self, seconds: float) -> None:
        until = monotonic() + seconds
        while self.is_running() and monotonic() < until:
            sleep(_POLL_SECONDS)


def start_postgres(data: Path) -> RunningPostgres:
    """Start the server of a data directory, which is made if need be; return once it accepts connections.

    A server that runs already is taken over, unless it was started with other rules for who may connect. After a crash
    Postgres first replays its log, which may take minutes. Raises StartupError if it doesn't start.
    """
    account = find_account(data)
    _wait_while_starting(data)
    running = _find_left_running(data)
    if running is not None:
        return running
    data.mkdir(mode=0o700, exist_ok=True)
    if account.other is not None:
        os.chown(data, *account.other)
    programs = find_programs(data, account)
    if not (data / "PG_VERSION").exists():
        _initialize(data, programs, account)
    return _start_process(data, programs, account)


def build_url(socket_folder: Path) -> str:
    """Return the URL of the embedded Postgres whose socket is in this folder."""
    return f"postgresql://postgres:@/postgres?host={quote(str(socket_folder), safe='/')}"


def _find_left_running(data: Path) -> RunningPostgres | None:
    """Find the server that a killed process left. Stop one without these rules, as it lets every local user in."""
    lines = _read_lines(data / "postmaster.pid")
    if lines is None or not _is_ready(lines) or not _has_process(lines) or not _is_postgres_of(int(lines[0]), data):
        return None
    found = RunningPostgres(data, int(lines[0]), build_url(make_socket_folder(data, find_account(data).other)))
    if _HBA_FILE_NAME in _read_options(data):
        return found
    found.stop()
    return None


def _find_reason(output: bytes) -> str:
    """Find the reason and the advice in what initdb prints; after them comes what initdb removes again."""
    text = output.decode(errors="replace").strip() or "it says nothing"
    found = [match.group(1) for match in (pattern.search(text) for pattern in _REASON_PATTERNS) if match]
    return "; ".join(found) or text.splitlines()[-1]


def _initialize(data: Path, programs: Path, account: PostgresAccount) -> None:
    command = [
        str(programs / "initdb"),
        "--auth-local=peer",
        "--auth-host=reject",
        "--encoding=utf8",
        "--username=postgres",
        "--no-instructions",
        f"--pgdata={_find_reachable_name(data, account)}",
    ]
    made = subprocess.run(  # noqa: S603
        command,
        cwd=data,
        env=_build_environment(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
        **_build_user_options(account),
    )
    if made.returncode != 0:
        remove_copy(command[0])
        raise StartupError(f"Postgres can't make its data in {data}: {_find_reason(made.stderr)}")


def _start_process(data: Path, programs: Path, account: PostgresAccount) -> RunningPostgres:
    _write_rules(data, account)
    name, sockets = _find_reachable_name(data, account), make_socket_folder(data, account.other)
    options = {
        "listen_addresses": "",
        "unix_socket_directories": name if sockets == data else str(sockets),
        "unix_socket_permissions": "0700",
        "hba_file": f"{name}/{_HBA_FILE_NAME}",
        "ident_file": f"{name}/{_IDENT_FILE_NAME}",
    }
    command = [str(programs / "postgres"), "-D", name]
    for option, value in options.items():
        command += ["-c", f"{option}={_quote_folder(value) if option == 'unix_socket_directories' else value}"]
    log = data / "log"
    with open(_open_file(log, account), "ab") as output:
        begun = output.tell()
        process = subprocess.Popen(  # noqa: S603
            command,
            cwd=data,
            env=_build_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            **_build_user_options(account),
        )
    _wait_until_ready(data, process, log, begun)
    return RunningPostgres(data, process.pid, build_url(sockets), process)


def _wait_until_ready(data: Path, process: "subprocess.Popen[bytes]", log: Path, begun: int) -> None:
    deadline = monotonic() + _RECOVERY_SECONDS
    while process.poll() is None:
        lines = _read_lines(data / "postmaster.pid")
        if lines and _is_ready(lines) and lines[0].strip() == str(process.pid):
            return
        if monotonic() > deadline:
            process.kill()
            process.wait()
            raise StartupError(f"Postgres hasn't started within {_RECOVERY_SECONDS:.0f} s; its log is {log}")
        sleep(_POLL_SECONDS)
    with log.open("rb") as written:
        written.seek(begun)
        last = written.read().decode(errors="replace").strip().splitlines() or ["nothing; is the disk full?"]
    raise StartupError(f"Postgres doesn't start; its log, {log}, ends with: {last[-1]}")


def _write_rules(data: Path, account: PostgresAccount) -> None:
    """Write who may connect: the users that Postgres and this process run as, as any role."""
    users = {account.name, "root"} if os.geteuid() == 0 else {account.name}
    rules = {
        _HBA_FILE_NAME: "local all all peer map=duckicelake\nlocal replication all peer map=duckicelake\n",
        _IDENT_FILE_NAME: "".join(f'duckicelake "{user}" all\n' for user in sorted(users)),
    }
    for name, text in rules.items():
        with open(_open_file(data / name, account), "r+b") as file:
            file.truncate()
            file.write(text.encode())


def _open_file(path: Path, account: PostgresAccount) -> int:
    """Open a file in the data directory, made if need be, closed to all but Postgres's user. Follow no link."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if account.other is not None:
        os.fchown(descriptor, *account.other)
    return descriptor


def _find_reachable_name(data: Path, account: PostgresAccount) -> str:
    """Find a name of the data directory for Postgres's user, who may not enter folders that root has closed."""
    is_reached = account.other is None or is_folder_open(data.parent)
    if not is_reached and not Path(_CURRENT_FOLDER).exists():
        raise StartupError(f"the user {account.name}, whom Postgres runs as, can't enter {data.parent}: choose another")
    return str(data) if is_reached else _CURRENT_FOLDER


def _build_environment(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name in _KEPT_VARIABLES or name.startswith("LC_")}


def _build_user_options(account: PostgresAccount) -> dict[str, Any]:
    if account.other is None:
        return {"umask": 0o077}
    user, group = account.other
    return {"user": user, "group": group, "extra_groups": [], "umask": 0o077}


def _quote_folder(folder: str) -> str:
    """Quote a folder as an element of a list; a quote in it is doubled."""
    return '"' + folder.replace('"', '""') + '"'


def _wait_while_starting(data: Path) -> None:
    """Wait while another start of this server is under way. Remove the file of a start that was killed."""
    file = data / "postmaster.pid"
    deadline = monotonic() + _RECOVERY_SECONDS
    while (lines := _read_lines(file)) is not None and not _is_ready(lines):
        if lines and not _has_process(lines):
            if len(lines) < _PID_FILE_LINES:
                file.unlink(missing_ok=True)
            return
        if monotonic() > deadline:
            raise StartupError(
                f"Postgres has been starting for {_RECOVERY_SECONDS:.0f} s; if none runs there, remove {file}"
            )
        sleep(0.05)


def _read_program(data: Path) -> str:
    """Read the program that was started, by which the options begin."""
    return _read_options(data).partition(' "')[0]


def _read_options(data: Path) -> str:
    """Read the command line of the last start."""
    try:
        return (data / "postmaster.opts").read_text(errors="replace")
    except OSError:
        return ""


def _read_lines(file: Path) -> list[str] | None:
    try:
        return file.read_text().splitlines()
    except FileNotFoundError:
        return None


def _is_ready(lines: list[str]) -> bool:
    return len(lines) >= _PID_FILE_LINES and lines[_PID_FILE_LINES - 1].strip() == "ready"


def _has_process(lines: list[str]) -> bool:
    return len(lines) > 0 and _is_running(int(lines[0]))


def _is_postgres_of(process: int, data: Path) -> bool:
    """Return whether the process, whose id may be another's by now, works in the data directory."""
    try:
        return Path(f"/proc/{process}/cwd").samefile(data)
    except OSError:
        return not Path("/proc/self").exists()


def _find_children(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def _is_running(process: int) -> bool:
    """Return whether there is such a process that hasn't ended yet."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it is another user's
    except OSError:
        return not Path("/proc/self").exists()
