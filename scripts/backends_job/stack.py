"""Both servers, and the settings by which duckicelake finds them."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.backends_job.minio import BUCKET, Minio, MinioServer, create_bucket, found
from scripts.backends_job.postgres import Postgres, create_database
from scripts.backends_job.servers import HOST, Server


@dataclass(frozen=True, slots=True)
class Backends:
    """A database and a bucket for one lake."""

    database_url: str
    minio: Minio
    bucket: str = BUCKET

    def environment(self) -> dict[str, str]:
        """What to export for duckicelake."""
        return {
            "DUCKICELAKE_DATABASE_URL": self.database_url,
            "DUCKICELAKE_WAREHOUSE": f"s3://{self.bucket}",
            "DUCKICELAKE_S3_ENDPOINT": self.minio.endpoint,
            "DUCKICELAKE_S3_REGION": self.minio.region,
            "DUCKICELAKE_S3_PATH_STYLE": "true",
            "DUCKICELAKE_S3_ACCESS_KEY_ID": self.minio.access_key,
            "DUCKICELAKE_S3_SECRET_ACCESS_KEY": self.minio.secret_key,
        }


def servers(folder: Path) -> tuple[Server, ...]:
    return Postgres(folder), MinioServer(folder)


def up(folder: Path, postgres_port: int | None = None, s3_port: int | None = None) -> Backends:
    """Start what doesn't run, and make what isn't there. BackendError says what to do where that is impossible."""
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder):
        minio = found(MinioServer(folder).up(s3_port))
        database_url = create_database(Postgres(folder).up(postgres_port))
        create_bucket(minio)
    return Backends(database_url, minio)


def new_lake(folder: Path, backends: Backends, name: str) -> Backends:
    """Another database and another bucket on the same servers, made unless they are there."""
    with held(folder):
        state = Postgres(folder).up()
        create_bucket(backends.minio, name)
        return Backends(create_database(state, name), backends.minio, name)


def down(folder: Path) -> list[str]:
    """Stop what runs; its names. Data, ports and passwords stay for the next time."""
    if not folder.is_dir():
        return []
    with held(folder):
        return [server.name for server in servers(folder) if server.down()]


def status(folder: Path) -> dict[str, str]:
    """Of each server where it runs, or that it doesn't."""
    report = {}
    for server in servers(folder):
        state = server.state()
        runs = state is not None and state.process.runs()
        report[server.name] = f"runs on {HOST}:{state.port}, process {state.pid}" if state and runs else "doesn't run"
    return report


@contextmanager
def running_backends(folder: Path) -> Iterator[Backends]:
    """Both servers while the block runs; as root, see `running_postgres` on the folder."""
    try:
        yield up(folder)
    finally:
        down(folder)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """One `up` or `down` at a time."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
