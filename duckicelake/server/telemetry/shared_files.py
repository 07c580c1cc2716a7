"""Files that the workers of a server share: metrics and quota accounts."""

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_UN, flock
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Final
from weakref import finalize

from duckicelake.errors import UnavailableError

SHARED_FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Set before import in each of several workers, it makes any worker answer for all of them."""
_FILE_BYTES: Final = {"histogram": 4 << 20, "counter": 1 << 20, "gauge_livesum": 1 << 18}
"""By what the files' names begin with. A histogram takes about 4 kB for each combination of labels."""
_SLOT: Final = Struct("=8sd")
_MAX_SLOTS: Final = 1 << 14
_NEIGHBOUR_SLOTS: Final = 8


def find_shared_folder() -> Path | None:
    """Find the folder in which workers share metrics; None for a single worker."""
    folder = os.environ.get(SHARED_FOLDER_VARIABLE)
    return Path(folder) if folder else None


def reserve_metric_files(folder: Path) -> None:
    """Take the room that this process's metrics will need. Raises UnavailableError if the disk hasn't got it."""
    try:
        for kind, size in _FILE_BYTES.items():
            with (folder / f"{kind}_{os.getpid()}.db").open("ab") as file:
                allocate_bytes(file.fileno(), size)
    except OSError as error:
        raise UnavailableError(
            f"No room for metrics in {folder}: {error.strerror}; free some, or set TMPDIR"
        ) from error


def delete_dead_gauges(folder: Path) -> None:
    """Delete the gauges of workers that were killed."""
    for gauges in folder.glob("gauge_live*.db"):
        try:
            os.kill(int(gauges.stem.rpartition("_")[2]), 0)
        except ProcessLookupError:
            gauges.unlink(missing_ok=True)


def allocate_bytes(descriptor: int, size: int) -> None:
    """Have the file take so many bytes of the disk: no write to them fails any more."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    elif os.fstat(descriptor).st_size < size:  # on macOS
        os.truncate(descriptor, size)


class QuotaAccounts:
    """Moments by principal, in seconds of a clock that all workers have; 0.0 of those that aren't known."""

    def __init__(self, path: Path | None = None) -> None:
        """path: of the file by which workers share it; None: this process has it for itself.

        Raises UnavailableError.
        """
        size = _SLOT.size * _MAX_SLOTS
        self._mutex = Lock()
        self._file = None if path is None else _open_reserved(path, size)
        if self._file is not None:
            finalize(self, os.close, self._file)
        self._slots = mmap.mmap(-1 if self._file is None else self._file, size)

    def get(self, principal: str) -> float:
        with self._hold_lock():
            return self._find(principal)[1]

    def change(self, principal: str, then: Callable[[float], float]) -> None:
        """Have the moment be what `then` makes of it."""
        with self._hold_lock():
            place, moment = self._find(principal)
            _SLOT.pack_into(self._slots, place, _hash_name(principal), then(moment))

    def _find(self, principal: str) -> tuple[int, float]:
        """Return (the place that the principal has or gets, the moment there)."""
        name = _hash_name(principal)
        first = int.from_bytes(name, "little") % (_MAX_SLOTS - _NEIGHBOUR_SLOTS) * _SLOT.size
        oldest, least = first, float("inf")
        for place in range(first, first + _NEIGHBOUR_SLOTS * _SLOT.size, _SLOT.size):
            known, moment = _SLOT.unpack_from(self._slots, place)
            if known == name:
                return place, moment
            if moment < least:
                oldest, least = place, moment
        return oldest, 0.0

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        with self._mutex:
            if self._file is None:
                yield
                return
            flock(self._file, LOCK_EX)
            try:
                yield
            finally:
                flock(self._file, LOCK_UN)


def _open_reserved(path: Path, size: int) -> int:
    """Open the file, with room for all slots."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        allocate_bytes(descriptor, size)
    except OSError as error:
        raise UnavailableError(
            f"No room for quotas in {path.parent}: {error.strerror}; free some, or set TMPDIR"
        ) from error
    return descriptor


def _hash_name(principal: str) -> bytes:
    return blake2b(principal.encode(), digest_size=8).digest()
