"""What clients of a lake on S3 are given to get at its files with: keys, or signatures, or neither."""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Generic, TypeVar

from duckicelake.storage.policy import StoreFolder
from duckicelake.storage.signer import Signer
from duckicelake.storage.vendor import Vendor

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TableFolders:
    """As clients spell them, with trailing slashes. own: location first, and DuckLake's folder, which are the table's.

    elsewhere: others in which it has files. written: those of all to which clients write.
    """

    own: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()
    written: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StorageReach:
    """The folders that a principal may use, of a table's; `uncovered` are those of its that it may not."""

    folders: tuple[StoreFolder, ...]
    uncovered: tuple[str, ...] = ()


class LruCache(Generic[K, V]):
    """What was put last, by key; safe to share between threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            return self._kept.get(key)

    def put(self, key: K, value: V) -> bool:
        """Keep the value; whether there was none of its key."""
        with self._lock:
            is_new = key not in self._kept
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return is_new


@dataclass(frozen=True, slots=True)
class StorageAccess:
    """client: how clients reach the store, as properties of Iceberg's; empty for a lake of local files."""

    client: Mapping[str, str] = field(default_factory=dict)
    vendor: Vendor | None = None
    signer: Signer | None = None
    folders: LruCache[int, tuple[object, TableFolders]] = field(default_factory=lambda: LruCache(1024))
    """The folders of the tables asked for last, with the version that they are of."""
    noted: LruCache[tuple[str, ...], None] = field(default_factory=lambda: LruCache(65536))
    """Who got which keys, as the audit trail knows by now."""

    @property
    def gives_nothing(self) -> bool:
        """Return whether clients get no credentials, so that the folders of tables need no lookup."""
        return self.vendor is None and self.signer is None


NO_ACCESS: Final = StorageAccess()
