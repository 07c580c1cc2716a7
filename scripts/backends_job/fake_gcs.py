"""A Google Cloud Storage in memory: fake-gcs-server behind `fake_gcs_server/main.go`, which Go builds once."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from scripts.backends_job.minio import built, find_go, run_build, say
from scripts.backends_job.servers import HOST, Server, State

SOURCES = Path(__file__).parent / "fake_gcs_server"


@dataclass(frozen=True, slots=True)
class FakeGcs:
    """A running one. It asks for no credentials."""

    endpoint: str

    def create_bucket(self, name: str) -> None:
        """Make a bucket."""
        body = json.dumps({"name": name}).encode()
        with urlopen(Request(f"{self.endpoint}/storage/v1/b?project=lake", body)) as answer:
            answer.read()


class FakeGcsServer(Server):
    """Loopback only, and nothing on the disk."""

    name = "fake-gcs"

    def prepare(self, state: State) -> tuple[Sequence[str], Mapping[str, str]]:
        return [str(program()), "-address", f"{HOST}:{state.port}"], {}

    def is_ready(self, state: State) -> bool:
        try:
            with urlopen(f"http://{HOST}:{state.port}/storage/v1/b?project=lake", timeout=2) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


def program() -> Path:
    """The binary of these sources, built if there is none."""
    sources = b"".join((SOURCES / name).read_bytes() for name in ("go.mod", "main.go"))
    name = f"fake-gcs-{sha256(sources).hexdigest()[:12]}"

    def build(folder: Path) -> None:
        go = find_go("fake-gcs-server, the store of Google's protocol,")
        say(f"building fake-gcs-server with {go}, about 2 minutes; it is kept in {folder}")
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(SOURCES, copy, dirs_exist_ok=True)
            command = [go, "build", "-mod=mod", "-trimpath", "-ldflags=-s -w", "-o", str(folder / name), "."]
            run_build(command, Path(copy), {"GOFLAGS": "-modcacherw"})

    return built(name, build)


@contextmanager
def running_fake_gcs(folder: Path) -> Iterator[FakeGcs]:
    """One without buckets that runs while the block does."""
    folder.mkdir(parents=True, exist_ok=True)
    server = FakeGcsServer(folder)
    try:
        yield FakeGcs(f"http://{HOST}:{server.up().port}")
    finally:
        server.down()
