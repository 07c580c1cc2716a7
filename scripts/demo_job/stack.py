"""A lake on Postgres and S3 for as long as a job runs, and a log of what its server said."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from scripts.backends_job.stack import running_backends
from scripts.demo_job.backend import on_servers
from scripts.demo_job.server import RunningLake, running_lake


@contextmanager
def lake_on_servers(settings: Mapping[str, str] | None = None) -> Iterator[RunningLake]:
    """A fresh lake with servers of its own; nothing of them is left afterwards."""
    scratch = Path(mkdtemp(prefix="duckicelake-stack-"))
    scratch.chmod(0o711)  # as root, Postgres runs as another user, who must get through
    try:
        with (
            running_backends(scratch / "backends") as backends,
            running_lake(scratch / "lake", scratch / "server.log", settings, on_servers(backends)) as lake,
        ):
            yield lake
    finally:
        shutil.rmtree(scratch)
