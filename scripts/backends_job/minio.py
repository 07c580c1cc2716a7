"""MinIO, a real S3 server with STS: the one on the PATH, else one that Go builds once, kept under the home folder."""

import fcntl
import os
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from types_boto3_s3 import S3Client

from scripts.backends_job.processes import BackendError
from scripts.backends_job.servers import HOST, Server, State

PACKAGE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
REGION = "us-east-1"
BUCKET = "lake"
KMS_KEY = "lake-key"
"""The name of the only key of its KMS, which encrypts what asks for that."""


@dataclass(frozen=True, slots=True)
class Minio:
    """A running MinIO and its administrator's keys."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str = REGION

    def client(self) -> S3Client:
        """Its buckets by the administrator's hands; close it after use."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 3}),
        )


class MinioServer(Server):
    """One disk, loopback only, no browser console, nothing in the home folder."""

    name = "minio"

    def prepare(self, state: State) -> tuple[Sequence[str], Mapping[str, str]]:
        self.data.mkdir(exist_ok=True)
        command = [str(program()), "server", str(self.data), "--address", f"{HOST}:{state.port}"]
        return [*command, "--certs-dir", str(self.folder / "no-certificates"), "--quiet"], {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder),
            "MINIO_ROOT_USER": state.user,
            "MINIO_ROOT_PASSWORD": state.password,
            "MINIO_SITE_REGION": REGION,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "MINIO_KMS_SECRET_KEY": f"{KMS_KEY}:{b64encode(sha256(state.password.encode()).digest()).decode()}",
        }

    def is_ready(self, state: State) -> bool:
        try:
            with urlopen(f"http://{HOST}:{state.port}/minio/health/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


def program() -> Path:
    """The MinIO binary; built if there is none, once even if several ask at the same time."""
    on_path = shutil.which("minio")
    return Path(on_path) if on_path else built("minio", _build)


def built(name: str, build: Callable[[Path], None]) -> Path:
    """What is kept under the home folder by this name; `build` makes it, in a folder of its own, if it isn't there."""
    folder = Path.home() / ".cache" / "duckicelake" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / name).exists():
            build(folder)
    return folder / name


def find_go(server: str) -> str:
    """Go's command; BackendError without it."""
    go = shutil.which("go")
    if go is None:
        raise BackendError(
            f"{server} is neither installed nor can it be built, for which Go is missing. Put it on the PATH, or "
            "install Go 1.25 or newer (Debian and Ubuntu: apt-get install golang, macOS: brew install go)"
        )
    return go


def _build(folder: Path) -> None:
    go = find_go("MinIO, the S3 server,")
    say(f"building MinIO with {go}, about 3 minutes; it is kept in {folder}")
    environment = {"GOBIN": str(folder), "GOFLAGS": "-modcacherw"}
    run_build([go, "install", "-trimpath", "-ldflags=-s -w", f"{PACKAGE}@{VERSION}"], folder, environment)


def run_build(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Run a command that builds a server; BackendError if it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=False,
    )
    if done.returncode:
        raise BackendError(f"building failed, as said above: {' '.join(command)}")


def say(text: str) -> None:
    print(f"backends: {text}", file=sys.stderr, flush=True)


def found(state: State) -> Minio:
    return Minio(f"http://{HOST}:{state.port}", state.user, state.password)


def create_bucket(minio: Minio, name: str = BUCKET) -> None:
    """Make a bucket unless it is there."""
    client = minio.client()
    try:
        client.create_bucket(Bucket=name)
    except ClientError as error:
        if error.response["Error"]["Code"] != "BucketAlreadyOwnedByYou":
            raise
    finally:
        client.close()


@contextmanager
def running_minio(folder: Path) -> Iterator[Minio]:
    """A MinIO without buckets that runs while the block does."""
    folder.mkdir(parents=True, exist_ok=True)
    server = MinioServer(folder)
    try:
        yield found(server.up())
    finally:
        server.down()
