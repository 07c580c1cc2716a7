"""A store whose calls somebody measures."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from duckicelake.storage.objects import NewFile, ObjectStore, StoredFile


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

    def write_all(self, files: Sequence[NewFile]) -> None:
        with self.measure("write_all"):
            self.store.write_all(files)

    def write_derived(self, files: Sequence[NewFile]) -> None:
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
