"""Syncs files soon after they were written, for those whose writer need not wait until a power loss can't take them."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from threading import Lock, Thread
from time import sleep
from typing import Final

_REST_SECONDS: Final = 0.5
"""Files of so much time are synced together, for which the file system needs hardly more than for one."""


class Syncer:
    """Syncs files in the order in which they came, in a thread that lives while there are any. Threads share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: list[Path] = []
        self._is_working = False

    def later(self, paths: Iterable[Path]) -> None:
        """Have the files synced soon, and the folders that they lie in."""
        with self._lock:
            self._waiting += paths
            if self._is_working:
                return
            self._is_working = True
        Thread(target=self._work, name="duckicelake-syncer", daemon=True).start()

    def sync(self) -> None:
        """Sync all that has come, now."""
        with self._lock:
            paths, self._waiting = self._waiting, []
        for path in (*paths, *dict.fromkeys(path.parent for path in paths)):
            with contextlib.suppress(OSError):  # deleted meanwhile; what the disk has lost is found by who reads it
                sync(path)

    def _work(self) -> None:
        while True:
            sleep(_REST_SECONDS)
            self.sync()
            with self._lock:
                self._is_working = bool(self._waiting)
                if not self._is_working:
                    return


def sync(path: Path) -> None:
    """Return when the file, or the names in the folder, survive a power loss; OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
