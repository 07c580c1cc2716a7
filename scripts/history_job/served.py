"""`duckicelake serve` with workers, made to be killed: the lake stays, and the next start serves it again."""

import os
import re
import resource
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from time import monotonic, sleep

import psutil  # type: ignore[import-untyped]

from duckicelake.lake.ducklake.database import build_attach_source
from duckicelake.postgres.embedded import build_embedded_url
from scripts.demo_job.server import PROGRAM, is_ready, own_environment, stop
from scripts.history_job.proxy import Proxy

GONE_SECONDS = 60
START_SECONDS = 300
"""A machine may be busy with other things."""


@dataclass(slots=True)
class Served:
    """The server behind the proxy, which learns where it answers."""

    folder: Path
    logs: Path
    settings: Mapping[str, str]
    proxy: Proxy
    name: str = "server"
    """As its logs are called."""
    starts: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def database_url(self) -> str:
        return build_embedded_url(self.folder)

    @property
    def attach(self) -> str:
        return build_attach_source(self.database_url)

    def start(self) -> None:
        self.starts += 1
        log = self._log
        log.touch()
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--lake", str(self.folder), "--port", "0"],
            cwd=self.folder,
            env=own_environment(self.settings),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=_copy, args=(self.process, log), daemon=True).start()
        self.proxy.target = self._announced(log)
        self.wait_until_ready()

    def ended(self) -> bool:
        """Whether the server has ended by itself."""
        return self.process is None or self.process.poll() is not None

    def wait_until_ready(self) -> None:
        """Return when the server answers, or has ended."""
        target = self.proxy.target
        if not wait_until(lambda: self.ended() or is_ready(target), START_SECONDS):
            raise RuntimeError(f"the server isn't ready after {START_SECONDS} s; it printed:\n{self.last_words()}")

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    @property
    def _log(self) -> Path:
        return self.logs / f"{self.name}-{self.starts}.log"

    def _announced(self, log: Path) -> str:
        """The URI that the server prints."""
        found: list[str] = []

        def is_announced() -> bool:
            found[:] = re.findall(r"serves (http://[\w.-]+:\d+)", log.read_text(errors="replace"))
            return bool(found) or self.ended()

        if not wait_until(is_announced, START_SECONDS) or not found:
            raise RuntimeError(f"the server did not start; it printed:\n{self.last_words()}")
        return found[0]

    def workers(self) -> list[psutil.Process]:
        """Those who answer requests; the server itself if it has no workers."""
        assert self.process is not None
        server = psutil.Process(self.process.pid)
        spawned = spawned_by(server) if self.settings.get("DUCKICELAKE_WORKERS", "1") != "1" else []
        return spawned or [server]

    def upkeep_workers(self) -> list[psutil.Process]:
        """Those that do tasks of upkeep: processes of whoever answers requests."""
        return [process for worker in self.workers() for process in spawned_by(worker)]

    def postmaster(self) -> psutil.Process:
        return psutil.Process(int((self.folder / "postgres" / "postmaster.pid").read_text().split()[0]))

    def kill(self, *, with_postgres: bool) -> None:
        """Kill -9 the server with its workers, and its Postgres if asked to."""
        assert self.process is not None
        doomed = []
        if with_postgres:
            postmaster = self.postmaster()
            doomed = [postmaster, *postmaster.children(recursive=True)]
            postmaster.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        _, alive = psutil.wait_procs(doomed, GONE_SECONDS)
        assert not alive, f"Postgres processes outlive their postmaster: {alive}"

    def fill_disk(self, seconds: float) -> int:
        """For a moment, no worker can write a byte into any file; how many workers that were."""
        limited = [each for each in self.workers() if _limit_files(each.pid, 0)]
        sleep(seconds)
        for each in limited:
            _limit_files(each.pid, resource.RLIM_INFINITY)
        return len(limited)

    def stop(self) -> None:
        if self.process is not None:
            stop(self.process)


@contextmanager
def serving(served: Served) -> Iterator[Served]:
    served.start()
    try:
        yield served
    finally:
        served.stop()


def spawned_by(process: psutil.Process) -> list[psutil.Process]:
    """The processes that Python has started for a part of its work."""
    with suppress(psutil.Error):
        return [child for child in process.children() if "spawn_main" in " ".join(_command(child))]
    return []


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition, asked again and again, came true in time."""
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        if holds():
            return True
        sleep(0.05)
    return False


def _copy(process: subprocess.Popen[bytes], log: Path) -> None:
    """Logs go through a pipe: the server's disk may be full, and ours isn't."""
    assert process.stdout is not None
    with log.open("wb", buffering=0) as file:
        while chunk := os.read(process.stdout.fileno(), 65536):
            file.write(chunk)


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []


def _limit_files(pid: int, most_bytes: int) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
        return True
    return False
