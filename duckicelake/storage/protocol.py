"""The object store protocol, and a store whose calls are measured (design D4)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from duckicelake.errors import AlreadyExists, InvalidRequest

NewObject: TypeAlias = tuple[str, bytes]
"""A file to write: its location and all that is in it."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as its store lists it: the canonical location, bytes, and when it was written by the store's clock."""

    location: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """Files by location, any spelling of it. Every method raises Unavailable if the store doesn't answer."""

    def read(self, location: str, at_most: int | None = None) -> bytes:
        """The whole file; FileMissing if there is none, InvalidRequest if it has more bytes than `at_most`."""

    def read_end(self, location: str, at_most: int) -> tuple[bytes, int]:
        """The file's last bytes, up to so many, and its length; FileMissing as above."""

    def download(self, location: str, path: Path) -> None:
        """Make a copy of the file at a new path of this machine, without holding it in memory; FileMissing as above."""

    def write(self, location: str, data: bytes) -> None:
        """Make the file exist, all of it or nothing, surviving a crash after the return.

        A file of the same length is left alone; AlreadyExists if one of another length is there.
        """

    def write_all(self, files: Sequence[NewObject]) -> None:
        """Write each as `write` does, sooner than one by one; after an error some may be there."""

    def write_derived(self, files: Sequence[NewObject]) -> None:
        """Make files exist that can be made again at any time, each all of it or nothing; one of another length goes.

        They survive a crash of the process, but where a disk has to be waited for perhaps not a power loss soon after.
        """

    def exists(self, location: str) -> bool:
        """Whether the file is there."""

    def size(self, location: str) -> int:
        """The file's length in bytes; FileMissing if there is none."""

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        """The lengths of many files in their order, None for one that isn't there."""

    def delete(self, location: str) -> None:
        """Make the file not exist; fine if it already doesn't."""

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        """All files below a folder, in no order; none if it isn't there. Symbolic links aren't followed."""

    def local_path(self, location: str) -> Path | None:
        """The file's path on this machine, or None if the store isn't a file system."""

    def check(self) -> None:
        """Raise Unavailable unless the store can be read and written now."""

    def close(self) -> None:
        """Let go of connections; the store isn't used afterwards."""


def check_length(location: str, length: int, at_most: int | None) -> None:
    """Raise InvalidRequest if a file is longer than what may be read of it; None: it may be of any length."""
    if at_most is not None and length > at_most:
        raise InvalidRequest(f"{location} has {length} bytes, and no more than {at_most} are read")


def check_same_length(location: str, present: int, wanted: int) -> None:
    """Raise AlreadyExists if a file that is to be written is there with another length."""
    if present != wanted:
        raise AlreadyExists(f"{location} exists with {present} bytes and won't be overwritten with {wanted}")


@dataclass(frozen=True, slots=True)
class MeasuredStore:
    """The same store; each call is made in a block that `measure` gives for its method's name.

    Listings take as long as their reader does, so they aren't measured.
    """

    store: ObjectStore
    measure: Callable[[str], AbstractContextManager[object]]

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

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        return self.store.files_below(folder)

    def local_path(self, location: str) -> Path | None:
        return self.store.local_path(location)

    def check(self) -> None:
        with self.measure("check"):
            self.store.check()

    def close(self) -> None:
        self.store.close()
