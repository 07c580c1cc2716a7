"""Cache what plans of scans are made of: manifests, which never change, and requests to plan with their answers.

It is light: commands import it, but not numpy.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from threading import Lock
from typing import Any, Final, Generic, Protocol, TypeVar

DEFAULT_BYTES: Final = 256 << 20
_FILTER_SHARE: Final = 4
_ANSWER_SHARE: Final = 8
"""Of the cache's bytes, which filters and answers take besides the manifests."""
_ENTRY_BYTES: Final = 200
"""What an encoded file takes besides its bytes."""


class KeptManifest(Protocol):
    """A manifest in the cache.

    Attributes:
        encoded: Files that matched, encoded for tasks, by file id and what the client reads.
        encoded_bytes: Bytes of these.

    """

    encoded: dict[tuple[int, Hashable], bytes]
    encoded_bytes: int

    @property
    def manifest_id(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


Kept = TypeVar("Kept", bound=KeptManifest)
V = TypeVar("V")


class SizedCache(Generic[V]):
    """Keeps the values used last, up to a number of bytes. Threads may share it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: Hashable) -> V | None:
        """Return the value of the key, if it is kept; counts as a use."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: V, size: int) -> None:
        """Keep a value of so many bytes; nothing larger than half of the cache."""
        with self._lock:
            if 2 * size > self._most_bytes or key in self._kept:
                return
            self._kept[key] = value, size
            self._bytes += size
            while self._bytes > self._most_bytes:
                self._bytes -= self._kept.popitem(last=False)[1][1]


class ScanCache(Generic[Kept]):
    """Keeps the manifests used last, of all tables, up to a number of bytes. Threads may share it.

    Attributes:
        reading: Held by the thread that reads manifests; the others wait for what it reads.
        read_manifests: How many manifests were read since the start.
        unkept_arrays: How many arrays couldn't be kept in Postgres since the start.
        filters: Bound filters. answers: Answers of plans that are complete. Each takes a share of the bytes besides.

    """

    def __init__(self, most_bytes: int = DEFAULT_BYTES) -> None:
        self.reading = Lock()
        self.read_manifests = 0
        self.unkept_arrays = 0
        self.filters: SizedCache[Any] = SizedCache(most_bytes // _FILTER_SHARE)
        self.answers: SizedCache[Any] = SizedCache(most_bytes // _ANSWER_SHARE)
        self._most_bytes = most_bytes
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        return self._bytes

    def statistics(self) -> dict[str, int]:
        """Count the manifests kept and their bytes; since the start, those read, and arrays that Postgres lacks."""
        return {
            "manifests": len(self._kept),
            "bytes": self._bytes,
            "read": self.read_manifests,
            "unkept": self.unkept_arrays,
        }

    def find(self, manifest_ids: Iterable[int]) -> dict[int, Kept]:
        """Find those of the manifests that are kept, by id."""
        found: dict[int, Kept] = {}
        with self._lock:
            for manifest_id in manifest_ids:
                kept = self._kept.get(manifest_id)
                if kept is not None:
                    self._kept.move_to_end(manifest_id)
                    found[manifest_id] = kept
        return found

    def keep(self, manifest: Kept, more_bytes: int) -> None:
        """Keep a manifest, which has so many more bytes than before; those used longest ago leave if they must."""
        with self._lock:
            self._count(manifest, more_bytes)

    def add_encoded(self, manifest: Kept, form: Hashable, files: Mapping[int, bytes]) -> None:
        """Keep encoded files of a manifest, by file id, for plans of clients that read the same form."""
        with self._lock:
            new = {(file_id, form): data for file_id, data in files.items() if (file_id, form) not in manifest.encoded}
            size = sum(map(len, new.values())) + _ENTRY_BYTES * len(new)
            manifest.encoded |= new
            manifest.encoded_bytes += size
            self._count(manifest, size)

    def _count(self, manifest: Kept, more_bytes: int) -> None:
        manifest_id = manifest.manifest_id
        before = self._kept.pop(manifest_id, None)
        self._kept[manifest_id] = manifest
        self._bytes += more_bytes if before is manifest else manifest.nbytes - (before.nbytes if before else 0)
        while self._bytes > self._most_bytes and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= gone.nbytes
