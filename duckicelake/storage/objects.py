"""The object store: whole immutable files under names that never mean two contents (design D4)."""

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from errno import EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR
from pathlib import Path
from typing import BinaryIO, Final, Protocol, TypeAlias
from uuid import uuid4

from duckicelake.errors import AlreadyExists, FileMissing, InvalidRequest, Unavailable
from duckicelake.storage.parallel import in_parallel
from duckicelake.storage.policy import canonical

NewFile: TypeAlias = tuple[str, bytes]
"""A file to write: its location and all that is in it."""

_LOCAL: Final = "file://"
_MISSING: Final = {ENOENT, ENOTDIR, EISDIR}
_BAD_NAME: Final = {ENAMETOOLONG, ELOOP, EINVAL}


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

    def download(self, location: str, path: Path) -> None:
        """Make a copy of the file at a new path of this machine, without holding it in memory; FileMissing as above."""

    def write(self, location: str, data: bytes) -> None:
        """Make the file exist, all of it or nothing, surviving a crash after the return.

        A file of the same length is left alone; AlreadyExists if one of another length is there.
        """

    def write_all(self, files: Sequence[NewFile]) -> None:
        """Write each as `write` does, sooner than one by one; after an error some may be there."""

    def exists(self, location: str) -> bool:
        """Whether the file is there."""

    def size(self, location: str) -> int:
        """The file's length in bytes; FileMissing if there is none."""

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


@dataclass(frozen=True, slots=True)
class MemoryStore:
    """A store that lives as long as the process and takes any scheme."""

    _files: dict[str, bytes] = field(default_factory=dict)
    _written: dict[str, int] = field(default_factory=dict)

    def read(self, location: str, at_most: int | None = None) -> bytes:
        try:
            data = self._files[canonical(location)]
        except KeyError:
            raise FileMissing(f"{location} doesn't exist") from None
        check_length(location, len(data), at_most)
        return data

    def download(self, location: str, path: Path) -> None:
        path.write_bytes(self.read(location))

    def write(self, location: str, data: bytes) -> None:
        present = self._files.setdefault(canonical(location), bytes(data))
        self._written.setdefault(canonical(location), time.time_ns() // 1_000_000)
        check_same_length(location, len(present), len(data))

    def write_all(self, files: Sequence[NewFile]) -> None:
        for location, data in files:
            self.write(location, data)

    def exists(self, location: str) -> bool:
        return canonical(location) in self._files

    def size(self, location: str) -> int:
        return len(self.read(location))

    def delete(self, location: str) -> None:
        self._files.pop(canonical(location), None)
        self._written.pop(canonical(location), None)

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        prefix = canonical(folder) + "/"
        for location, data in list(self._files.items()):
            if location.startswith(prefix):
                yield StoredFile(location, len(data), self._written[location])

    def local_path(self, location: str) -> Path | None:  # noqa: ARG002
        return None

    def check(self) -> None:
        return None

    def close(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class LocalStore:
    """Files of this machine: `/x`, `file:/x` and `file:///x`. root is the folder that `check` creates and tries."""

    root: Path

    def read(self, location: str, at_most: int | None = None) -> bytes:
        with _translated(location), _opened(self.local_path(location)) as file:
            check_length(location, os.fstat(file.fileno()).st_size, at_most)
            return file.read()

    def download(self, location: str, path: Path) -> None:
        with _translated(location), _opened(self.local_path(location)) as file, path.open("xb") as copy:
            shutil.copyfileobj(file, copy)

    def write(self, location: str, data: bytes) -> None:
        self.write_all([(location, data)])

    def write_all(self, files: Sequence[NewFile]) -> None:
        """A folder is synced once for all files in it, also for those that others have just put there."""
        in_parallel(self._put, files)
        for folder in {self.local_path(location).parent for location, _ in files}:
            with _translated(str(folder)):
                _sync_folder(folder)

    def _put(self, file: NewFile) -> None:
        location, data = file
        path = self.local_path(location)
        with _translated(location):
            if not path.exists():
                _create(path, data)
            present = path.stat().st_size
        check_same_length(location, present, len(data))

    def exists(self, location: str) -> bool:
        try:
            self.size(location)
        except FileMissing:
            return False
        return True

    def size(self, location: str) -> int:
        with _translated(location):
            status = self.local_path(location).stat()
        if not stat.S_ISREG(status.st_mode):
            raise FileMissing(f"{location} isn't a file")
        return status.st_size

    def delete(self, location: str) -> None:
        with _translated(location), contextlib.suppress(FileNotFoundError):
            self.local_path(location).unlink()

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        folders = [self.local_path(folder)]
        while folders:
            with _translated(str(folders[-1])):
                entries = _entries(folders.pop())
            folders += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # a temporary file, or somebody deletes
                    if entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield StoredFile(f"{_LOCAL}{entry.path}", status.st_size, status.st_mtime_ns // 1_000_000)

    def local_path(self, location: str) -> Path:
        """The file's path on this machine; InvalidRequest for a location of another scheme."""
        uri = canonical(location)
        if not uri.startswith(_LOCAL):
            raise InvalidRequest(f"{location} isn't a local file, and this server's warehouse is {self.root}")
        return Path(uri.removeprefix(_LOCAL))

    def check(self) -> None:
        with _translated(str(self.root)):
            _make_folder(self.root)
            with tempfile.TemporaryFile(dir=self.root) as probe:
                probe.write(b"duckicelake")

    def close(self) -> None:
        return None


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


def check_length(location: str, length: int, at_most: int | None) -> None:
    """Raise InvalidRequest if a file is longer than what may be read of it; None: it may be of any length."""
    if at_most is not None and length > at_most:
        raise InvalidRequest(f"{location} has {length} bytes, and no more than {at_most} are read")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """An ordinary file; pipes and devices, which might never answer, are none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(EISDIR, "isn't a file")
    with os.fdopen(descriptor, "rb") as file:
        yield file


def check_same_length(location: str, present: int, wanted: int) -> None:
    """Raise AlreadyExists if a file that is to be written is there with another length."""
    if present != wanted:
        raise AlreadyExists(f"{location} exists with {present} bytes and won't be overwritten with {wanted}")


@contextlib.contextmanager
def _translated(location: str) -> Iterator[None]:
    """Turn what the operating system says into the error tree."""
    try:
        yield
    except OSError as error:
        if error.errno in _MISSING:
            raise FileMissing(f"{location} doesn't exist") from error
        if error.errno in _BAD_NAME:
            raise InvalidRequest(f"{location} isn't a usable file name: {error.strerror}") from error
        raise Unavailable(f"{location}: {error.strerror}") from error
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{location!r} isn't a usable file name: it isn't valid Unicode") from error


def _create(path: Path, data: bytes) -> None:
    """Put a complete, synced file under a name that has none; a racing writer's file stays. The folder isn't synced."""
    temporary = f"{path.parent}/.tmp-{uuid4().hex}"
    descriptor = _new_file(temporary, path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, 0o644)
            os.fsync(descriptor)
        _link(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _new_file(path: str, folder: Path) -> int:
    """Open a file that isn't there, its folder made if it has to be."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        _make_folder(folder)
        return os.open(path, flags, 0o600)


def _link(temporary: str, path: Path) -> None:
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno == EEXIST:
            return
        # Some file systems (FAT, a few network ones) have no hard links; names are unique per content, so this is safe.
        Path(temporary).rename(path)


def _make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, each durably."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
