"""Where Delta tables lie, as DuckDB sees it: files by its own file systems, with its secrets."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from duckicelake.errors import FileMissing, Unavailable

_GLOB: Final = re.compile(r"[\[*?]")
_SPELLINGS: Final = (("s3a://", "s3://"), ("s3n://", "s3://"))


def spelled(location: str) -> str:
    """A location as DuckDB takes it."""
    if location[:1] == "/":
        return location
    if location.startswith("file:"):
        return "/" + location.removeprefix("file:").lstrip("/")
    for theirs, ours in _SPELLINGS:
        if location.startswith(theirs):
            return ours + location.removeprefix(theirs)
    return location


def escaped(location: str) -> str:
    """A pattern that only this location has."""
    return _GLOB.sub(r"[\g<0>]", spelled(location))


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a log; nothing asks for its `size`."""

    location: str
    modified_ms: int
    size: int = 0


class DuckStore:
    """What a log's reader asks for, answered by a DuckDB connection; without `timed`, nothing is told about when.

    `read` may be called by several threads at once.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, timed: bool = False) -> None:
        self._connection, self._timed = connection, timed

    def read(self, location: str, at_most: int | None = None) -> bytes:  # noqa: ARG002 - DuckDB reads files whole
        try:
            with self._connection.cursor() as own:
                found = own.execute("SELECT content FROM read_blob(?)", [escaped(location)]).fetchone()
        except duckdb.IOException as error:
            raise FileMissing(f"{location} can't be read: {error}") from error
        if found is None:
            raise FileMissing(f"{location} doesn't exist")
        content: bytes = found[0]
        return content

    def files_below(self, folder: str) -> Iterator[ListedFile]:
        """The files in a folder itself: what is read further below is known by name."""
        pattern = f"{escaped(folder)}/*"
        try:
            return iter(self._listed(pattern))
        except duckdb.Error as error:
            raise Unavailable(f"{folder} can't be listed: {error}") from error

    def size(self, location: str) -> int:
        return len(self.read(location))

    def local_path(self, location: str) -> Path | None:
        return None if "://" in spelled(location) else Path(spelled(location))

    def _listed(self, pattern: str) -> list[ListedFile]:
        if not self._timed or self.local_path(pattern) is not None:
            names = self._connection.execute("SELECT file FROM glob(?)", [pattern]).fetchall()
            return [ListedFile(name, self._modified_ms(name)) for (name,) in names]
        query = "SELECT filename, epoch_ms(last_modified) FROM read_blob(?)"
        return [ListedFile(*row) for row in self._connection.execute(query, [pattern]).fetchall()]

    def _modified_ms(self, name: str) -> int:
        """Of a local file; DuckDB's own answer has whole seconds."""
        return Path(name).stat().st_mtime_ns // 1_000_000 if self._timed else 0
