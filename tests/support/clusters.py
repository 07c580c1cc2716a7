"""What initdb makes, made once: written for disks that lose power, it takes longer than the rest of most tests."""

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from duckicelake.postgres.embedded import EmbeddedPostgres


def place_cluster(lake: Path) -> None:
    """Let a lake that is to be made have its Postgres, empty, already."""
    lake.mkdir(parents=True)
    subprocess.run(["cp", "-a", _template(), lake / "postgres"], check=True)


@cache
def _template() -> Path:
    # Not below pytest's folder: as root, Postgres runs as another user, and pytest closes its folder to others.
    folder = Path(tempfile.mkdtemp(prefix="duckicelake-cluster-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    EmbeddedPostgres(folder).stop()
    with (folder / "postgres" / "postgresql.conf").open("a") as settings:
        settings.write("fsync = off\n")
    return folder / "postgres"
