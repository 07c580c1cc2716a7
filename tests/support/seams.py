"""Pass-through seams that fail on command: the process dies, as far as the code can tell, at the k-th I/O."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.combiner import VersionRecorder
from duckicelake.catalog.context.commit_queue import CommitQueue
from duckicelake.catalog.context.services import Services
from duckicelake.postgres.database import Database
from duckicelake.postgres.pipeline import WriteGate
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.protocol import NewObject, ObjectStore, StoredFile


class Killed(BaseException):
    """The process is gone; nothing may catch this."""


def die() -> None:
    raise Killed


def exit_hard() -> None:
    """Die for real: no handler runs, no file is closed, connections break."""
    os._exit(9)


@dataclass(slots=True)
class Fuse:
    """Burns down with every I/O; at zero the process dies, and stays dead."""

    left: int
    act: Callable[[], None] = die
    log: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def burn(self, step: str) -> None:
        with self._lock:
            self.log.append(step)
            self.left -= 1
            if self.left < 0:
                self.act()

    @property
    def burnt(self) -> bool:
        return self.left < 0


@dataclass(frozen=True, slots=True)
class FusedStore:
    store: ObjectStore
    fuse: Fuse

    def read(self, location: str, at_most: int | None = None) -> bytes:
        self.fuse.burn(f"read {Path(location).suffix}")
        return self.store.read(location, at_most)

    def read_end(self, location: str, at_most: int) -> tuple[bytes, int]:
        self.fuse.burn(f"read {Path(location).suffix}")
        return self.store.read_end(location, at_most)

    def write(self, location: str, data: bytes) -> None:
        self.fuse.burn(f"before writing {Path(location).suffix}")
        self.store.write(location, data)
        self.fuse.burn(f"after writing {Path(location).suffix}")

    def upload(self, location: str, path: Path) -> None:
        self.write(location, path.read_bytes())

    def write_all(self, files: Sequence[NewObject]) -> None:
        for file in files:
            self.write(*file)

    def write_derived(self, files: Sequence[NewObject]) -> None:
        for file in files:
            self.fuse.burn(f"before writing {Path(file[0]).suffix}")
            self.store.write_derived([file])
            self.fuse.burn(f"after writing {Path(file[0]).suffix}")

    def exists(self, location: str) -> bool:
        self.fuse.burn("exists")
        return self.store.exists(location)

    def size(self, location: str) -> int:
        self.fuse.burn("size")
        return self.store.size(location)

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        self.fuse.burn("sizes")
        return self.store.sizes(locations)

    def delete(self, location: str) -> None:
        self.fuse.burn("delete")
        self.store.delete(location)

    def files_below(self, folder: str) -> Iterator[StoredFile]:
        return self.store.files_below(folder)

    def local_path(self, location: str) -> Path | None:
        return self.store.local_path(location)

    def download(self, location: str, path: Path) -> None:
        self.store.download(location, path)

    def close(self) -> None:
        self.store.close()

    def check(self) -> None:
        self.store.check()


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class FusedDatabase:
    database: Database
    fuse: Fuse

    @property
    def url(self) -> str:
        """As processes of their own, such as DuckDB's, connect."""
        return self.database.url

    @contextmanager
    def transaction(self, *, pipelined: bool = False) -> Iterator[Transaction]:
        self.fuse.burn("begin")
        with self.database.transaction(pipelined=pipelined) as cursor:
            yield cursor
            self.fuse.burn("before COMMIT")
        self.fuse.burn("after COMMIT")

    def reading(self) -> AbstractContextManager[Transaction]:
        self.fuse.burn("read transaction")
        return self.database.reading()

    @contextmanager
    def statement(self, *, only_reads: bool = False) -> Iterator[Transaction]:
        self.fuse.burn("before a statement")
        with self.database.statement(only_reads=only_reads) as cursor:
            yield cursor
        self.fuse.burn("after a statement")

    def after_commit(self, cursor: Transaction, act: Callable[[], None]) -> None:
        self.database.after_commit(cursor, act)

    def require(self, precondition: str) -> None:
        self.database.require(precondition)

    @property
    def gate(self) -> WriteGate:
        """The database's own: whether it takes writes."""
        return self.database.gate


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A store during whose first write of a data file something happens."""

    store: ObjectStore
    acts: list[Callable[[], object]] = field(default_factory=list)

    def write(self, location: str, data: bytes) -> None:
        self.store.write(location, data)
        if self.acts:
            self.acts.pop()()

    def upload(self, location: str, path: Path) -> None:
        self.write(location, path.read_bytes())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@dataclass(frozen=True, slots=True)
class RefusingStore:
    """A store that takes no file for as long as there is an error to raise."""

    store: ObjectStore
    errors: list[Exception]

    def write(self, location: str, data: bytes) -> None:
        if self.errors:
            raise self.errors[0]
        self.store.write(location, data)

    def upload(self, location: str, path: Path) -> None:
        self.write(location, path.read_bytes())

    def write_all(self, files: Sequence[NewObject]) -> None:
        for file in files:
            self.write(*file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@dataclass(frozen=True, slots=True)
class SupersededDatabase:
    """A database in which something happens once a first commit is computed, before its transaction."""

    database: Database
    acts: list[Callable[[], object]] = field(default_factory=list)

    @contextmanager
    def transaction(self, *, pipelined: bool = False) -> Iterator[Transaction]:
        if pipelined and self.acts:
            self.acts.pop()()
        with self.database.transaction(pipelined=pipelined) as cursor:
            yield cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


def superseded(services: Services, act: Callable[[], object]) -> Services:
    """Another server of the lake, whose next commit someone overtakes so."""
    database: Any = SupersededDatabase(services.database, [act])
    return replace(fresh(services), database=database, commits=CommitQueue())


@dataclass(frozen=True, slots=True)
class Distant:
    """A store that is no folder of this machine, and counts how often each file of it is read.

    `written` are the numbers of files that were written at a time.
    """

    store: ObjectStore
    reads: Counter[str] = field(default_factory=Counter)
    written: list[int] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def local_path(self, location: str) -> None:
        pass

    def read(self, location: str, at_most: int | None = None) -> bytes:
        self._count(location)
        return self.store.read(location, at_most)

    def download(self, location: str, path: Path) -> None:
        self._count(location)
        self.store.download(location, path)

    def write(self, location: str, data: bytes) -> None:
        self.write_all([(location, data)])

    def write_all(self, files: Sequence[NewObject]) -> None:
        self.written.append(len(files))
        self.store.write_all(files)

    def _count(self, location: str) -> None:
        with self._lock:
            self.reads[location] += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def fused(services: Services, fuse: Fuse) -> Services:
    """A server with nothing cached that dies when the fuse has burnt down."""
    seams: dict[str, Any] = {
        "store": FusedStore(services.store, fuse),
        "database": FusedDatabase(services.database, fuse),
    }
    return fresh(replace(services, **seams))


def fresh(services: Services) -> Services:
    """A server that has just started."""
    return replace(services, cache=TableCache(), recorder=VersionRecorder())
