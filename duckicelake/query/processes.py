"""Start a process that runs queries, for one principal, and talk with it; end its query, or the process."""

import asyncio
import fcntl
import json
import math
import mmap
import os
import re
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from subprocess import DEVNULL, Popen
from threading import Lock
from typing import Any, Final, TypeVar
from weakref import finalize

from anyio.to_thread import run_sync

from duckicelake.errors import InvalidRequestError, QueryMemoryError, UnavailableError, UnsupportedError
from duckicelake.query.statement import parse_tree

WORKER: Final = Path(__file__).with_name("worker.py")
EXTENSIONS: Final = ("ducklake", "postgres_scanner")
EXTRA_EXTENSIONS: Final = ("httpfs", "avro", "iceberg")
"""For lakes in S3, and for branches."""
_HEAD: Final = struct.Struct(">cI")
_PIECE: Final = struct.Struct(">II")
_MEMORY_BYTES: Final = 2 * 1024 * 1024
"""For two pieces of a result: the process fills one while the server sends the other."""
_OPEN_SECONDS: Final = 30.0
_PARSE_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 300.0
"""For which a process is kept without a query."""
MAX_IDLE_BYTES: Final = 200 * 1024**2
"""Of memory of its own that a process without a query keeps. One that holds more ends after LARGE_IDLE_SECONDS."""
LARGE_IDLE_SECONDS: Final = 10.0
_KILL_SECONDS: Final = 5.0
_FOLDER_PREFIX: Final = "duckicelake-process-"
_LEFT_SECONDS: Final = 600.0
_SPARED_SECONDS: Final = 60.0
_looked_at: Final = [-math.inf]
"""By time.monotonic, when this process looked for left folders."""
_STOP_SECONDS: Final = 1.0
"""For which a process may go on with a query that is to end, until it is killed."""
_INTERRUPT_SECONDS: Final = 0.1
"""Between two interrupts: a process that hasn't begun with the query takes none."""
_MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
_ENDED: Final = "The process that ran the query has ended; it may have taken too much memory"
_TOO_SLOW: Final = "The query took longer than it may: ask for less, or for more seconds"
_OWN_MEMORY: Final = re.compile(r"^RssAnon:\s*(\d+) kB$", re.MULTILINE)
_QUOTED_TEXT: Final = re.compile(r'"[^"]*"')
_LOGIN: Final = re.compile("connect to Postgres at")
"""Where DuckDB repeats the login to Postgres."""
_REFUSALS: Final = frozenset({"IOException", "InternalException", "FatalException", "PermissionException"})
"""DuckDB's errors that aren't the statement's fault."""
_LOST_POSTGRES: Final = re.compile(
    "server closed the connection|connection to server|terminating connection|the database system is |"
    "no connection to the server|could not (receive|send) data (from|to) server"
)
"""libpq's texts of a Postgres that is away, which DuckDB raises as errors of the statement."""
_BREAKS: Final = frozenset({"InternalException", "FatalException"})
_ABORTED: Final = "Current transaction is aborted"
"""In an error of DuckDB after one of Postgres, whose text DuckDB loses."""

Message = tuple[bytes, bytearray]
"""What a message is, and what it holds."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What the queries of a server may take.

    Attributes:
        processes: at most so many run at once.
        memory_bytes: memory of a query; more of it goes to the temporary disk.
        disk_bytes: temporary disk of a query.
        seconds: time of a query.
        rows: rows of an answer.

    """

    processes: int
    memory_bytes: int
    disk_bytes: int
    seconds: float
    rows: int


@dataclass(frozen=True, slots=True)
class OpenOrder:
    """How a process opens the lake.

    Attributes:
        key: of processes that may be used again for it.
        extensions: files of DuckDB's that it takes.
        directories: the only ones whose files DuckDB opens.
        settings: of DuckDB, beside those that each process has.
        worker: the program of the process.

    """

    key: tuple[str, ...]
    extensions: tuple[str, ...]
    statements: tuple[str, ...] = field(repr=False)
    directories: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    worker: Path = WORKER


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """How far a query is. share: of its work, from 0 to 1; None while DuckDB can't say. rows: of the answer."""

    share: float | None = None
    rows: int = 0


