"""Keep the processes that run queries: a bounded number, each for one principal, ended when a query goes wrong."""

import asyncio
import json
import os
import re
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any, Final

from anyio.to_thread import run_sync

from duckicelake.errors import InvalidRequestError, TooManyRequestsError, UnavailableError, UnsupportedError
from duckicelake.query.statement import parse_tree

WORKER: Final = Path(__file__).with_name("worker.py")
EXTENSIONS: Final = ("ducklake", "postgres_scanner")
EXTRA_EXTENSIONS: Final = ("httpfs", "avro", "iceberg")
"""For lakes in S3, and for branches."""
_HEAD: Final = struct.Struct(">cI")
_OPEN_SECONDS: Final = 30.0
_PARSE_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 300.0
"""For which a process is kept without a query."""
MAX_IDLE_BYTES: Final = 200 * 1024**2
"""Of memory of its own that a process without a query keeps. One that holds more ends after LARGE_IDLE_SECONDS."""
LARGE_IDLE_SECONDS: Final = 10.0
_WAITING_PER_PROCESS: Final = 8
_KILL_SECONDS: Final = 5.0
_MAX_READ_BYTES: Final = 1024 * 1024
_MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
_ENDED: Final = "The process that ran the query has ended; it may have taken too much memory"
_TOO_SLOW: Final = "The query took longer than it may: ask for less, or for more seconds"
_OWN_MEMORY: Final = re.compile(r"^RssAnon:\s*(\d+) kB$", re.MULTILINE)
_QUOTED_TEXT: Final = re.compile(r'"[^"]*"')
_REFUSALS: Final = frozenset({"IOException", "InternalException", "FatalException", "PermissionException"})
"""DuckDB's errors that aren't the statement's fault."""


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

    """

    key: tuple[str, ...]
    extensions: tuple[str, ...]
    statements: tuple[str, ...] = field(repr=False)
    directories: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """How far a query is. share: of its work, from 0 to 1; None while DuckDB can't say. rows: of the answer."""

    share: float | None = None
    rows: int = 0


class QueryProcess:
    """A process that runs one query after another. Its methods block: threads call them, one at a time."""

    def __init__(self) -> None:
        """Start it without an environment, in a session and an empty folder of its own."""
        self._folder = tempfile.mkdtemp(prefix="duckicelake-query-")
        self._socket, others = socket.socketpair()
        with others:
            self._popen = Popen(  # noqa: S603 - names of the package alone
                [sys.executable, "-I", str(WORKER), *list_extensions()],
                stdin=others.fileno(),
                stdout=others.fileno(),
                stderr=DEVNULL,
                cwd=self._folder,
                env={"TZ": "UTC", "HOME": self._folder},
                start_new_session=True,
            )
        self.progress = QueryProgress()
        self.key: tuple[str, ...] | None = None
        self.used_at = time.monotonic()
        self.is_answering = False
        """Whether more of an answer will come, so that the process can't be used again."""

    @property
    def pid(self) -> int:
        return self._popen.pid

    def open(self, order: OpenOrder, limits: QueryLimits) -> None:
        """Open the lake. Raises UnavailableError."""
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
        try:
            self.ask(b"O", json.dumps(message).encode(), _OPEN_SECONDS)
        except InvalidRequestError as error:  # the statements are the server's own
            reason = _QUOTED_TEXT.sub('"…"', str(error))  # where DuckDB repeats the login to Postgres
            raise UnavailableError(f"DuckDB can't open the lake: {reason}") from None
        self.key = order.key

    def parse(self, sql: str) -> Any:
        """Parse a statement into DuckDB's syntax tree."""
        _, body = self.ask(b"P", sql.encode(), _PARSE_SECONDS)
        return parse_tree(body)

    def ask(self, kind: bytes, body: bytes, seconds: float) -> tuple[bytes, bytes]:
        """Send a message and return its one answer. Raises InvalidRequestError, UnavailableError."""
        self.send(kind, body)
        return self.receive(seconds)

    def send(self, kind: bytes, body: bytes) -> None:
        """Send a message."""
        self.is_answering, self.progress = True, QueryProgress()
        try:
            self._socket.sendall(_HEAD.pack(kind, len(body)) + body)
        except OSError as error:
            raise UnavailableError(_ENDED) from error

    def receive(self, seconds: float) -> tuple[bytes, bytes]:
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
            raise _build_error(json.loads(body))
        return kind, body

    def _receive_one(self, ends: float) -> tuple[bytes, bytes]:
        """Receive a message. ends: by time.monotonic. Raises TimeoutError, OSError."""
        self._socket.settimeout(max(0.001, ends - time.monotonic()))
        kind, length = _HEAD.unpack(self._read(_HEAD.size))
        if length > _MAX_MESSAGE_BYTES:
            raise ConnectionResetError
        return kind, self._read(length)

    def _read(self, length: int) -> bytes:
        pieces = []
        while length:
            piece = self._socket.recv(min(length, _MAX_READ_BYTES))
            if not piece:
                raise ConnectionResetError
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)

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

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None


