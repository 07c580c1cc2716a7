"""An object store of local files: a file is whole before it has its name."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from errno import EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENXIO
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

from duckicelake.errors import FileMissingError, InvalidRequestError, UnavailableError
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.protocol import (
    NewObject,
    ObjectStore,
    StoredFile,
    build_length_error,
    check_same_length,
    unwrap,
)
from duckicelake.storage.threads import run_in_parallel

_LOCAL_PREFIX: Final = "file://"
_LRU_ENTRIES: Final = 4096
_COPY_BYTES: Final = 1 << 20
"""Of a file that is copied, in memory at a time."""
_MAX_CACHED_CHARACTERS: Final = 4096
"""Characters of a location; no system has longer paths."""
_MISSING_ERRNOS: Final = {ENOENT, ENOTDIR, EISDIR, ENXIO}
"""Of what isn't there, or is no file: ENXIO is that of a socket, or of a pipe without a reader."""
_BAD_NAME_ERRNOS: Final = {ENAMETOOLONG, ELOOP, EINVAL, EEXIST}
"""Of what no other attempt finds usable: EEXIST is that of a folder whose name a dangling link has."""
_ONLY_THE_PATH: Final[int] = getattr(os, "O_PATH", os.O_RDONLY)


@dataclass(frozen=True, slots=True)
class LocalStore:
    """Files of this machine: `/x`, `file:/x` and `file:///x`. root: the folder that `check` creates and probes."""

    root: Path

    def read(self, location: str, at_most: int | None = None) -> bytes:
        with _translate_errors(location), _open_file(self.local_path(location)) as file:
            length = os.fstat(file.fileno()).st_size
            if at_most is not None and length > at_most:
                raise build_length_error(location, length, at_most)
            return file.read()

    def read_end(self, location: str, at_most: int) -> tuple[bytes, int]:
        with _translate_errors(location), _open_file(self.local_path(location)) as file:
            length = os.fstat(file.fileno()).st_size
            file.seek(max(length - at_most, 0))
            return file.read(at_most), length

    def download(self, location: str, path: Path) -> None:
        with _translate_errors(location), _open_file(self.local_path(location)) as file, path.open("xb") as copy:
            shutil.copyfileobj(file, copy)

    def write(self, location: str, data: bytes) -> None:
        self.write_all([(location, data)])

    def upload(self, location: str, path: Path) -> None:
        target = self.local_path(location)
        with _translate_errors(location), path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            present = _read_length(target)
            if present is None:
                if not _adopt(path, file, target):
                    with _create_temporary(target.parent, file, synced=True) as temporary:
                        _link(temporary, target)
                present = target.stat().st_size  # possibly a concurrent writer's
            _sync(target.parent)
        check_same_length(location, present, length)

    def write_all(self, files: Sequence[NewObject]) -> None:
        """Write files in parallel, then sync each of their folders once."""
        run_in_parallel(self._put, files)
        for folder in {*map(os.path.dirname, (location for location, _ in files))}:
            with _translate_errors(folder):
                _sync(self.local_path(folder))

    def write_derived(self, files: Sequence[NewObject]) -> None:
        folders = {folder: self.local_path(folder) for folder in {location.rpartition("/")[0] for location, _ in files}}
        for location, data in files:
            folder, _, name = location.rpartition("/")
            with _translate_errors(location):
                _replace(folders[folder] / name, data)

    def _put(self, file: NewObject) -> None:
        location, data = file
        path = self.local_path(location)
        with _translate_errors(location):
            present = _read_length(path)
            if present is None:
                _create(path, data)
                present = path.stat().st_size  # possibly a concurrent writer's
        check_same_length(location, present, len(data))

    def exists(self, location: str) -> bool:
        return self._size_if_there(location) is not None

    def size(self, location: str) -> int:
        with _translate_errors(location):
            status = self.local_path(location).stat()
        if not stat.S_ISREG(status.st_mode):
            raise FileMissingError(f"{location} isn't a file")
        return status.st_size

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        return [self._size_if_there(location) for location in locations]

    def _size_if_there(self, location: str) -> int | None:
        try:
            return self.size(location)
        except FileMissingError:
            return None

    def delete(self, location: str) -> None:
        with _translate_errors(location), contextlib.suppress(FileNotFoundError):
            self.local_path(location).unlink()

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        folders = [self.local_path(folder)]
        while folders:
            with _translate_errors(str(folders[-1])):
                entries = _list_entries(folders.pop())
            folders += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # a temporary file, or one that is deleted now
                    if entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield StoredFile(
                            f"{_LOCAL_PREFIX}{entry.path}", status.st_size, status.st_mtime_ns // 1_000_000
                        )

    def local_path(self, location: str) -> Path:
        """Return the file's path on this machine. Raises InvalidRequestError for another scheme."""
        path = _build_path_cached(location) if len(location) <= _MAX_CACHED_CHARACTERS else _build_path(location)
        if path is None:
            raise InvalidRequestError(f"{location} isn't a local file, and this server's warehouse is {self.root}")
        return path

    def check(self) -> None:
        try:
            _make_folder(self.root, 0o700)
            with tempfile.TemporaryFile(dir=self.root) as probe:
                probe.write(b"duckicelake")
        except OSError as error:  # of the server's own folder, which no client named
            raise UnavailableError(f"{self.root}: {error.strerror}") from error

    def close(self) -> None:
        return None


