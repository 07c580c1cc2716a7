"""Files that the server writes beside a table's metadata, for rows and deletes of DuckDB's (design §6.2).

They are gathered, as a disk is waited for whenever some are written, be they one or many, and that while others work.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Final
from uuid import UUID, uuid5

from duckicelake.catalog.access.confinement import write_all
from duckicelake.catalog.services import Services
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.storage.parallel import begun

_GATHERED: Final = 16 * 1024 * 1024
"""Bytes from which on files are written before there are all of them."""


class FilesBeside:
    """The files of a change, which are there once the block of `files_beside` has ended without an error."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._unwritten: dict[str, bytes] = {}
        self._bytes = 0
        self._begun: Callable[[], object] | None = None

    def add(self, metadata: TableMetadata, name: str, data: bytes, source: str = "") -> str:
        """Have a file written and return its path, `name` with a uuid of the content.

        Two sources of one snapshot may hold the same rows, but deletes tell files apart by their paths.
        """
        unique = uuid5(UUID(metadata.table_uuid), sha256(data).hexdigest() + source)
        path = f"{metadata.location}/metadata/{name.format(unique)}"
        self._unwritten[path] = data
        self._bytes += len(data)
        if self._bytes >= _GATHERED:
            self.begin()
        return path

    def begin(self) -> None:
        """Begin to write what was added since the last time, once that is written; raises as that did."""
        self._wait()
        if self._unwritten:
            self._begun = begun(partial(write_all, self._services, list(self._unwritten.items())))
        self._unwritten, self._bytes = {}, 0

    def finish(self) -> None:
        """Wait until all that was added is written."""
        self.begin()
        self._wait()

    def _wait(self) -> None:
        last, self._begun = self._begun, None
        if last is not None:
            last()


@contextmanager
def files_beside(services: Services) -> Iterator[FilesBeside]:
    """Files that are written as the block ends, before any row names them."""
    files = FilesBeside(services)
    yield files
    files.finish()
