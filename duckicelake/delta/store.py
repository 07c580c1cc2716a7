"""What a log's reader asks of the place where tables lie; `storage.objects.ObjectStore` is one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol


class LogFile(Protocol):
    """A file as its store lists it: the canonical location, bytes, and when it was written by the store's clock."""

    @property
    def location(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def modified_ms(self) -> int: ...


class LogStore(Protocol):
    """Files by location, any spelling of it; FileMissing if there is none, Unavailable if the store is silent.

    Where it is no file system, several threads read from it at once.
    """

    def read(self, location: str, at_most: int | None = None) -> bytes:
        """The whole file; InvalidRequest if it has more bytes than `at_most`."""

    def files_below(self, folder: str) -> Iterator[LogFile]:
        """All files below a folder, in no order; none if it isn't there."""

    def size(self, location: str) -> int:
        """The file's length in bytes."""

    def local_path(self, location: str) -> Path | None:
        """The file's path on this machine, or None if the store isn't a file system."""
