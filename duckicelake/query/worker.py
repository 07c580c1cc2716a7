"""The process that runs queries: `python -I worker.py`, commands on standard input, answers on standard output.

A message is one byte, which says what it is, four bytes of its length, and that many bytes. Pieces of results lie in
memory that the server shares, two at a time; messages name their places. The process imports nothing of the package,
has no environment, and changes DuckDB's settings no more after `open`.

    > O {…}    open: attach the lake, lock the settings        < R    ready
    > P text   parse a statement                               < T    its syntax tree as JSON
    > Q {…}    run a checked tree                              < D place, length: pieces of the result, then E {…}
    > N        a piece has been sent; its place is free
    > L {…}    plan a checked tree                             < L {…} the plan as text, and as a tree
    > C        end the query that runs, by an error           < X {…}
    between these come                                       < I {…} how far the query is
    anything may be answered by                                < X {…} an error; the process goes on
"""

import io
import json
import math
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
import pyarrow as pa
import pyarrow.csv

_HEAD: Final = struct.Struct(">cI")
_MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
_MAX_TREE_BYTES: Final = 8 * 1024 * 1024
"""Of a syntax tree: the server reads it whole, and a value of the statement takes some 250 bytes of it."""
_PIECE: Final = struct.Struct(">II")
_PLACES: Final = 2
"""Pieces of a result that fit into the shared memory."""
_SPARE_BYTES: Final = 4 * 1024**3
"""Of the address space, for what DuckDB's own limit doesn't count: code, threads, Arrow's copies of a batch."""
_REPORT_SECONDS: Final = 0.5
_BATCH_ROWS: Final = 8_192
_TYPES_AS_TEXT: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
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


def main(handlers: Mapping[bytes, Handler] | None = None) -> None:
    """Answer messages until standard input ends.

    Arguments: the descriptor of the shared memory, and extensions to load before the first message. Their signatures
    aren't checked, which takes 1.3 s of CPU: they are files of the server's own packages.
    handlers: of further commands, by their kinds.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    Path("/proc/self/oom_score_adj").write_text("1000")  # where memory is short, it ends before the server
    read, write = sys.stdin.buffer, sys.stdout.buffer
    connection = duckdb.connect(config={"allow_unsigned_extensions": True})
    with suppress(duckdb.Error):  # `open_lake` loads those that it needs again, and reports why one can't be
        load_extensions(connection, sys.argv[2:])
    try:
        answers, commands = Answers(write, int(sys.argv[1])), Commands(read, connection.interrupt)
        while (message := commands.take()) is not None:
            answer_message(connection, message, answers, commands, handlers or {})
    except BrokenPipeError:
        pass  # the server has ended
    finally:
        shutil.rmtree(Path.cwd(), ignore_errors=True)


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
) -> None:
    """Answer one message, by an error if it can't be carried out."""
    try:
        for kind, body in handlers.get(message[0], handle)(connection, message, answers, commands):
            if kind == b"D":
                answers.send_piece(body, commands)
            else:
                answers.send(kind, body)
    except BrokenPipeError:
        raise
    except (duckdb.Error, pa.ArrowException, OSError, MemoryError, ValueError) as error:
        answers.send(b"X", json.dumps(describe_error(error)).encode())


def handle(
    connection: duckdb.DuckDBPyConnection, message: Message, answers: Answers, commands: Commands
) -> Iterator[Message]:
    """Answer one command, in one or more messages."""
    kind, body = message
    if kind == b"O":
        order = json.loads(body)
        most = 4 * order["memory"] + _SPARE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        open_lake(connection, order)
        yield b"R", b""
    elif kind == b"P":
        (tree,) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [body.decode()]).fetchone() or ("",)
        encoded = str(tree).encode()
        if len(encoded) > _MAX_TREE_BYTES:
            raise ValueError("The query is too deep or too long")
        yield b"T", encoded
    elif kind == b"Q":
        with ProgressReports(connection, answers) as progress:
            yield from run_query(connection, json.loads(body), progress, commands)
    elif kind == b"L":
        yield b"L", json.dumps(explain_query(connection, json.loads(body), commands)).encode()
    else:
        raise ValueError(f"No such command: {kind!r}")


def open_lake(connection: duckdb.DuckDBPyConnection, order: Mapping[str, Any]) -> None:
    """Load extensions, attach the lake, and lock everything that a query could change."""
    load_extensions(connection, order["extensions"])
    for name, value in order["settings"].items():
        connection.execute(f"SET {name} = ?", [value])
    for statement in order["statements"]:
        connection.execute(statement)
    if order["directories"]:
        folders = ", ".join(f"'{folder.replace(chr(39), 2 * chr(39))}'" for folder in order["directories"])
        connection.execute(f"SET allowed_directories = [{folders}]")
    connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
    for locked in ("enable_external_access = false", "lock_configuration = true"):
        connection.execute(f"SET {locked}")


