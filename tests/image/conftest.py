"""The image that `scripts/image build` has made, containers of it, and the servers that they need."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx
import pytest

from scripts.backends_job.processes import free_port
from scripts.backends_job.stack import Backends, new_lake, running_backends
from tests.support.documents import ROOT
from tests.support.waits import wait_until

IMAGE = "localhost/duckicelake"
START_SECONDS = 120
_numbers = count(1)


def podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["podman", "--log-level", "fatal", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@dataclass
class Container:
    """A container of the image, as `scripts/image run` starts it. options: of `podman run`."""

    options: tuple[str, ...]
    command: tuple[str, ...] = ()
    image: str = IMAGE
    port: int = field(default_factory=free_port)
    name: str = field(default_factory=lambda: f"duckicelake-test-{next(_numbers)}-{free_port()}")

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def arguments(self) -> list[str]:
        own = ["--name", self.name, "--env", "DUCKICELAKE_HOST=127.0.0.1", "--env", f"DUCKICELAKE_PORT={self.port}"]
        return [str(ROOT / "scripts" / "image"), "run", *own, *self.options]

    def start(self) -> None:
        """Start it in the background, and wait until it is ready."""
        subprocess.run([*self.arguments, "--detach", self.image, *self.command], check=True, capture_output=True)
        wait_until(self.is_ready, START_SECONDS)

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        command = [*self.arguments, "--rm", self.image, *self.command]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def refuse(self) -> str:
        """The one line by which it refuses to start."""
        done = self.run()
        assert done.returncode != 0, done.stdout
        (line,) = [line for line in done.stderr.splitlines() if "healthchecks" not in line]
        return line

    def is_ready(self) -> bool:
        assert self.inspect("{{.State.Running}}") == "true", podman("logs", self.name).stderr
        try:
            return httpx.get(f"{self.uri}/readyz").is_success
        except httpx.TransportError:
            return False

    def inspect(self, part: str) -> str:
        return podman("inspect", "--format", part, self.name).stdout.strip()

    def python(self, code: str) -> str:
        """Run Python in the container; the last line of what it prints."""
        ran = podman("exec", self.name, "python", "-c", code)
        return (ran.stdout + ran.stderr).strip().rpartition("\n")[2]


@pytest.fixture(scope="session")
def image() -> str:
    if shutil.which("podman") is None or podman("image", "exists", IMAGE).returncode != 0:
        pytest.skip("there is no image: scripts/image tools, scripts/image build")
    return IMAGE


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Path, Backends]]:
    folder = Path(tempfile.mkdtemp(prefix="duckicelake-image-"))
    folder.chmod(0o755)
    try:
        with running_backends(folder) as backends:
            yield folder, backends
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def backends(servers: tuple[Path, Backends]) -> Backends:
    """A database and a bucket without a lake."""
    folder, first = servers
    return new_lake(folder, first, f"lake{next(_numbers)}")


@pytest.fixture
def container() -> Iterator[Callable[..., Container]]:
    """Make containers, which are removed in the end; keywords are settings."""
    made: list[Container] = []

    def make(*options: str, command: tuple[str, ...] = (), image: str = IMAGE, **settings: str) -> Container:
        environment = [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
        made.append(Container((*options, *environment), command, image))
        return made[-1]

    yield make
    for one in made:
        podman("rm", "--force", "--time", "0", one.name)
