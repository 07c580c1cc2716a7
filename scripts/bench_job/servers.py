"""What is measured and what it is measured against, as child processes that end with the block."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from time import monotonic, sleep
from urllib.error import URLError
from urllib.request import urlopen

import psutil  # type: ignore[import-untyped]

from scripts.backends_job.processes import free_port
from scripts.demo_job.backend import EMBEDDED, Backend
from scripts.demo_job.server import running_lake
from scripts.rck_job.kit import kit_folder

ROOT = Path(__file__).parents[2]
JAVA_SECONDS = 120
_CREDENTIAL = "bench:secret-of-the-bench"
_WITH_LOGIN = Backend(
    {"DUCKICELAKE_OAUTH_CLIENTS": f"{_CREDENTIAL}|*", "DUCKICELAKE_OAUTH_TOKEN_SECONDS": "86400"},
    {"credential": _CREDENTIAL},
)


@dataclass(frozen=True, slots=True)
class Bench:
    """A served lake. `headers` go with every request, a bearer token among them if the server asks for one."""

    uri: str
    folder: Path
    ducklake_attach: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.folder.parent / "server.log"

    def memory(self) -> int:
        """Resident bytes of the largest process of the server, Postgres not counted."""
        return max(int(each.memory_info().rss) for each in self.processes())

    def cpu_seconds(self) -> float:
        """What the server's own processes have used, Postgres not counted."""
        return sum(sum(each.cpu_times()[:2]) for each in self.processes())

    def processes(self) -> list[psutil.Process]:
        """The server, and its workers if it has any."""
        found = [each for each in psutil.process_iter() if str(self.folder) in " ".join(_command(each))]
        server = next(each for each in found if "serve" in _command(each))
        return [server, *(each for each in server.children() if "spawn_main" in " ".join(_command(each)))]


def child_seconds() -> float:
    """CPU that all children of this process have used: servers, and Postgres where they run it."""
    return sum(sum(child.cpu_times()) for child in psutil.Process().children(recursive=True))


@contextmanager
def running_bench(
    *,
    workers: int = 1,
    auth: bool = True,
    settings: Mapping[str, str] | None = None,
    backend: Backend | None = None,
    program: str | None = None,
) -> Iterator[Bench]:
    """`duckicelake serve` on a lake of its own that goes with the block; `settings` are DUCKICELAKE_* variables.

    With auth, the client has logged in and may do everything. backend: default is a lake in a folder.
    program: `duckicelake` of another checkout.
    """
    given = {"DUCKICELAKE_WORKERS": str(workers), "DUCKICELAKE_LOG_FORMAT": "json", **(settings or {})}
    backend = backend or (_WITH_LOGIN if auth else EMBEDDED)
    with (
        tempfile.TemporaryDirectory(prefix="duckicelake-bench-", ignore_cleanup_errors=True) as folder,
        running_lake(Path(folder, "lake"), Path(folder, "server.log"), given, backend, program) as lake,
    ):
        yield Bench(lake.uri, lake.folder, lake.ducklake_attach, lake.login())


@contextmanager
def running_starlette(body: bytes, etag: str = '"etag"') -> Iterator[str]:
    """The bare routes `/body` and `/unchanged`; see `bare`."""
    with tempfile.NamedTemporaryFile(prefix="duckicelake-bench-") as file:
        file.write(body)
        file.flush()
        command = [sys.executable, "-m", "scripts.bench_job.bare", file.name, etag]
        with subprocess.Popen(command, cwd=ROOT, stdin=DEVNULL, stdout=PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                uri = process.stdout.readline().strip()
                _wait(process, f"{uri}/body", 30)
                yield uri
            finally:
                process.terminate()


def java_is_there() -> bool:
    return _java().is_file()


@contextmanager
def running_java(settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Iceberg's reference server, a JdbcCatalog over SQLite; its URI. It is no part of us.

    settings: CATALOG_* and other variables; by default files are local.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="duckicelake-reference-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [str(_java()), str(port)],
            env={**os.environ, "REFERENCE_DIR": folder, **(settings or {})},
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=STDOUT,
            start_new_session=True,
        )
        try:
            _wait(process, f"http://127.0.0.1:{port}/v1/config", JAVA_SECONDS)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _java() -> Path:
    return kit_folder() / "start-reference.sh"


def _wait(process: subprocess.Popen[str] | subprocess.Popen[bytes], url: str, seconds: float) -> None:
    deadline = monotonic() + seconds
    while monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(url, timeout=5):
                return
        except (URLError, OSError):
            sleep(0.05)
    raise RuntimeError(f"{url} did not answer")


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
