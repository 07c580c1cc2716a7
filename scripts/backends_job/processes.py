"""Servers that outlive whoever started them. They are known by pid and birth, so nothing else is ever stopped."""

import os
import random
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from scripts.backends_job.users import User

START_SECONDS = 60
STOP_SECONDS = 30
IN_BACKGROUND = '"$@" >>"$SERVER_LOG" 2>&1 & echo $!'
"""The shell ends at once, so the server is no one's child: no parent waits for it, and Ctrl-C doesn't reach it."""
_OWN_PORTS = 20_000, 32_768
"""Below those that Linux and macOS give to connections, unless they are set otherwise."""


class BackendError(Exception):
    """What keeps a server from running; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine; `born` tells it from another one that got its pid later."""

    pid: int
    born: str

    def runs(self) -> bool:
        return birth(self.pid) == self.born


def start(command: Sequence[str], log: Path, environment: Mapping[str, str], user: User | None = None) -> Process:
    """Start a server in the background; what it prints goes to the end of the log."""
    log.touch()
    if user is not None:
        os.chown(log, user.uid, user.gid)
    started = subprocess.run(
        ["/bin/sh", "-c", IN_BACKGROUND, "sh", *command],
        cwd=log.parent,
        env={**environment, "SERVER_LOG": str(log)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        start_new_session=True,
        **(user.arguments() if user else {}),
    )
    pid = int(started.stdout)
    return Process(pid, birth(pid) or "gone")


def wait_until_ready(process: Process, is_ready: Callable[[], bool], log: Path) -> None:
    """Return when it is ready. BackendError with the end of its log, if it ends or takes too long."""
    deadline = monotonic() + START_SECONDS
    while monotonic() < deadline and process.runs():
        if is_ready():
            return
        sleep(0.02)
    stop(process, signal.SIGTERM)
    raise BackendError(f"{log.stem} did not start; it printed:\n{log.read_text(errors='replace')[-2000:]}")


def stop(process: Process, way: signal.Signals) -> None:
    """End the process and return when it is gone; SIGKILL only if it takes too long."""
    for sent in (way, signal.SIGKILL):
        if not process.runs():
            return
        os.kill(process.pid, sent)
        deadline = monotonic() + STOP_SECONDS
        while monotonic() < deadline and process.runs():
            sleep(0.02)


def birth(pid: int) -> str | None:
    """When a process started, in words that no other process of this pid has; None if there is none, or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self").exists() else _birth_by_ps(pid)
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else f"{boot} {fields[18]}"


def _birth_by_ps(pid: int) -> str | None:
    report = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = report.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def free_port() -> int:
    """Find a port that no program uses, and that the system gives to no other one until a server takes it."""
    while not is_free(port := random.randrange(*_OWN_PORTS)):
        pass
    return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
