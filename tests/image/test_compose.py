"""The Compose file, by Docker: services start in order, keep the lake, and name what is missing."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from scripts.backends_job.processes import free_port
from tests.image.conftest import IMAGE, podman
from tests.support.documents import ROOT
from tests.support.waits import wait_until

pytestmark = [pytest.mark.image, pytest.mark.timeout(600), pytest.mark.usefixtures("image")]
COMPOSE = Path.home() / ".cache" / "duckicelake" / "bin" / "docker-compose"
STAND_INS = {
    IMAGE: "duckicelake",
    "localhost/postgres-17": "postgres:17",
    "localhost/minio": "minio/minio:RELEASE.2025-09-07T16-13-09Z",
}
"""Images that `scripts/image` has built here, and their names in the file."""
START_SECONDS = 120


class Project:
    """The services of deploy/compose.yaml on a Docker of the test's own, on free ports."""

    def __init__(self, folder: Path, socket: Path) -> None:
        self.files, self.port, store = folder, free_port(), free_port()
        self.keys = {"s3.access-key-id": "lake", "s3.secret-access-key": "quackquack"}
        self._docker = os.environ | {"DOCKER_HOST": f"unix://{socket}"}
        (folder / "env").write_text("POSTGRES_PASSWORD=secret\nMINIO_USER=lake\nMINIO_PASSWORD=quackquack\n")
        (folder / "ports.yaml").write_text(
            "services:\n"
            f'  minio: {{ports: !override ["127.0.0.1:{store}:9000"]}}\n'
            f'  server: {{ports: !override ["127.0.0.1:{self.port}:8181"],'
            f" environment: {{DUCKICELAKE_S3_PUBLIC_ENDPOINT: http://localhost:{store}}}}}\n"
        )

    def compose(self, *arguments: str, env: str = "env") -> subprocess.CompletedProcess[str]:
        files = ("--file", str(ROOT / "deploy" / "compose.yaml"), "--file", str(self.files / "ports.yaml"))
        command = [str(COMPOSE), "--env-file", str(self.files / env), *files, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=self._docker, timeout=300)

    def docker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", *arguments], capture_output=True, text=True, check=True, env=self._docker, timeout=300
        )

    def start(self) -> None:
        started = self.compose("up", "--detach", "--wait", "--no-build")
        assert started.returncode == 0, started.stderr + self.compose("logs", "--no-color").stdout

    def catalog(self) -> RestCatalog:
        return RestCatalog("lake", uri=f"http://127.0.0.1:{self.port}", **self.keys)

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz").is_success
        except httpx.TransportError:
            return False


@pytest.fixture
def project() -> Iterator[Project]:
    """A project without containers. The Docker makes no rule of the firewall: the ports are forwarded by its proxy."""
    if not COMPOSE.exists() or shutil.which("dockerd") is None:
        pytest.skip("there is no Docker or Compose: scripts/image tools")
    folder = Path(tempfile.mkdtemp(prefix="duckicelake-docker-"))  # short: Docker's sockets are in it
    socket, data = folder / "docker.sock", folder / "data"
    command = ["dockerd", "--host", f"unix://{socket}", "--data-root", str(data), "--exec-root", str(folder / "exec")]
    command += ["--pidfile", str(folder / "pid"), "--bridge=none", "--iptables=false", "--ip-forward=false"]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    made = Project(folder, socket)
    try:
        wait_until(socket.exists, START_SECONDS)
        for built, name in STAND_INS.items():
            archive = folder / "image.tar"
            saved = podman("save", "--output", str(archive), built)
            assert saved.returncode == 0, f"{saved.stderr}: scripts/image build, scripts/image peers"
            loaded = made.docker("load", "--quiet", "--input", str(archive)).stdout.split()[-1]
            made.docker("tag", loaded, name)
            archive.unlink()
        yield made
        made.compose("down", "--volumes", "--timeout", "5")
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
        subprocess.run(["umount", str(data)], capture_output=True, check=False)  # Docker mounts it on itself
        shutil.rmtree(folder, ignore_errors=True)


def test_services_start_in_order_and_keep_the_lake(project: Project) -> None:
    (project.files / "empty").write_text("MINIO_USER=lake\nMINIO_PASSWORD=quackquack\n")
    refused = project.compose("up", "--detach", "--no-build", env="empty")
    assert refused.returncode != 0
    assert "set POSTGRES_PASSWORD in .env" in refused.stderr

    project.start()
    birds = pa.table({"name": ["penguin", "duck"], "legs": pa.array([2, 2], pa.int32())})
    catalog = project.catalog()
    catalog.create_namespace("zoo")
    catalog.create_table("zoo.birds", birds.schema).append(birds)

    assert project.compose("kill", "server").returncode == 0
    assert project.compose("restart", "postgres", "minio").returncode == 0
    project.start()
    assert project.catalog().load_table("zoo.birds").scan().to_arrow().num_rows == birds.num_rows

    assert project.compose("down", "--timeout", "45").returncode == 0
    project.start()
    assert project.catalog().load_table("zoo.birds").scan().to_arrow().num_rows == birds.num_rows
    (server,) = project.compose("ps", "--quiet", "server").stdout.split()
    assert (
        project.docker("inspect", "--format", "{{.State.Health.Status}} {{.HostConfig.ReadonlyRootfs}}", server).stdout
        == "healthy true\n"
    )
