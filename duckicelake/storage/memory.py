"""An object store in memory."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from duckicelake.errors import FileMissingError
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.protocol import NewObject, StoredFile, build_length_error, check_same_length


@dataclass(frozen=True, slots=True)
class MemoryStore:
    """Files in the memory of the process, for any scheme."""

    _files: dict[str, bytes] = field(default_factory=dict)
    _written: dict[str, int] = field(default_factory=dict)

    def read(self, location: str, at_most: int | None = None) -> bytes:
        try:
            data = self._files[canonicalize(location)]
        except KeyError:
            raise FileMissingError(f"{location} doesn't exist") from None
        if at_most is not None and len(data) > at_most:
            raise build_length_error(location, len(data), at_most)
        return data

    def read_end(self, location: str, at_most: int) -> tuple[bytes, int]:
        data = self.read(location)
        return data[max(len(data) - at_most, 0) :], len(data)

    def download(self, location: str, path: Path) -> None:
        path.write_bytes(self.read(location))

    def write(self, location: str, data: bytes) -> None:
        present = self._files.setdefault(canonicalize(location), bytes(data))
        self._written.setdefault(canonicalize(location), time.time_ns() // 1_000_000)
        check_same_length(location, len(present), len(data))

    def upload(self, location: str, path: Path) -> None:
        self.write(location, path.read_bytes())

    def write_all(self, files: Sequence[NewObject]) -> None:
        for location, data in files:
            self.write(location, data)

    def write_derived(self, files: Sequence[NewObject]) -> None:
        for location, data in files:
            if self.exists(location) and self.size(location) != len(data):
                self.delete(location)
            self.write(location, data)

    def exists(self, location: str) -> bool:
        return canonicalize(location) in self._files

    def size(self, location: str) -> int:
        return len(self.read(location))

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        return [self.size(location) if self.exists(location) else None for location in locations]

    def delete(self, location: str) -> None:
        self._files.pop(canonicalize(location), None)
        self._written.pop(canonicalize(location), None)

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        prefix = canonicalize(folder) + "/"
        for location, data in list(self._files.items()):
            if location.startswith(prefix):
                yield StoredFile(location, len(data), self._written[location])

    def local_path(self, location: str) -> Path | None:  # noqa: ARG002
        return None

    def check(self) -> None:
        return None

    def close(self) -> None:
        return None
