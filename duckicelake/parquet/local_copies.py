"""Temporary files of this machine, and local copies of stored files: whole, or the Parquet footer only."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from duckicelake.errors import UnavailableError
from duckicelake.parquet.footer import MAX_FOOTER_BYTES
from duckicelake.storage.protocol import ObjectStore
from duckicelake.storage.threads import run_in_parallel

_MAGIC: Final = b"PAR1"
_WRITE_FAILURES: Final = ("Could not write file", "No space left on device")
_TRAILER_BYTES: Final = 4 + len(_MAGIC)
_GUESSED_BYTES: Final = 64 << 10
"""Bytes that hold most footers: a distant store then needs one request."""


@contextmanager
def open_temporary_folder() -> Iterator[Path]:
    """Open an empty folder of this machine, which ends with the block.

    Raises:
        UnavailableError: the machine has no room for it, or for what the block writes by Python.

    """
    try:
        with tempfile.TemporaryDirectory(prefix="duckicelake-") as folder:
            yield Path(folder)
    except OSError as error:
        raise _build_disk_error(error) from error


@contextmanager
def translate_disk_errors() -> Iterator[None]:
    """Translate a full disk for files that Python or DuckDB writes into UnavailableError: no request is at fault."""
    try:
        yield
    except (OSError, duckdb.IOException) as error:
        if isinstance(error, duckdb.IOException) and not is_write_failure(error):
            raise
        raise _build_disk_error(error) from error


def is_write_failure(error: duckdb.IOException) -> bool:
    """Return whether DuckDB met a full disk; it raises the same error for files that it can't read."""
    return any(sign in str(error) for sign in _WRITE_FAILURES)


def _build_disk_error(error: Exception) -> UnavailableError:
    return UnavailableError(f"The server has no room for a temporary file; nothing was written: {error}")


@contextmanager
def open_local_copies(store: ObjectStore, locations: Iterable[str]) -> Iterator[Mapping[str, Path]]:
    """Yield plainly named paths in a folder of their own, by location; the folder ends with the context.

    Local files are linked to, so nothing is copied; a link says nothing of whether its file exists. Files of other
    stores are copied whole, a few at a time. Raises FileMissingError, UnavailableError.
    """
    with open_temporary_folder() as folder:
        paths = {location: folder / f"{number}.parquet" for number, location in enumerate(dict.fromkeys(locations))}
        distant = [(location, path) for location, path in paths.items() if not _link_local(store, location, path)]
        run_in_parallel(lambda pair: store.download(*pair), distant)
        yield paths


def _link_local(store: ObjectStore, location: str, path: Path) -> bool:
    local = store.local_path(location)
    if local is not None:
        path.symlink_to(local)
    return local is not None


@contextmanager
def open_footer_copies(store: ObjectStore, locations: Iterable[str]) -> Iterator[Mapping[str, Path]]:
    """Yield paths as `open_local_copies`, of copies without the rows.

    A file of a distant store has its length and its footer, and zeros for rows. Raises FileMissingError,
    UnavailableError.
    """
    with open_temporary_folder() as folder:
        names = enumerate(dict.fromkeys(locations))
        paths = {location: folder / f"{number}.parquet" for number, location in names}
        run_in_parallel(lambda pair: _fetch_footer(store, *pair), paths.items())
        yield paths


def _fetch_footer(store: ObjectStore, location: str, path: Path) -> None:
    local = store.local_path(location)
    if local is not None:
        path.symlink_to(local)
        return
    end, length = store.read_end(location, _GUESSED_BYTES)
    footer = int.from_bytes(end[-_TRAILER_BYTES : -len(_MAGIC)], "little") + _TRAILER_BYTES
    if len(end) < min(footer, length) and footer <= MAX_FOOTER_BYTES:
        end, length = store.read_end(location, footer)
    with path.open("wb") as file:
        file.write(_MAGIC)
        file.seek(max(length - len(end), 0))
        file.write(end)
