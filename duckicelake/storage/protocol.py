"""The object store protocol, and a store whose calls are measured (design D4)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from duckicelake.errors import AlreadyExistsError, InvalidRequestError

NewObject: TypeAlias = tuple[str, bytes]
"""A file to write: its location and content."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a listing: canonical location, bytes, and time of the write by the store's clock."""

    location: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """Files by location, in any spelling. Each method raises UnavailableError if the store doesn't answer."""

    def read(self, location: str, at_most: int | None = None) -> bytes:
        """Read a whole file. Raises FileMissingError, or InvalidRequestError if it has more bytes than `at_most`."""

    def read_end(self, location: str, at_most: int) -> tuple[bytes, int]:
        """Read up to `at_most` last bytes of a file, and its length. Raises FileMissingError."""

    def download(self, location: str, path: Path) -> None:
        """Copy a file to a new local path without holding it in memory. Raises FileMissingError."""

    def write(self, location: str, data: bytes) -> None:
        """Write a file, whole or not at all; it survives a crash after the return.

        A file of the same length stays as it is.

        Raises:
            AlreadyExistsError: a file of another length is there.

        """

    def upload(self, location: str, path: Path) -> None:
        """Write the content of a local file as `write` does, without holding it in memory.

        The file must not be written again: it may be the store's own, by another name.
        """

    def write_all(self, files: Sequence[NewObject]) -> None:
        """Write files as `write` does, in parallel; after an error some may be written."""

    def write_derived(self, files: Sequence[NewObject]) -> None:
        """Write files that can be made again at any time, each whole or not at all; replace those of another length.

        The files survive a crash of the process. On a local disk they may not survive a power loss soon after.
        """

    def exists(self, location: str) -> bool:
        """Return whether the file exists."""

    def size(self, location: str) -> int:
        """Return the file's length in bytes. Raises FileMissingError."""

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        """Return the lengths of files in order, None for each that doesn't exist."""

    def delete(self, location: str) -> None:
        """Delete the file, if it exists."""

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        """Yield all files below a folder, in no order. Symbolic links aren't followed."""

    def local_path(self, location: str) -> Path | None:
        """Return the file's path on this machine, None if the store isn't a file system."""

    def check(self) -> None:
        """Raise UnavailableError unless the store can be read and written now."""

    def close(self) -> None:
        """Close connections; the store isn't used afterwards."""


def build_length_error(location: str, length: int, at_most: int) -> InvalidRequestError:
    """Build the error for a file of more bytes than `at_most`."""
    return InvalidRequestError(f"{location} has {length} bytes, and no more than {at_most} are read")


def check_same_length(location: str, present: int, wanted: int) -> None:
    """Raise AlreadyExistsError if the present file has another length than the one to write."""
    if present != wanted:
        raise AlreadyExistsError(f"{location} exists with {present} bytes and won't be overwritten with {wanted}")


class StoreWrapper:
    """What a store that passes its calls on to another one has in common with others."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.close = store.close


def unwrap(store: ObjectStore) -> ObjectStore:
    """Return the store that does the work, behind all that is around it."""
    while isinstance(store, StoreWrapper):
        store = store.store
    return store


class MeasuredStore(StoreWrapper):
    """A store that makes each call in a block of `measure`, by the method's name.

    Listings aren't measured: their time is their reader's.
    """

    def __init__(self, store: ObjectStore, measure: Callable[[str], AbstractContextManager[object]]) -> None:
        super().__init__(store)
        self.measure = measure
        self.files_below = store.files_below
        self.local_path = store.local_path

    def read(self, location: str, at_most: int | None = None) -> bytes:
        with self.measure("read"):
            return self.store.read(location, at_most)

    def read_end(self, location: str, at_most: int) -> tuple[bytes, int]:
        with self.measure("read"):
            return self.store.read_end(location, at_most)

    def download(self, location: str, path: Path) -> None:
        with self.measure("download"):
            self.store.download(location, path)

    def write(self, location: str, data: bytes) -> None:
        with self.measure("write"):
            self.store.write(location, data)

    def upload(self, location: str, path: Path) -> None:
        with self.measure("upload"):
            self.store.upload(location, path)

    def write_all(self, files: Sequence[NewObject]) -> None:
        with self.measure("write_all"):
            self.store.write_all(files)

    def write_derived(self, files: Sequence[NewObject]) -> None:
        with self.measure("write_derived"):
            self.store.write_derived(files)

    def exists(self, location: str) -> bool:
        with self.measure("exists"):
            return self.store.exists(location)

    def size(self, location: str) -> int:
        with self.measure("size"):
            return self.store.size(location)

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        with self.measure("sizes"):
            return self.store.sizes(locations)

    def delete(self, location: str) -> None:
        with self.measure("delete"):
            self.store.delete(location)

    def check(self) -> None:
        with self.measure("check"):
            self.store.check()