def load_extensions(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
    """Load DuckDB's extensions from their files; one that is loaded stays as it is."""
    for file in files:
        connection.load_extension(file)


@contextmanager
def prepare_query(connection: duckdb.DuckDBPyConnection, order: Mapping[str, Any]) -> Iterator[str]:
    """Yield the SQL of a checked tree; it may take the order's seconds, and has its secrets, as long as the block."""
    (sql,) = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(order["tree"])]).fetchone() or ("",)
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


def explain_query(
    connection: duckdb.DuckDBPyConnection, order: Mapping[str, Any], commands: Commands
) -> Mapping[str, Any]:
    """Return DuckDB's plan of a query, drawn as text, and as a tree of JSON objects."""
    with prepare_query(connection, order) as sql, commands.run():
        drawn, planned = (
            connection.execute(f"EXPLAIN {options}{sql}").fetchall() for options in ("", "(FORMAT json) ")
        )
    return {"text": "\n".join(str(text) for _, text in drawn), "tree": json.loads(planned[0][1])}


def run_query(
    connection: duckdb.DuckDBPyConnection, order: Mapping[str, Any], progress: ProgressReports, commands: Commands
) -> Iterator[Message]:
    """Run a query; yield its result in pieces of the format, then how many rows it had."""
    with prepare_query(connection, order) as sql, commands.run():
        reader = connection.execute(sql).to_arrow_reader(_BATCH_ROWS)
        is_cut = False
        writer = FORMATS[order["format"]](reader.schema)
        for batch in reader:
            left = order["rows"] - progress.rows
            is_cut = batch.num_rows > left
            progress.rows += min(batch.num_rows, left)
            yield b"D", writer.write(batch.slice(0, left))
            if is_cut:
                break
        yield b"D", writer.end()
        yield b"E", json.dumps({"rows": progress.rows, "is_cut": is_cut}).encode()


def take_piece(sink: io.BytesIO) -> bytes:
    """Take what was written to a buffer, and empty it."""
    piece = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return piece


class ArrowWriter:
    """Write batches as an Arrow IPC stream."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def write(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return take_piece(self._sink)

    def end(self) -> bytes:
        self._writer.close()
        return take_piece(self._sink)


class CsvWriter:
    """Write batches as CSV with a header; null is an empty field."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = io.BytesIO()
        self._texts = [not is_plain(field.type) for field in schema]
        types = [pa.string() if text else field.type for field, text in zip(schema, self._texts, strict=True)]
        self._schema = pa.schema(list(zip(schema.names, types, strict=True)))
        self._writer = pa.csv.CSVWriter(self._sink, self._schema)

    def write(self, batch: pa.RecordBatch) -> bytes:
        columns = [
            pa.array([None if value is None else dump(value) for value in column.to_pylist()], pa.string())
            if text
            else column
            for column, text in zip(batch.columns, self._texts, strict=True)
        ]
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
        return take_piece(self._sink)

    def end(self) -> bytes:
        return take_piece(self._sink)


class JsonWriter:
    """Write batches as JSON, one row per line. Names that occur twice get a number."""

    def __init__(self, schema: pa.Schema) -> None:
        seen: dict[str, int] = {}
        self._names = []
        for name in schema.names:
            seen[name] = seen.get(name, 0) + 1
            self._names.append(name if seen[name] == 1 else f"{name}_{seen[name]}")

    def write(self, batch: pa.RecordBatch) -> bytes:
        columns = [column.to_pylist() for column in batch.columns]
        rows = (dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True))
        return b"".join(f"{dump(row)}\n".encode() for row in rows)

    def end(self) -> bytes:
        return b""


FORMATS: Final[Mapping[str, Any]] = {"arrow": ArrowWriter, "csv": CsvWriter, "json": JsonWriter}


def is_plain(type_: pa.DataType) -> bool:
    """Return whether Arrow's writer of CSV takes the type."""
    return not (pa.types.is_nested(type_) or any(check(type_) for check in _TYPES_AS_TEXT))


def dump(value: Any) -> str:
    """Encode a value as JSON, NaN and infinities as texts; a text alone as it is, bytes alone in base 16."""
    if isinstance(value, str | bytes):
        return value if isinstance(value, str) else value.hex()
    try:
        return json.dumps(value, default=encode, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(spell_floats(value), default=encode, ensure_ascii=False)


def spell_floats(value: Any) -> Any:
    """Replace NaN and infinities by texts, in nested values, too."""
    if isinstance(value, dict):
        return {key: spell_floats(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [spell_floats(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def encode(value: Any) -> Any:
    """Encode what JSON has not: bytes in base 16, maps as pairs, times in ISO form, decimals as text."""
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


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


if __name__ == "__main__":
    main()
