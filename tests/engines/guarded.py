"""Lakes on S3 whose server asks who its clients are, and gives them keys for S3."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

from scripts.backends_job.minio import Minio, create_bucket
from scripts.backends_job.stack import Backends
from scripts.demo_job.backend import CLIENT, SECRET, on_servers
from scripts.demo_job.server import RunningLake, running_lake
from tests.engines.conftest import new_folder

CREDENTIAL = f"{CLIENT}:{SECRET}"


@contextmanager
def guarded_lake(minio: Minio, purpose: str, given: Mapping[str, str] | None = None) -> Iterator[RunningLake]:
    """Serve a new lake, with a Postgres of its own, in a new bucket whose name begins with the purpose.

    given: more settings.
    """
    bucket = f"{purpose}-{uuid4().hex[:12]}"
    create_bucket(minio, bucket)
    whole = on_servers(Backends("", minio, bucket))
    settings = {key: value for key, value in whole.settings.items() if key != "DUCKICELAKE_DATABASE_URL"}
    backend = replace(whole, settings={**settings, **(given or {})})
    with new_folder() as folder, running_lake(folder / "lake", folder / "log", backend=backend) as running:
        yield running
