"""Cache what plans of scans are made of: files of manifests, which never change, and requests with their answers.

It is light: commands import it, but not numpy.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from threading import Lock
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

DEFAULT_BYTES: Final = 256 << 20
_FILTER_SHARE: Final = 4
_ANSWER_SHARE: Final = 8
"""Of the cache's bytes, which filters and answers take besides the blocks."""
_ENCODED_SHARE: Final = 4
"""Of the cache's bytes, which encoded files take of those of the blocks."""
_ENTRY_BYTES: Final = 200
"""What an encoded file, or a manifest of a block, takes besides its bytes."""


class Block(Protocol):
    """What plans read of one or more manifests that follow each other. manifests: that of each."""

    @property
    def nbytes(self) -> int: ...

    @property
    def manifests(self) -> Sequence[Any]: ...


BlockKey: TypeAlias = tuple[tuple[int, ...], str]
"""The manifests of a block, and what is read of them."""
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


class EncodedFiles:
    """Keeps files encoded for tasks, by what the client reads, up to a number of bytes. Threads may share it.

    Those that no plan named while half of the bytes came anew leave.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._young: dict[Hashable, dict[int, bytes]] = {}
        self._old: dict[Hashable, dict[int, bytes]] = {}
        self._young_bytes = self._old_bytes = 0
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        return self._young_bytes + self._old_bytes

    def find(self, form: Hashable, file_ids: Sequence[int]) -> dict[int, bytes]:
        """Find those of the files that are kept, by id."""
        young, old = self._young.get(form, {}), self._old.get(form, {})
        found = {id_: data for id_, data in zip(file_ids, map(young.get, file_ids), strict=True) if data is not None}
        if old and len(found) < len(file_ids):
            again = {id_: old[id_] for id_ in file_ids if id_ not in found and id_ in old}
            self.add(form, again)
            found |= again
        return found

    def add(self, form: Hashable, files: Mapping[int, bytes]) -> None:
        """Keep encoded files, by id; not those that alone take more than half of the bytes."""
        with self._lock:
            young = self._young.get(form, {})
            new = {id_: data for id_, data in files.items() if id_ not in young}
            size = sum(map(len, new.values())) + _ENTRY_BYTES * len(new)
            if 2 * (self._young_bytes + size) > self._most_bytes:
                self._old, self._old_bytes = self._young, self._young_bytes
                self._young, self._young_bytes = {}, 0
            if 2 * size <= self._most_bytes:
                self._young.setdefault(form, {}).update(new)
                self._young_bytes += size


class ScanCache:
    """Keeps the blocks used last, of all tables, up to a number of bytes. Threads may share it.

    Attributes:
        reading: Held by the thread that reads manifests; the others wait for what it reads.
        read_manifests: How many manifests were read since the start.
        unkept_arrays: How many arrays couldn't be kept in Postgres since the start.
        encoded: Files that matched, encoded for tasks.
        filters: Bound filters. answers: Answers of plans that are complete. Each takes a share of the bytes besides.

    """

    def __init__(self, most_bytes: int = DEFAULT_BYTES) -> None:
        self.reading = Lock()
        self.read_manifests = 0
        self.unkept_arrays = 0
        self.encoded = EncodedFiles(most_bytes // _ENCODED_SHARE)
        self.filters: SizedCache[Any] = SizedCache(most_bytes // _FILTER_SHARE)
        self.answers: SizedCache[Any] = SizedCache(most_bytes // _ANSWER_SHARE)
        self._most_bytes = most_bytes - most_bytes // _ENCODED_SHARE
        self._blocks: OrderedDict[BlockKey, tuple[Block, int]] = OrderedDict()
        self._places: dict[tuple[int, str], tuple[BlockKey, int]] = {}
        self._bytes = 0
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        return self._bytes + self.encoded.nbytes

    def statistics(self) -> dict[str, int]:
        """Count the manifests kept and their bytes; since the start, those read, and arrays that Postgres lacks."""
        with self._lock:
            manifests = len({manifest_id for manifest_id, _ in self._places})
        return {
            "manifests": manifests,
            "bytes": self.nbytes,
            "read": self.read_manifests,
            "unkept": self.unkept_arrays,
        }

    def find(self, manifest_ids: tuple[int, ...], name: str) -> Any:
        """Find the block of just these manifests; None if there is none."""
        with self._lock:
            found = self._blocks.get((manifest_ids, name))
            if found is None:
                return None
            self._blocks.move_to_end((manifest_ids, name))
            return found[0]

    def find_manifest(self, manifest_id: int, name: str) -> Any:
        """Find a manifest by itself, in whatever block it is; None if it is in none."""
        with self._lock:
            place = self._places.get((manifest_id, name))
            if place is None:
                return None
            self._blocks.move_to_end(place[0])
            block = self._blocks[place[0]][0]
        return block.manifests[place[1]]

    def keep(self, manifest_ids: tuple[int, ...], name: str, block: Block) -> None:
        """Keep a block. Those whose manifests all are in newer ones leave, and those used longest ago if they must."""
        key = manifest_ids, name
        size = block.nbytes + _ENTRY_BYTES * len(manifest_ids)
        with self._lock:
            self._drop(key)
            self._blocks[key] = block, size
            self._bytes += size
            before = {self._places[id_, name][0] for id_ in manifest_ids if (id_, name) in self._places}
            for place, id_ in enumerate(manifest_ids):
                self._places[id_, name] = key, place
            for old in before:
                if not self._is_needed(old):
                    self._drop(old)
            while self._bytes > self._most_bytes and len(self._blocks) > 1:
                self._drop(next(iter(self._blocks)))

    def _is_needed(self, key: BlockKey) -> bool:
        return any(self._places.get((id_, key[1]), (None, 0))[0] == key for id_ in key[0])

    def _drop(self, key: BlockKey) -> None:
        _, size = self._blocks.pop(key, (None, 0))
        self._bytes -= size
        for id_ in key[0] if size else ():
            if self._places.get((id_, key[1]), (None, 0))[0] == key:
                del self._places[id_, key[1]]
