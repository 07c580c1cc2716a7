"""A real S3 server, which each test process starts when the first test asks for it; every test has its own bucket."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from duckicelake.storage.s3 import S3Options
from scripts.backends_job.minio import Minio, create_bucket, running_minio

NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Bucket:
    """An empty bucket; `uri` is `s3://<name>`."""

    name: str
    minio: Minio

    @property
    def uri(self) -> str:
        return f"s3://{self.name}"

    def options(self) -> S3Options:
        """How the server reaches it."""
        minio = self.minio
        return S3Options(
            endpoint=minio.endpoint,
            region=minio.region,
            path_style=True,
            access_key_id=minio.access_key,
            secret_access_key=minio.secret_key,
        )


@pytest.fixture(scope="session")
def minio() -> Iterator[Minio]:
    folder = Path(tempfile.mkdtemp(prefix="duckicelake-minio-"))
    try:
        with running_minio(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def bucket(minio: Minio) -> Bucket:
    return make_bucket(minio)


@pytest.fixture(scope="module")
def module_bucket(minio: Minio) -> Bucket:
    return make_bucket(minio)


def make_bucket(minio: Minio) -> Bucket:
    name = f"bucket-{next(NUMBERS)}"
    create_bucket(minio, name)
    return Bucket(name, minio)
