"""The unit, on a Debian whose first process is systemd."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from scripts.backends_job.processes import free_port
from scripts.backends_job.stack import Backends
from tests.support.documents import ROOT
from tests.support.waits import wait_until

pytestmark = [pytest.mark.image, pytest.mark.timeout(600)]
DEBIAN = ROOT / "build" / "image" / "machine"
UNIT = ROOT / "deploy" / "duckicelake.service"
START_SECONDS = 120
STOP_SECONDS = 45
"""The unit's TimeoutStopSec."""
WRONG_SETTINGS = 2
"""The exit code after which the unit doesn't start again."""


class Machine:
    """A booted Debian, with the network of this machine. What it writes is gone in the end."""

    def __init__(self, first_process: int, port: int) -> None:
        self.first_process = first_process
        self.uri = f"http://127.0.0.1:{port}"

    def run(self, *command: str) -> str:
        entered = ["nsenter", "--target", str(self.first_process), "--mount", "--uts", "--ipc", "--pid", *command]
        done = subprocess.run(entered, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def show(self, name: str) -> str:
        return self.run("systemctl", "show", "duckicelake", "--property", name, "--value").strip()

    def log(self) -> str:
        return self.run("journalctl", "--unit", "duckicelake", "--no-pager", "--output", "cat")

    def is_ready(self) -> bool:
        assert self.show("ActiveState") != "failed", self.log()
        try:
            return httpx.get(f"{self.uri}/readyz").is_success
        except httpx.TransportError:
            return False

    def has_failed(self) -> bool:
        return self.show("ActiveState") == "failed"

    def namespaces(self) -> list[list[str]]:
        found: list[list[str]] = httpx.get(f"{self.uri}/v1/namespaces").raise_for_status().json()["namespaces"]
        return found


@contextmanager
def running(mounts: list[str], port: int, console: Path) -> Iterator[Machine]:
    command = [
        "systemd-nspawn",
        "--boot",
        "--volatile=overlay",
        "--register=no",
        "--keep-unit",
        *mounts,
        "--directory",
        str(DEBIAN),
    ]
    with console.open("wb") as output:
        container = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            start_new_session=True,
        )
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
    try:
        wait_until(lambda: "Reached target" in console.read_text(errors="replace"), START_SECONDS)
        yield Machine(int(children.read_text().split()[0]), port)
    finally:  # with its first process the machine ends; systemd-nspawn alone would leave it running
        for process in children.read_text().split():
            os.kill(int(process), signal.SIGKILL)
        container.wait(START_SECONDS)


@pytest.fixture
def boot(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    """Boot a machine with the unit and settings. lines: of a drop-in. secret: content of /etc/duckicelake/url."""
    if not (DEBIAN / "sbin" / "init").exists() or shutil.which("systemd-nspawn") is None:
        pytest.skip("there is no machine: scripts/image tools, scripts/image machine")
    with ExitStack() as machines:

        def boot_one(*lines: str, secret: str = "", **settings: str) -> Machine:
            port = free_port()
            etc = tmp_path / f"etc-{port}"
            units = etc / "units"
            (units / "duckicelake.service.d").mkdir(parents=True)
            (units / "multi-user.target.wants").mkdir()
            shutil.copy(UNIT, units)
            (units / "multi-user.target.wants" / UNIT.name).symlink_to(f"/etc/systemd/system/{UNIT.name}")
            (units / "duckicelake.service.d" / "lines.conf").write_text("\n".join(("[Service]", *lines, "")))
            (etc / "environment").write_text(
                "".join(f"{name}={value}\n" for name, value in {"DUCKICELAKE_PORT": str(port), **settings}.items())
            )
            (etc / "url").write_text(secret)
            mounts = [f"--bind-ro={etc}:/etc/duckicelake", f"--bind-ro={units}:/etc/systemd/system"]
            return machines.enter_context(running(mounts, port, tmp_path / f"console-{port}"))

        yield boot_one


def test_service_starts_with_the_machine_and_again_when_killed_and_keeps_its_lake(boot: Callable[..., Machine]) -> None:
    machine = boot()
    wait_until(machine.is_ready, START_SECONDS)
    httpx.post(f"{machine.uri}/v1/namespaces", json={"namespace": ["zoo"]}).raise_for_status()
    assert machine.run("stat", "--format", "%a", "/var/lib/private/duckicelake") == "700\n"

    machine.run("systemctl", "kill", "--kill-whom", "main", "--signal", "KILL", "duckicelake")
    wait_until(lambda: machine.show("NRestarts") == "1", START_SECONDS)
    wait_until(machine.is_ready, START_SECONDS)
    assert ["zoo"] in machine.namespaces()

    begun = time.monotonic()
    machine.run("systemctl", "stop", "duckicelake")
    assert time.monotonic() - begun < STOP_SECONDS
    assert (machine.show("Result"), machine.show("ExecMainStatus")) == ("success", "0")
    assert machine.run("systemctl", "show", "duckicelake", "--property", "TasksCurrent", "--value").strip() in {
        "0",
        "[not set]",
    }
    machine.run("systemctl", "start", "duckicelake")
    wait_until(machine.is_ready, START_SECONDS)
    assert ["zoo"] in machine.namespaces()


def test_database_url_comes_from_the_credentials_of_systemd(boot: Callable[..., Machine], backends: Backends) -> None:
    settings = backends.environment()
    url = settings.pop("DUCKICELAKE_DATABASE_URL")
    machine = boot(
        "LoadCredential=url:/etc/duckicelake/url",
        "Environment=DUCKICELAKE_DATABASE_URL_FILE=%d/url",
        "ExecStart=",
        "ExecStart=/opt/duckicelake/bin/duckicelake serve --create",
        secret=url,
        **settings,
    )
    wait_until(machine.is_ready, START_SECONDS)
    process = machine.show("MainPID")
    assert url not in machine.run("cat", f"/proc/{process}/environ") + machine.log()


def test_wrong_setting_is_named_once(boot: Callable[..., Machine]) -> None:
    machine = boot(DUCKICELAKE_MAX_BODY_BYTES="much")
    wait_until(machine.has_failed, START_SECONDS)
    assert (machine.show("ExecMainStatus"), machine.show("NRestarts")) == (str(WRONG_SETTINGS), "0")
    assert "DUCKICELAKE_MAX_BODY_BYTES" in machine.log()


def test_folder_that_the_unit_keeps_closed_is_named(boot: Callable[..., Machine], backends: Backends) -> None:
    settings = backends.environment() | {"DUCKICELAKE_WAREHOUSE": "/srv/lake"}
    create = ("ExecStart=", "ExecStart=/opt/duckicelake/bin/duckicelake serve --create")
    closed = boot(*create, **settings)
    wait_until(closed.has_failed, START_SECONDS)
    assert "/srv" in closed.log()
