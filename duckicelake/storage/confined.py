"""A store of which a warehouse reaches its own places alone, whatever paths its catalog names."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from duckicelake.errors import InvalidRequestError
from duckicelake.storage.local import find_links, find_path, follow_links
from duckicelake.storage.policy import LocationPolicy, canonicalize
from duckicelake.storage.protocol import MeasuredStore, NewObject, ObjectStore, StoredFile, StoreWrapper


def confine(store: ObjectStore, policy: LocationPolicy) -> ObjectStore:
    """Return the store confined to the places of a warehouse, and to no other's if it was confined before."""
    if isinstance(store, MeasuredStore):
        return MeasuredStore(confine(store.store, policy), store.measure)
    return ConfinedStore(store.store if isinstance(store, ConfinedStore) else store, policy)


class ConfinedStore(StoreWrapper):
    """A store that refuses other places with InvalidRequestError. Symbolic links count as what they lead to."""

    def __init__(self, store: ObjectStore, policy: LocationPolicy) -> None:
        super().__init__(store)
        self.check = store.check
        self._policy = policy

    @cached_property
    def _real_policy(self) -> LocationPolicy:
        """The policy with links followed, as they led when it was first asked for."""
        policy = self._policy
        return replace(
            policy,
            warehouse=self._follow(policy.warehouse),
            allowed=tuple(map(self._follow, policy.allowed)),
            lake_path=policy.lake_path and self._follow(policy.lake_path),
            foreign=policy.foreign and tuple(map(self._follow, policy.foreign)),
        )

    def _follow(self, location: str) -> str:
        path = find_path(self.store, location)
        return canonicalize(location if path is None else follow_links(location, path))

    def _confine(self, *locations: str) -> None:
        by_folder: defaultdict[str, list[str]] = defaultdict(list)
        for location in locations:
            self._policy.check_held(location)
            folder, _, name = canonicalize(location).rpartition("/")
            by_folder[folder].append(name)
        for folder, names in by_folder.items():
            for linked in find_links(self.store, folder, names):
                if not self._real_policy.holds(self._follow(linked)):
                    raise InvalidRequestError(f"{linked} leads out of the warehouse by a symbolic link")

    def read(self, location: str, at_most: int | None = None) -> bytes:
        self._confine(location)
        return self.store.read(location, at_most)

    def read_end(self, location: str, at_most: int) -> tuple[bytes, int]:
        self._confine(location)
        return self.store.read_end(location, at_most)

    def download(self, location: str, path: Path) -> None:
        self._confine(location)
        self.store.download(location, path)

    def write(self, location: str, data: bytes) -> None:
        self._confine(location)
        self.store.write(location, data)

    def upload(self, location: str, path: Path) -> None:
        self._confine(location)
        self.store.upload(location, path)

    def write_all(self, files: Sequence[NewObject]) -> None:
        self._confine(*_list_locations(files))
        self.store.write_all(files)

    def write_derived(self, files: Sequence[NewObject]) -> None:
        self._confine(*_list_locations(files))
        self.store.write_derived(files)

    def exists(self, location: str) -> bool:
        self._confine(location)
        return self.store.exists(location)

    def size(self, location: str) -> int:
        self._confine(location)
        return self.store.size(location)

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        self._confine(*locations)
        return self.store.sizes(locations)

    def delete(self, location: str) -> None:
        self._confine(location)
        self.store.delete(location)

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        self._confine(folder)
        return self.store.files_below(folder)

    def local_path(self, location: str) -> Path | None:
        self._confine(location)
        return self.store.local_path(location)


def _list_locations(files: Iterable[NewObject]) -> Iterator[str]:
    return (location for location, _ in files)
