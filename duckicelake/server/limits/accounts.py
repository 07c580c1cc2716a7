"""Up to when each principal has paid for what it was given: in memory that the workers of a server share.

A table of slots, each the digest of a name and a moment. A name has a few slots that it may be in; where others have
all of them, the moment that is longest ago is forgotten.
"""

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

from duckicelake.errors import Unavailable
from duckicelake.server.telemetry.metric_files import allocate

_SLOT: Final = Struct("=8sd")
_SLOTS: Final = 1 << 14
_NEIGHBOURS: Final = 8


class Accounts:
    """Moments by principal, in seconds of a clock that all workers have; 0.0 of those that aren't known."""

    def __init__(self, path: Path | None = None) -> None:
        """path: of the file by which workers share it; None: this process has it for itself. Raises Unavailable."""
        size = _SLOT.size * _SLOTS
        self._mutex = Lock()
        self._file = None if path is None else _reserved(path, size)
        self._slots = mmap.mmap(-1 if self._file is None else self._file, size)

    def get(self, principal: str) -> float:
        with self._locked():
            return self._find(principal)[1]

    def change(self, principal: str, then: Callable[[float], float]) -> None:
        """Have the moment be what `then` makes of it."""
        with self._locked():
            place, moment = self._find(principal)
            _SLOT.pack_into(self._slots, place, _digest(principal), then(moment))

    def _find(self, principal: str) -> tuple[int, float]:
        """(the place that the principal has or gets, the moment there)."""
        name = _digest(principal)
        first = int.from_bytes(name, "little") % (_SLOTS - _NEIGHBOURS) * _SLOT.size
        oldest, least = first, float("inf")
        for place in range(first, first + _NEIGHBOURS * _SLOT.size, _SLOT.size):
            known, moment = _SLOT.unpack_from(self._slots, place)
            if known == name:
                return place, moment
            if moment < least:
                oldest, least = place, moment
        return oldest, 0.0

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._mutex:
            if self._file is None:
                yield
                return
            flock(self._file, LOCK_EX)
            try:
                yield
            finally:
                flock(self._file, LOCK_UN)


def _reserved(path: Path, size: int) -> int:
    """The file, open for good, with room for all slots, whichever worker comes first."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        allocate(descriptor, size)
    except OSError as error:
        raise Unavailable(f"No room for quotas in {path.parent}: {error.strerror}; free some, or set TMPDIR") from error
    return descriptor


def _digest(principal: str) -> bytes:
    return blake2b(principal.encode(), digest_size=8).digest()
