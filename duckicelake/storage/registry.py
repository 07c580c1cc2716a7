"""Choose the store of a location by its scheme."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns
from typing import Final, TypeVar

from duckicelake.errors import InvalidRequestError, InvalidSettingsError
from duckicelake.storage.azure import AzureOptions, AzureStore
from duckicelake.storage.bucket_store import BucketStore
from duckicelake.storage.gcs import GcsOptions, GcsStore
from duckicelake.storage.local import LocalStore
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.protocol import NewObject, ObjectStore, StoredFile, unwrap
from duckicelake.storage.s3 import S3Options, S3Store

B = TypeVar("B", bound=BucketStore)
_SCHEME_EXAMPLES: Final = {
    "file": "an absolute path or file:///<path>",
    "s3": "s3://<bucket>/<path>",
    "gs": "gs://<bucket>/<path>",
    "abfss": "abfss://<container>@<account>.dfs.core.windows.net/<path>",
}


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Settings of each kind of store. clock: epoch milliseconds."""

    s3: S3Options = field(default_factory=S3Options)
    gcs: GcsOptions = field(default_factory=GcsOptions)
    azure: AzureOptions = field(default_factory=AzureOptions)
    clock: Callable[[], int] = field(default=lambda: time_ns() // 1_000_000)


class SchemeStore:
    """Several stores as one, by scheme. `check` checks the warehouse's."""

    def __init__(self, stores: Mapping[str, ObjectStore]) -> None:
        """Join stores by the scheme of their locations, the warehouse's first."""
        self._stores = dict(stores)

    def find_store(self, location: str) -> ObjectStore:
        """Return the store of a location. Raises InvalidRequestError if there is none."""
        scheme = canonicalize(location).partition("://")[0]
        if scheme not in self._stores:
            served = " and ".join(f"{scheme}://" for scheme in self._stores)
            raise InvalidRequestError(f"{location}: this server's warehouse and allowed locations are {served} only")
        return self._stores[scheme]

    def read(self, location: str, at_most: int | None = None) -> bytes:
        return self.find_store(location).read(location, at_most)

    def read_end(self, location: str, at_most: int) -> tuple[bytes, int]:
        return self.find_store(location).read_end(location, at_most)

    def download(self, location: str, path: Path) -> None:
        self.find_store(location).download(location, path)

    def write(self, location: str, data: bytes) -> None:
        self.find_store(location).write(location, data)

    def upload(self, location: str, path: Path) -> None:
        self.find_store(location).upload(location, path)

    def write_all(self, files: Sequence[NewObject]) -> None:
        for store, own in self._by_store(files):
            store.write_all(own)

    def write_derived(self, files: Sequence[NewObject]) -> None:
        for store, own in self._by_store(files):
            store.write_derived(own)

    def _by_store(self, files: Sequence[NewObject]) -> Iterator[tuple[ObjectStore, list[NewObject]]]:
        for store in self._stores.values():
            own = [file for file in files if self.find_store(file[0]) is store]
            if own:
                yield store, own

    def exists(self, location: str) -> bool:
        return self.find_store(location).exists(location)

    def size(self, location: str) -> int:
        return self.find_store(location).size(location)

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        found: dict[str, int | None] = {}
        for store in self._stores.values():
            own = [location for location in locations if self.find_store(location) is store]
            found.update(zip(own, store.sizes(own), strict=True))
        return [found[location] for location in locations]

    def delete(self, location: str) -> None:
        self.find_store(location).delete(location)

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        return self.find_store(folder).files_below(folder)

    def local_path(self, location: str) -> Path | None:
        return self.find_store(location).local_path(location)

    def check(self) -> None:
        next(iter(self._stores.values())).check()

    def close(self) -> None:
        for store in self._stores.values():
            store.close()


def open_store(warehouse: str, *allowed: str, options: StoreOptions | None = None) -> ObjectStore:
    """Open the store of a warehouse and its allowed locations; close it after use.

    Raises:
        InvalidSettingsError: a scheme isn't supported, or there are no credentials for S3.

    """
    roots: dict[str, str] = {}
    for name, root in (("warehouse", warehouse), *(("allowed location", root) for root in allowed)):
        roots.setdefault(_parse_scheme(name, root), root)
    stores = {scheme: _OPENERS[scheme](root, options or StoreOptions()) for scheme, root in roots.items()}
    return SchemeStore(stores) if len(stores) > 1 else next(iter(stores.values()))


_OPENERS: Final[Mapping[str, Callable[[str, StoreOptions], ObjectStore]]] = {
    "file": lambda root, _: LocalStore(Path(canonicalize(root).removeprefix("file://"))),
    "s3": lambda root, options: S3Store(root, options.s3),
    "gs": lambda root, options: GcsStore(root, options.gcs, options.clock),
    "abfss": lambda root, options: AzureStore(root, options.azure, options.clock),
}


def find_bucket_store(store: ObjectStore, locations: tuple[str, ...], kind: type[B]) -> B | None:
    """Return the part of a store that is of a kind, if any."""
    whole = unwrap(store)
    parts = (whole.find_store(location) if isinstance(whole, SchemeStore) else whole for location in locations)
    return next((part for part in parts if isinstance(part, kind)), None)


def _parse_scheme(name: str, root: str) -> str:
    try:
        scheme = canonicalize(root).partition("://")[0]
    except InvalidRequestError as error:
        raise InvalidSettingsError(
            f"{name} {root!r}: {error}. Write {' or '.join(_SCHEME_EXAMPLES.values())}"
        ) from error
    if scheme not in _SCHEME_EXAMPLES:
        raise InvalidSettingsError(
            f"{name} {root!r}: {scheme} isn't supported. Write {' or '.join(_SCHEME_EXAMPLES.values())}"
        )
    return scheme
