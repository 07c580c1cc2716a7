"""`duckicelake serve` as a child process: enter to start it on a free port, leave to stop it, and nothing else."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from time import monotonic, sleep
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from scripts.demo_job.backend import EMBEDDED, Backend, backend_of

PROGRAM = str(Path(sys.executable).with_name("duckicelake"))
START_SECONDS = 180
STOP_SECONDS = 30


@dataclass(frozen=True, slots=True)
class RunningLake:
    """Where a served lake is found: `uri` for Iceberg clients, `ducklake_attach` for DuckDB's ATTACH."""

    folder: Path
    uri: str
    ducklake_attach: str
    backend: Backend = EMBEDDED

    def login(self) -> dict[str, str]:
        """The header of a client that has logged in, where the server asks for that."""
        if "credential" not in self.backend.catalog:
            return {}
        name, _, secret = self.backend.catalog["credential"].partition(":")
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
        with urlopen(f"{self.uri}/v1/oauth/tokens", urlencode(form).encode(), timeout=30) as answer:
            return {"Authorization": f"Bearer {json.load(answer)['access_token']}"}


@contextmanager
def running_lake(
    folder: Path,
    log: Path,
    settings: Mapping[str, str] | None = None,
    backend: Backend | None = None,
    program: str | None = None,
) -> Iterator[RunningLake]:
    """Serve the lake of `folder`; `settings` are DUCKICELAKE_* variables, and no others are inherited.

    program: default is our own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    backend = backend or backend_of(folder)
    environment = own_environment({**backend.settings, **(settings or {})})
    process = start(folder, log, environment, program or PROGRAM)
    try:
        uri = wait_until_ready(process, log)
        yield RunningLake(folder, uri, str(info(folder, environment, program or PROGRAM)["ducklake-attach"]), backend)
    finally:
        stop(process)


def own_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with these settings alone. The lake keeps itself only where they say so."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DUCKICELAKE_")}
    return inherited | {"DUCKICELAKE_UPKEEP_WORKERS": "0"} | dict(settings)


def start(folder: Path, log: Path, environment: Mapping[str, str], program: str = PROGRAM) -> subprocess.Popen[bytes]:
    """Its own session, so that Ctrl-C reaches us alone and we stop it after its clients."""
    command = [program, "serve", "--create", "--lake", str(folder), "--port", "0"]
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=DEVNULL,
            stdout=output,
            stderr=STDOUT,
            start_new_session=True,
        )


def wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    """The URI that the server printed, once it says that it is ready."""
    deadline = monotonic() + START_SECONDS
    while monotonic() < deadline and process.poll() is None:
        printed = re.search(r"http://[\w.-]+:\d+", log.read_text(errors="replace"))
        if printed and is_ready(printed.group()):
            return printed.group()
        sleep(0.05)
    raise RuntimeError(f"the server did not start; it printed:\n{log.read_text(errors='replace')[-4000:]}")


def is_ready(uri: str) -> bool:
    try:
        with urlopen(f"{uri}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def info(folder: Path, environment: Mapping[str, str], program: str = PROGRAM) -> dict[str, object]:
    """What `duckicelake info --json` says about a lake."""
    command = [program, "info", "--lake", str(folder), "--json"]
    answer = subprocess.run(command, cwd=folder, env=environment, stdin=DEVNULL, stdout=PIPE, check=True)
    described: dict[str, object] = json.loads(answer.stdout)
    return described


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, which shuts the embedded Postgres down too; SIGKILL only if that takes too long."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