class QueryProcess:
    """A process that runs one query after another. Its methods block: threads call them by `work`, one at a time."""

    def __init__(self, worker: Path = WORKER) -> None:
        """Start it without an environment, in a session and an empty folder of its own. worker: what it runs."""
        remove_left_folders()
        self._folder, lock = _make_folder()
        self._unlock = finalize(self, os.close, lock)
        """Closes the descriptor once: a second close would end another's that has its number."""
        self._socket, others = socket.socketpair()
        memory = _create_memory()
        self._memory = memoryview(mmap.mmap(memory, _MEMORY_BYTES, prot=mmap.PROT_READ))
        """Pieces of results, so that they aren't copied through the socket."""
        with others, os.fdopen(memory):
            self._popen = Popen(  # noqa: S603 - names of the package alone
                [sys.executable, "-I", str(worker), str(memory), self._folder, *list_extensions()],
                stdin=others.fileno(),
                stdout=others.fileno(),
                stderr=DEVNULL,
                cwd=self._folder,
                env={"TZ": "UTC", "HOME": self._folder},
                start_new_session=True,
                pass_fds=(memory, lock),
            )
        self.progress = QueryProgress()
        self.key: tuple[str, ...] | None = None
        self.used_at = time.monotonic()
        self.is_answering = False
        """Whether more of an answer will come, so that the process can't be used again."""
        self.is_reused = False
        """Whether it has run a query before, so that DuckLake may know of tables of inlined rows that are gone."""
        self.is_broken = False
        """Whether it met an error after which it can't be used again."""
        self.rest: tuple[str, ...] | None = None
        """What it has left of its last answer for the next one, if anything."""
        self._working: asyncio.Future[Any] | None = None
        self._sending = Lock()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def folder(self) -> Path:
        """The folder that it may write to, which goes with it."""
        return Path(self._folder)

    async def work(self, function: Callable[[], T]) -> T:
        """Call a function in a thread, which goes on when the caller is cancelled: `stop` then waits for it."""
        return await asyncio.shield(self._start(function))

    def _start(self, function: Callable[[], T]) -> asyncio.Future[T]:
        working = asyncio.ensure_future(run_sync(function))
        working.add_done_callback(lambda done: done.cancelled() or done.exception())  # also where no one waits for it
        self._working = working
        return working

    @property
    def is_busy(self) -> bool:
        """Whether it can't take another query."""
        return self.is_answering or (self._working is not None and not self._working.done())

    async def stop(self) -> None:
        """End its query, and read the rest of the answer. Raises TimeoutError, UnavailableError if that fails."""
        async with asyncio.timeout(_STOP_SECONDS):
            while self.is_busy:
                if not self.is_alive:
                    raise UnavailableError(_ENDED)
                self.interrupt()
                self.free_place()  # of a piece that no one has sent
                working = self._working
                if working is None or working.done():
                    working = self._start(partial(self.receive, _STOP_SECONDS))
                await asyncio.wait({working}, timeout=_INTERRUPT_SECONDS)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the process for as long as the block. Its program must ask to be continued once this process ends."""
        self._popen.send_signal(SIGSTOP)
        try:
            yield
        finally:
            self._popen.send_signal(SIGCONT)

    def interrupt(self) -> None:
        """End the query that it runs, if any, by an error."""
        self._signal(b"C")

    def free_place(self) -> None:
        """Let it put another piece of the result into the place of one that has been sent."""
        self._signal(b"N")

    def _signal(self, kind: bytes) -> None:
        with suppress(OSError), self._sending:  # who waits for its answer learns that it has ended
            self._socket.sendall(_HEAD.pack(kind, 0))

    def open(self, order: OpenOrder, limits: QueryLimits) -> None:
        """Open the lake. Raises UnavailableError."""
        self.begin_open(order, limits)
        self.finish_open()

    def begin_open(self, order: OpenOrder, limits: QueryLimits) -> None:
        """Have it open the lake as soon as it has started, beside the caller. Raises UnavailableError."""
        settings = {
            "memory_limit": f"{limits.memory_bytes}B",
            "max_temp_directory_size": f"{limits.disk_bytes}B",
            "temp_directory": str(Path(self._folder, "spill")),
            "threads": os.cpu_count() or 1,
            "TimeZone": "UTC",
            "python_enable_replacements": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            **order.settings,
        }
        message = {
            "settings": settings,
            "memory": limits.memory_bytes,
            "extensions": order.extensions,
            "statements": order.statements,
            "directories": [self._folder, *order.directories],
        }
        self.send(b"O", json.dumps(message).encode())
        self.key = order.key

    def finish_open(self) -> None:
        """Wait until the lake is open. Raises UnavailableError."""
        try:
            self.receive(_OPEN_SECONDS)
        except InvalidRequestError as error:  # the statements are the server's own
            reason = _QUOTED_TEXT.sub('"…"', str(error))  # where DuckDB repeats the login to Postgres
            raise UnavailableError(f"DuckDB can't open the lake: {reason}") from None

    def parse(self, sql: str) -> Any:
        """Parse a statement into DuckDB's syntax tree."""
        _, body = self.ask(b"P", sql.encode(), _PARSE_SECONDS)
        return parse_tree(body)

    def ask(self, kind: bytes, body: bytes, seconds: float) -> Message:
        """Send a message and return its one answer. Raises InvalidRequestError, UnavailableError."""
        self.send(kind, body)
        return self.receive(seconds)

    def send(self, kind: bytes, body: bytes) -> None:
        """Send a message."""
        self.is_answering, self.progress = True, QueryProgress()
        try:
            with self._sending:
                self._socket.sendall(_HEAD.pack(kind, len(body)) + body)
        except OSError as error:
            raise UnavailableError(_ENDED) from error

    def receive(self, seconds: float) -> Message:
        """Wait for an answer. Raises InvalidRequestError for an error of the statement, UnavailableError."""
        ends = time.monotonic() + seconds
        try:
            while (message := self._receive_one(ends))[0] == b"I":
                self.progress = QueryProgress(**json.loads(message[1]))
        except TimeoutError as error:
            raise InvalidRequestError(_TOO_SLOW) from error
        except OSError as error:  # its end, or that of its socket
            raise UnavailableError(_ENDED) from error
        kind, body = message
        if kind == b"E":
            self.progress = QueryProgress(1.0, json.loads(body)["rows"])
        self.is_answering = kind == b"D"
        if kind == b"X":
            described = json.loads(body)
            self.is_broken = described["kind"] in _BREAKS or _ABORTED in described["message"]
            raise _build_error(described)
        return kind, body

    def find_piece(self, body: bytearray) -> memoryview:
        """Find the piece of a result that a message names: memory that is used again after `free_place`."""
        start, length = _PIECE.unpack(body)
        return self._memory[start : start + length]

    def _receive_one(self, ends: float) -> Message:
        """Receive a message. ends: by time.monotonic. Raises TimeoutError, OSError."""
        self._socket.settimeout(max(0.001, ends - time.monotonic()))
        kind, length = _HEAD.unpack(self._read(_HEAD.size))
        if length > _MAX_MESSAGE_BYTES:
            raise ConnectionResetError
        return kind, self._read(length)

    def _read(self, length: int) -> bytearray:
        read = bytearray(length)
        free = memoryview(read)
        while free:
            size = self._socket.recv_into(free)
            if not size:
                raise ConnectionResetError
            free = free[size:]
        return read

    @property
    def memory_bytes(self) -> int:
        """Memory of its own, which no other process shares; 0 once it has ended."""
        try:
            found = _OWN_MEMORY.search(Path(f"/proc/{self.pid}/status").read_text())
        except OSError:
            return 0
        return 0 if found is None else 1024 * int(found[1])

    @property
    def is_outdated(self) -> bool:
        """Whether it has had no query for so long that it is no longer kept."""
        idle = time.monotonic() - self.used_at
        return idle > IDLE_SECONDS or (idle > LARGE_IDLE_SECONDS and self.memory_bytes > MAX_IDLE_BYTES)

    def kill(self) -> None:
        """End the process, and with it the thread that waits for it; remove its folder."""
        self._popen.kill()
        self._popen.wait(_KILL_SECONDS)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._unlock()

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None