def _build_error(described: Mapping[str, str]) -> Exception:
    kind, message = described["kind"], described["message"]
    if kind == "InterruptException":
        return InvalidRequestError(_TOO_SLOW)
    if kind == "OutOfMemoryException":
        return InvalidRequestError(f"The query takes more memory than it may: {message.splitlines()[0]}")
    return UnavailableError(message) if kind in _REFUSALS else InvalidRequestError(message)


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


@dataclass(slots=True)
class ProcessTurn:
    """One of the places in which queries run, and the process that is in it."""

    process: QueryProcess


class QueryProcesses:
    """The processes of a server's worker. One more is started ahead, so that the next principal needn't wait."""

    def __init__(self, limits: QueryLimits) -> None:
        self.limits = limits
        self._slots = asyncio.Semaphore(limits.processes)
        self._waiting = 0
        self._idle: list[QueryProcess] = []
        self._started: set[QueryProcess] = set()
        self._spare: QueryProcess | None = None
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def take(self, order: OpenOrder) -> AsyncIterator[ProcessTurn]:
        """Take a process that has opened the lake for this principal; it is killed if it is answering at the end.

        Raises TooManyRequestsError, UnavailableError.
        """
        if self._waiting >= self.limits.processes * _WAITING_PER_PROCESS:
            raise TooManyRequestsError("Too many queries wait for their turn: try again")
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            turn = ProcessTurn(await self._find(order))
            try:
                yield turn
            finally:
                self._keep(turn.process)
        finally:
            self._slots.release()

    async def change(self, turn: ProcessTurn, order: OpenOrder) -> None:
        """Let a turn go on with a process that has opened the lake in another way. Raises UnavailableError."""
        process = await self._find(order)
        self._keep(turn.process)
        turn.process = process

    def close(self) -> None:
        """End all processes."""
        if self._timer is not None:
            self._timer.cancel()
        for process in self._started:
            process.kill()
        self._started.clear()
        self._idle.clear()

    async def _find(self, order: OpenOrder) -> QueryProcess:
        for process in self._idle:
            if process.key == order.key and process.is_alive:
                self._idle.remove(process)
                return process
        spare, self._spare = self._spare, None
        process = spare if spare is not None and spare.is_alive else self._start()
        try:
            await run_sync(process.open, order, self.limits, abandon_on_cancel=True)
        except BaseException:
            process.kill()
            raise
        if self._spare is None:
            self._spare = self._start()
            self._watch_idle()
        return process

    def _start(self) -> QueryProcess:
        for ended in [one for one in self._started if not one.is_alive]:
            ended.kill()
            self._started.discard(ended)
        process = QueryProcess()
        self._started.add(process)
        return process

    def _keep(self, process: QueryProcess) -> None:
        if process.is_answering:
            process.kill()
            return
        process.used_at = time.monotonic()
        self._idle.append(process)
        while len(self._idle) > self.limits.processes:
            self._idle.pop(0).kill()
        self._watch_idle()

    def _end_idle(self) -> None:
        """End processes that no query has used for a while, the one ahead included; look again while there are any."""
        for process in [one for one in self._idle if one.is_outdated or not one.is_alive]:
            self._idle.remove(process)
            process.kill()
        if not self._idle and self._spare is not None and self._spare.is_outdated:
            self._spare.kill()
            self._spare = None
        self._timer = None
        self._watch_idle()

    def _watch_idle(self) -> None:
        if self._timer is None and (self._idle or self._spare is not None):
            seconds = min(LARGE_IDLE_SECONDS, IDLE_SECONDS) / 2
            self._timer = asyncio.get_running_loop().call_later(seconds, self._end_idle)