def _build_path(location: str) -> Path | None:
    """Build the path of a location; None for another scheme."""
    uri = canonicalize(location)
    return Path(uri.removeprefix(_LOCAL_PREFIX)) if uri.startswith(_LOCAL_PREFIX) else None


_build_path_cached = lru_cache(_LRU_ENTRIES)(_build_path)
"""Cached: building a path is slow, and a commit needs the same paths several times."""


def _list_entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _open_file(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file. Pipes and devices, which might never answer, raise EISDIR."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(EISDIR, "isn't a file")
    with os.fdopen(descriptor, "rb") as file:
        yield file


@contextlib.contextmanager
def _translate_errors(location: str) -> Iterator[None]:
    """Raise errors of the error tree for those of the operating system."""
    try:
        yield
    except OSError as error:
        if error.errno in _MISSING_ERRNOS:
            raise FileMissingError(f"{location} doesn't exist") from error
        if error.errno in _BAD_NAME_ERRNOS:
            raise InvalidRequestError(f"{location} isn't a usable file name: {error.strerror}") from error
        raise UnavailableError(f"{location}: {error.strerror}") from error
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{location!r} isn't a usable file name: it isn't valid Unicode") from error


def _create(path: Path, data: bytes) -> None:
    """Create a complete, synced file; a concurrent writer's file stays. The folder isn't synced."""
    with _create_temporary(path.parent, data, synced=True) as temporary:
        _link(temporary, path)


def _replace(path: Path, data: bytes) -> None:
    """Replace a file by complete content, unless it has that length."""
    if _read_length(path) == len(data):
        return
    with _create_temporary(path.parent, data) as temporary:
        os.replace(temporary, path)  # noqa: PTH105 - making a Path costs as much


def _read_length(path: Path) -> int | None:
    """Return the length of a file in bytes, None if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _create_temporary(folder: Path, data: bytes | BinaryIO, *, synced: bool = False) -> Iterator[str]:
    """Create a temporary file with this content. The block renames it; an exception deletes it."""
    path = f"{folder}/.tmp-{uuid4().hex}"
    descriptor = _open_new_file(path, folder)
    try:
        try:
            if isinstance(data, bytes):
                _write(descriptor, data)
            else:
                with os.fdopen(descriptor, "wb", closefd=False) as copy:
                    shutil.copyfileobj(data, copy, _COPY_BYTES)
            os.fchmod(descriptor, 0o644)
            if synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield path
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise


def _open_new_file(path: str, folder: Path) -> int:
    """Open a new file; create its folder if needed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        _make_folder(folder)
        return os.open(path, flags, 0o600)


def _write(descriptor: int, data: bytes) -> None:
    """Write all data. A Python file object would cost as much as writing a small file."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


def _link(temporary: str, path: Path) -> None:
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno != EEXIST:
            # Some file systems (FAT, a few network ones) have no hard links; a name never means two contents.
            Path(temporary).rename(path)
            return
    os.unlink(temporary)  # noqa: PTH108 - making a Path costs as much


def _adopt(path: Path, file: BinaryIO, target: Path) -> bool:
    """Give a file another name, which is cheaper than a copy; return False where the two can't be of one file."""
    os.fchmod(file.fileno(), 0o644)
    os.fsync(file.fileno())
    _make_folder(target.parent)
    try:
        target.hardlink_to(path)
    except FileExistsError:
        return True
    except OSError:  # another file system, or one without hard links; a copy says what else may be wrong
        return False
    return True


def _make_folder(folder: Path, mode: int = 0o777) -> None:
    """Create a folder and its missing parents, each synced. mode: the folder's, less the umask."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode, exist_ok=True)
    _sync(folder.parent)


def _sync(path: Path) -> None:
    """Sync a file, or the names in a folder, so that they survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find_links(store: ObjectStore, location: str, names: Iterable[str] = ()) -> list[str]:
    """Find what is a symbolic link, or lies behind one: of a location, and of names in it. Other stores have no links.

    Raises InvalidRequestError for no usable name.
    """
    path = find_path(store, location)
    if path is None:
        return []
    linked = [] if follow_links(location, path) == str(path) else [location]
    return linked + [f"{location}/{name}" for name in names if os.path.islink(path / name)]  # noqa: PTH114 - as below


def is_link(store: ObjectStore, location: str) -> bool:
    path = find_path(store, location)
    return path is not None and os.path.islink(path)  # noqa: PTH114 - what is no usable name is no link, either


def find_path(store: ObjectStore, location: str) -> Path | None:
    """Find the path of a location on this machine; None if it has none."""
    try:
        return unwrap(store).local_path(location)
    except InvalidRequestError:
        return None


def follow_links(location: str, path: Path) -> str:
    """Return the path with links followed. Raises InvalidRequestError for no usable name."""
    try:
        return _follow_links(path)
    except (OSError, ValueError) as error:
        raise InvalidRequestError(f"{location!r} isn't a usable file name: {error}") from error


def _follow_links(path: Path) -> str:
    """Resolve links like `os.path.realpath`, with one system call: Linux knows the path of an open file."""
    try:
        descriptor = os.open(path, _ONLY_THE_PATH | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return os.path.realpath(path)
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a Path takes as long to make
    except OSError:
        return os.path.realpath(path)
    finally:
        os.close(descriptor)
