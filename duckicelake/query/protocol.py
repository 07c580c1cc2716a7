"""What all processes of DuckDB's do: read commands on standard input, and answer on standard output.

A message is one byte, which says what it is, four bytes of its length, and that many bytes. Pieces of results lie in
memory that the server shares, two at a time; messages name their places. A process has no environment, and changes
DuckDB's settings no more after `open`. It imports nothing that it doesn't need: each start takes time.

    > O {…}    open: attach the lake, lock the settings        < R    ready
    > N        a piece has been sent; its place is free        < D place, length: a piece of a result
    > C        end the command that runs, by an error          < X {…}
    between these come                                       < I {…} how far the command is
    anything may be answered by                                < X {…} an error; the process goes on
"""

import json
import mmap
import resource
import shutil
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, Final, Self

import duckdb

_HEAD: Final = struct.Struct(">cI")
_MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
_PIECE: Final = struct.Struct(">II")
_PLACES: Final = 2
"""Pieces of a result that fit into the shared memory."""
_SPARE_BYTES: Final = 4 * 1024**3
"""Of the address space, for what DuckDB's own limit doesn't count: code, threads, Arrow's copies of a batch."""
_REPORT_SECONDS: Final = 0.5
_KINDS: Final[Mapping[str, str]] = {
    "INTERRUPT": "InterruptException",
    "Out of Memory": "OutOfMemoryException",
    "IO": "IOException",
    "INTERNAL": "InternalException",
    "FATAL": "FatalException",
    "Permission": "PermissionException",
}
"""DuckDB's kinds of errors by the begin of their texts, as far as the server treats them differently."""

Message = tuple[bytes, bytes]
Handler = Callable[[duckdb.DuckDBPyConnection, Message, "Answers", "Commands"], Iterator[Message]]
"""Carries out one command, and answers by one or more messages."""


def main(handlers: Mapping[bytes, Handler], errors: tuple[type[Exception], ...] = ()) -> None:
    """Answer messages until standard input ends.

    Arguments: the descriptor of the shared memory, the process's own folder, which goes with it, and extensions to load
    before the first message. Their signatures aren't checked, which takes 1.3 s of CPU: they are files of the server's
    own packages.
    handlers: of commands beside those of all processes, by their kinds. errors: that are answered beside DuckDB's.
    """
    memory, folder, *extensions = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    Path("/proc/self/oom_score_adj").write_text("1000")  # where memory is short, it ends before the server
    read, write = sys.stdin.buffer, sys.stdout.buffer
    connection = duckdb.connect(config={"allow_unsigned_extensions": True})
    with suppress(duckdb.Error):  # `open_lake` loads those that it needs again, and reports why one can't be
        load_extensions(connection, extensions)
    answered: tuple[type[Exception], ...] = (duckdb.Error, OSError, MemoryError, ValueError, *errors)
    try:
        answers, commands = Answers(write, int(memory)), Commands(read, connection.interrupt)
        while (message := commands.take()) is not None:
            answer_message(connection, message, answers, commands, {b"O": _open, **handlers}, answered)
    except BrokenPipeError:
        pass  # the server has ended
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Answers:
    """Writes messages of several threads, one after the other. memory: the descriptor of what pieces are put into."""

    def __init__(self, stream: BinaryIO, memory: int) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._memory = mmap.mmap(memory, 0)
        self._place = 0

    def send_piece(self, piece: bytes, commands: "Commands") -> None:
        """Put bytes of the result into the shared memory, as its places get free."""
        size = len(self._memory) // _PLACES
        for start in range(0, len(piece), size):
            part = memoryview(piece)[start : start + size]
            commands.wait_for_place()
            self._memory[self._place : self._place + len(part)] = part
            self.send(b"D", _PIECE.pack(self._place, len(part)))
            self._place = (self._place + size) % (_PLACES * size)

    def send(self, kind: bytes, body: bytes) -> None:
        """Write a message."""
        with self._lock:
            self._stream.write(_HEAD.pack(kind, len(body)))
            self._stream.write(body)
            self._stream.flush()