def _make_folder() -> tuple[str, int]:
    """Make an empty folder, and lock it for as long as this process or the one that it starts lives."""
    folder = tempfile.mkdtemp(prefix=_FOLDER_PREFIX)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(OSError):  # a file system without locks keeps others from taking one, too
        fcntl.flock(lock, fcntl.LOCK_SH)
    return folder, lock


def remove_left_folders(pause_seconds: float = _LEFT_SECONDS, spared_seconds: float = _SPARED_SECONDS) -> None:
    """Remove the folders of processes that were killed together with their server or worker.

    pause_seconds: between two looks of one process. spared_seconds: the age below which a folder may not be locked yet.
    """
    if time.monotonic() - _looked_at[0] < pause_seconds:
        return
    _looked_at[0] = time.monotonic()
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_FOLDER_PREFIX) and entry.is_dir(follow_symlinks=False):
                _remove_if_left(entry.path, spared_seconds)


def _remove_if_left(folder: str, spared_seconds: float) -> None:
    with suppress(OSError):  # others are faster, or it is another user's
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(lock)
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < spared_seconds:
                return
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _create_memory() -> int:
    """Create memory for two processes that neither can make smaller, and return its descriptor."""
    memory = os.memfd_create("duckicelake-query", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, _MEMORY_BYTES)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return memory


def _build_error(described: Mapping[str, str]) -> Exception:
    kind, message = described["kind"], described["message"]
    if _LOGIN.search(message):
        message = _QUOTED_TEXT.sub('"…"', message)
    if kind == "InterruptException":
        return InvalidRequestError(_TOO_SLOW)
    if kind == "OutOfMemoryException":
        return QueryMemoryError(f"The query takes more memory than it may: {message.splitlines()[0]}")
    if kind in _REFUSALS or _LOST_POSTGRES.search(message):
        return UnavailableError(message)
    return InvalidRequestError(message)


@cache
def find_extension(name: str) -> str:
    """Find the file of one of DuckDB's extensions. Raises UnsupportedError if it isn't installed."""
    try:
        module = import_module(f"duckdb_extension_{name}")
    except ModuleNotFoundError as error:
        install = "pip install 'duckicelake[queries]'"
        raise UnsupportedError("queries", f"This query takes DuckDB's extension {name}: {install}") from error
    found = [*Path(next(iter(module.__path__))).rglob(f"{name}.duckdb_extension")]
    if not found:
        raise UnavailableError(f"The package duckdb_extension_{name} has no extension in it")
    return str(found[0])


def list_extensions() -> list[str]:
    """List the files of the extensions that are installed, of all that queries may take."""
    found = []
    for name in (*EXTENSIONS, *EXTRA_EXTENSIONS):
        with suppress(UnsupportedError):
            found.append(find_extension(name))
    return found
