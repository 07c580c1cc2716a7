"""Read rows from files and pipes, NDJSON or CSV, with the line of each row, and show the progress."""

import csv
import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from duckicelake.client.stream import Progress as Written
from duckicelake.client.writer import Writer
from duckicelake.errors import BadSourceError, format_count

RowsFormat: TypeAlias = Literal["ndjson", "csv"]
NumberedRows: TypeAlias = tuple[Any, Sequence[int]]
"""Rows as a writer takes them, with their lines."""

ColumnTypes: TypeAlias = Callable[[], Mapping[str, Any]]
"""Loads the types of the table's columns, in Iceberg's JSON."""

STANDARD_INPUT: Final = "-"
_CHUNK_BYTES: Final = 1 << 20
_MAX_RUNS: Final = 1 << 20
_MAX_FIELD_CHARS: Final = 1 << 30
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class RowSource:
    """Files in their order; `-` is standard input. format: None infers it from the name of each file."""

    files: Sequence[str]
    format: RowsFormat | None

    @property
    def size(self) -> int | None:
        """Sum the bytes of all files; None if standard input is one of them. BadSourceError."""
        if STANDARD_INPUT in self.files:
            return None
        try:
            return sum(Path(file).stat().st_size for file in self.files)
        except OSError as error:
            raise BadSourceError(f"{error.filename} can't be read: {error.strerror}") from error

    def read(self, places: "SourceLines", types: ColumnTypes) -> Iterator[tuple[Any, int]]:
        """Yield rows as a writer takes them, and the bytes read so far; BadSourceError."""
        before = 0
        for name in self.files:
            shown = "standard input" if name == STANDARD_INPUT else name
            try:
                with _open(name) as file:
                    for rows, lines in self._rows(file, name, types):
                        places.add(shown, lines)
                        yield rows, before + _read_position(file, name)
                    before += _read_position(file, name)
            except BadSourceError as error:
                raise BadSourceError(f"{shown}: {error}") from error
            except OSError as error:
                raise BadSourceError(f"{shown} can't be read: {error.strerror}") from error

    def _rows(self, file: BufferedReader, name: str, types: ColumnTypes) -> Iterator[NumberedRows]:
        kind = self.format or ("csv" if name.lower().endswith(".csv") else "ndjson")
        return read_csv_rows(file, types()) if kind == "csv" else read_json_rows(file)


@contextmanager
def _open(name: str) -> Iterator[BufferedReader]:
    if name == STANDARD_INPUT:
        yield cast("BufferedReader", sys.stdin.buffer)
    else:
        with Path(name).open("rb") as file:
            yield file


def _read_position(file: BufferedReader, name: str) -> int:
    return 0 if name == STANDARD_INPUT else file.tell()


class SourceLines:
    """Where rows came from: runs of rows in successive lines of a file."""

    def __init__(self) -> None:
        self._rows = 0
        self._runs: deque[tuple[int, str, int]] = deque(maxlen=_MAX_RUNS)

    def add(self, file: str, lines: Sequence[int]) -> None:
        """Add the lines of the next rows."""
        for line in _find_starts(lines):
            self._begin(file, line)
            self._rows += 1
        if isinstance(lines, range):
            self._rows += len(lines) - 1

    def of(self, row: int) -> str:
        """Format file and line of a row. Rows count from 0, lines from 1."""
        first, file, line = next((run for run in reversed(self._runs) if run[0] <= row), (0, "the input", 1))
        return f"{file}, line {line + row - first}"

    def _begin(self, file: str, line: int) -> None:
        if self._runs:
            first, same, start = self._runs[-1]
            if (same, start + self._rows - first) == (file, line):
                return
        self._runs.append((self._rows, file, line))


def _find_starts(lines: Sequence[int]) -> Sequence[int]:
    return lines[:1] if isinstance(lines, range) else lines