class Commands:
    """Reads messages in a thread of its own, so that one can end the query that runs; the others wait in turn."""

    def __init__(self, stream: BinaryIO, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._waiting: SimpleQueue[Message | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_running = False
        self._free = threading.Semaphore(_PLACES)
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def take(self) -> Message | None:
        """Wait for a message; None at the end of the stream."""
        return self._waiting.get()

    @contextmanager
    def run(self) -> Iterator[None]:
        """Let a query be ended for as long as the block runs it; what comes before and after isn't interrupted."""
        self._free = threading.Semaphore(_PLACES)
        self._is_running = True
        try:
            yield
        finally:
            with self._lock:
                self._is_running = False

    def wait_for_place(self) -> None:
        """Wait until a piece may be put into the shared memory."""
        self._free.acquire()

    def _read(self, stream: BinaryIO) -> None:
        with suppress(OSError, ValueError):
            while (message := receive(stream)) is not None:
                if message[0] == b"N":
                    self._free.release()
                elif message[0] == b"C":
                    self._end_query()
                else:
                    self._waiting.put(message)
        self._waiting.put(None)
        self._free.release(_PLACES)
        self._end_query()

    def _end_query(self) -> None:
        with self._lock:
            if self._is_running:
                self._interrupt()


class ProgressReports:
    """Messages that say every half second how far a query is, while the block runs it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, answers: Answers) -> None:
        self.rows = 0
        self._connection, self._answers = connection, answers
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _report(self) -> None:
        while not self._end.wait(_REPORT_SECONDS):
            percent = self._connection.query_progress()
            share = None if percent < 0 else min(percent / 100, 1.0)
            with suppress(BrokenPipeError):  # the server has ended, which the main thread sees
                self._answers.send(b"I", json.dumps({"share": share, "rows": self.rows}).encode())


def answer_message(
    connection: duckdb.DuckDBPyConnection,
    message: Message,
    answers: Answers,
    commands: Commands,
    handlers: Mapping[bytes, Handler],
    errors: tuple[type[Exception], ...],
) -> None:
    """Answer one message, by one of the errors if it can't be carried out."""
    try:
        for kind, body in handlers.get(message[0], _refuse)(connection, message, answers, commands):
            if kind == b"D":
                answers.send_piece(body, commands)
            else:
                answers.send(kind, body)
    except BrokenPipeError:
        raise
    except errors as error:
        answers.send(b"X", json.dumps(describe_error(error)).encode())


def _open(
    connection: duckdb.DuckDBPyConnection, message: Message, _answers: Answers, _commands: Commands
) -> Iterator[Message]:
    order = json.loads(message[1])
    most = 4 * order["memory"] + _SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    open_lake(connection, order)
    yield b"R", b""


def _refuse(
    _connection: duckdb.DuckDBPyConnection, message: Message, _answers: Answers, _commands: Commands
) -> Iterator[Message]:
    raise ValueError(f"No such command: {message[0]!r}")


def open_lake(connection: duckdb.DuckDBPyConnection, order: Mapping[str, Any]) -> None:
    """Load extensions, attach the lake, and lock everything that a query could change."""
    load_extensions(connection, order["extensions"])
    for name, value in order["settings"].items():
        connection.execute(f"SET {name} = {quote_text(value) if isinstance(value, str) else value}")
    for statement in order["statements"]:
        connection.execute(statement)
    if order["directories"]:
        folders = ", ".join(map(quote_text, order["directories"]))
        connection.execute(f"SET allowed_directories = [{folders}]")
    connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
    for locked in ("enable_external_access = false", "lock_configuration = true"):
        connection.execute(f"SET {locked}")


def quote_text(text: str) -> str:
    """Write a text in SQL. With parameters DuckDB would import pandas, where it is: 0.3 s of CPU, 30 MB of memory."""
    return "'" + text.replace("'", "''") + "'"


def load_extensions(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
    """Load DuckDB's extensions from their files; one that is loaded stays as it is."""
    for file in files:
        connection.load_extension(file)


@contextmanager
def prepare_query(connection: duckdb.DuckDBPyConnection, order: Mapping[str, Any]) -> Iterator[str]:
    """Yield the SQL of a checked tree; it may take the order's seconds, and has its secrets, as long as the block."""
    tree = quote_text(json.dumps(order["tree"]))
    (sql,) = connection.execute(f"SELECT json_deserialize_sql({tree}::JSON)").fetchone() or ("",)
    with hold_secrets(connection, order):
        yield sql


@contextmanager
def hold_secrets(connection: duckdb.DuckDBPyConnection, order: Mapping[str, Any]) -> Iterator[None]:
    """Have the order's secrets as long as the block, which is interrupted after the order's seconds."""
    timer = threading.Timer(order["seconds"], connection.interrupt)
    timer.start()
    try:
        for name, secret in order["secrets"].items():
            connection.execute(f"CREATE OR REPLACE SECRET {name} {secret}")
        yield
    finally:
        timer.cancel()
        for name in order["secrets"]:
            connection.execute(f"DROP SECRET IF EXISTS {name}")
    with suppress(duckdb.Error):  # the end of the answer has been sent
        # a result that was left before its end keeps its transaction of Postgres open until the next statement
        connection.execute("SELECT 1").fetchall()


def describe_error(error: Exception) -> Mapping[str, str]:
    """Describe an error: its kind, and its first line, without the statement and the stack that DuckDB adds.

    An error between two batches comes through Arrow, as an OSError with DuckDB's text.
    """
    message = str(error).split("\n\nLINE ", 1)[0].split("\n\nStack Trace:", 1)[0]
    kind = type(error).__name__
    if isinstance(error, OSError):
        kind = _KINDS.get(message.partition(" Error: ")[0], "Error")
    return {"kind": kind, "message": message}


def receive(stream: BinaryIO) -> Message | None:
    """Read a message; None at the end of the stream."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    kind, length = _HEAD.unpack(head)
    if length > _MAX_MESSAGE_BYTES:
        raise ValueError("The message is too long")
    return kind, stream.read(length)
