"""The files in which workers keep their metrics for each other, as prometheus_client lays them out.

It lets a file grow as labels come, in the middle of a request. On a full disk that request would fail, and all later
ones, so each file is made beforehand, large enough for all labels that there are.
"""

import os
from pathlib import Path
from typing import Final

from duckicelake.errors import Unavailable

SHARED_FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Set before import in each of several workers, it makes any worker answer for all of them."""

_BYTES: Final = {"histogram": 4 << 20, "counter": 1 << 20, "gauge_livesum": 1 << 18}
"""By what the files' names begin with. A histogram takes about 4 kB for each combination of labels."""


def shared_folder() -> Path | None:
    """Where this process and its fellow workers keep their metrics, if they do."""
    folder = os.environ.get(SHARED_FOLDER_VARIABLE)
    return Path(folder) if folder else None


def reserve(folder: Path) -> None:
    """Take the room that this process's metrics will need. Raises Unavailable if the disk hasn't got it."""
    try:
        for kind, size in _BYTES.items():
            with (folder / f"{kind}_{os.getpid()}.db").open("ab") as file:
                allocate(file.fileno(), size)
    except OSError as error:
        raise Unavailable(f"No room for metrics in {folder}: {error.strerror}; free some, or set TMPDIR") from error


def forget_the_dead(folder: Path) -> None:
    """What a worker that was killed had open counts no more."""
    for gauges in folder.glob("gauge_live*.db"):
        try:
            os.kill(int(gauges.stem.rpartition("_")[2]), 0)
        except ProcessLookupError:
            gauges.unlink(missing_ok=True)


def allocate(descriptor: int, size: int) -> None:
    """Have the file take so many bytes of the disk: no write to them fails any more."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    elif os.fstat(descriptor).st_size < size:  # on macOS
        os.truncate(descriptor, size)