def read_json_rows(file: BufferedReader) -> Iterator[NumberedRows]:
    """Yield the available lines of NDJSON. The catalog checks their content."""
    rest, number, is_first = b"", 1, True
    while chunk := file.read1(_CHUNK_BYTES):
        if is_first:
            chunk, is_first = chunk.removeprefix(_BOM), False
        whole, newline, rest = (rest + chunk).rpartition(b"\n")
        if newline:
            yield from _number_lines(whole, number)
            number += whole.count(b"\n") + 1
    yield from _number_lines(rest, number)


def _number_lines(text: bytes, number: int) -> Iterator[NumberedRows]:
    lines = text.split(b"\n")
    places = [number + index for index, line in enumerate(lines) if line.strip()]
    if places:
        yield text, range(number, number + len(lines)) if len(places) == len(lines) else places


def read_csv_rows(file: BufferedReader, types: Mapping[str, Any]) -> Iterator[NumberedRows]:
    """Read the records of CSV with a header, as the types of the table's columns; an empty field is null.

    types: Iceberg's, by column. Raises BadSourceError for what is no CSV; values that don't fit are the catalog's to
        refuse.
    """
    csv.field_size_limit(_MAX_FIELD_CHARS)
    text = TextIOWrapper(file, encoding="utf-8-sig", newline="")
    reader = csv.reader(text, strict=True)
    try:
        header = next(reader, [])
        if len(set(header)) < len(header):
            raise BadSourceError("two columns of the header have one name")
        read = [_build_reader(types.get(name)) for name in header]
        end = reader.line_num
        for record in reader:
            begin, end = end + 1, reader.line_num
            if not record:
                continue
            if len(record) != len(header):
                raise BadSourceError(f"line {begin} has {format_count(len(record), 'field')}, the header {len(header)}")
            values = [value(text) if text else None for value, text in zip(read, record, strict=True)]
            yield dict(zip(header, values, strict=True)), [begin]
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadSourceError(f"after line {reader.line_num} it isn't CSV in UTF-8: {error}") from error
    finally:
        text.detach()


def _build_reader(type_: Any) -> Callable[[str], Any]:
    match type_:
        case "int" | "long":
            return _parse_integer
        case "float" | "double":
            return _parse_number
        case "boolean":
            return lambda text: {"true": True, "false": False}.get(text.lower(), text)
        case dict():
            return _parse_json
        case _:
            return str


def _parse_integer(text: str) -> int | str:
    digits = text[1:] if text[0] in "+-" else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else text


def _parse_number(text: str) -> float | str:
    if "_" in text:
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) or text.strip("+-").lower() in {"nan", "inf", "infinity"} else text


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


_SECONDS_BETWEEN_LINES: Final = 10.0

ReadCallback = Callable[[int], None]
"""Gets the number of bytes read so far."""


@contextmanager
def show_progress(writer: Writer, what: str, size: int | None) -> Iterator[ReadCallback]:
    """Show the progress of the writer during the block. size: bytes of the input, None if unknown."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _build_line_printer(writer)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), RowsColumn(writer), TimeElapsedColumn())
    # Transient, because the summary repeats it. Unredirected output for a file or pipe must not go to the terminal.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bars:
        task = bars.add_task(what, total=size)
        yield lambda bytes_: bars.update(task, completed=bytes_)


class RowsColumn(ProgressColumn):
    """Shows rows, rows per second, and trouble of the writer, as of each redraw of the bar."""

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer

    def render(self, task: Task) -> Text:
        return Text(describe_progress(self._writer.progress, task.elapsed or 0.0))


def describe_progress(progress: Written, seconds: float) -> str:
    """Describe the progress after some seconds in one line."""
    parts = [format_count(progress.written, "row"), f"{progress.written / max(seconds, 1e-3):,.0f} rows/s"]
    if progress.skipped:
        parts.append(f"{progress.skipped:,} skipped")
    parts.append(format_count(progress.retries, "retry"))
    if progress.trouble:
        parts.append(f"waiting: {progress.trouble}")
    return ", ".join(parts)


def _build_line_printer(writer: Writer) -> ReadCallback:
    began = last = time.monotonic()

    def print_line(_: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            typer.echo(describe_progress(writer.progress, now - began), err=True)

    return print_line
