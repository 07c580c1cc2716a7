"""Check a stranger's Parquet footer before DuckDB reads the file, and read its row count."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Final

import duckdb

from duckicelake.errors import InvalidRequestError, format_count

MAX_FOOTER_BYTES: Final = 64 << 20
MAX_SCHEMA_DEPTH: Final = 256
MAX_SCHEMA_ELEMENTS: Final = 100_000
MAX_READ_SECONDS: Final = 120
"""Seconds for DuckDB's work on a client's file: a small file may repeat a row a billion times."""
_MAGIC: Final = b"PAR1"
_TRAILER_BYTES: Final = 4 + len(_MAGIC)
_SCHEMA, _CHILDREN = 2, 5
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_VARINTS: Final = frozenset({_I16, _I32, _I64})
_MAX_SKIP_DEPTH: Final = 16
_ROWS_FIELD_ID: Final = 3
_ROWS_TYPE: Final = 6


def check_footer(file: Path, name: str) -> None:
    """Raise InvalidRequestError naming the file if it isn't Parquet, or its schema is too deep or too wide."""
    try:
        _check_schema(read_footer(file))
    except (IndexError, OSError) as error:
        raise InvalidRequestError(f"{name} can't be read as Parquet: its footer is damaged") from error
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{name} can't be read as Parquet: {error}") from error


@contextmanager
def limit_time(connection: duckdb.DuckDBPyConnection, seconds: float = MAX_READ_SECONDS) -> Iterator[None]:
    """Interrupt the connection's work in the block after so many seconds, by duckdb.InterruptException."""
    timer = Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def read_footer(file: Path) -> bytes:
    """Read a file's footer; InvalidRequestError or OSError: there is none that can be read."""
    if not file.is_file():
        raise InvalidRequestError("it isn't a file")
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        if size < len(_MAGIC) + _TRAILER_BYTES:
            raise InvalidRequestError(f"it has {size} bytes")
        opened.seek(size - _TRAILER_BYTES)
        trailer = opened.read(_TRAILER_BYTES)
        length = int.from_bytes(trailer[:4], "little")
        if not trailer.endswith(_MAGIC):
            raise InvalidRequestError(f"it doesn't end with {_MAGIC.decode()}")
        if length > min(MAX_FOOTER_BYTES, size - len(_MAGIC) - _TRAILER_BYTES):
            raise InvalidRequestError(
                f"its footer has {length} bytes, of a file of {size}; up to {MAX_FOOTER_BYTES} are read"
            )
        opened.seek(size - _TRAILER_BYTES - length)
        return opened.read(length)


def _check_schema(footer: bytes) -> None:
    at, field_id = 0, 0
    while True:
        kind, field_id, at = read_field_head(footer, at, field_id)
        if kind == _STOP:
            raise InvalidRequestError("its footer has no schema")
        if field_id == _SCHEMA and kind == _LIST:
            _check_elements(footer, at)
            return
        at = skip_value(footer, at, kind)


def _check_elements(footer: bytes, at: int) -> None:
    """Walk the elements of the schema. `left`: for each open group, the children still to come."""
    count, kind, at = _read_list_head(footer, at)
    if kind != _STRUCT:
        raise InvalidRequestError("its schema isn't a list of elements")
    if not 0 < count <= MAX_SCHEMA_ELEMENTS:
        found = format_count(count, "element")
        raise InvalidRequestError(f"its schema has {found}; from 1 to {MAX_SCHEMA_ELEMENTS:,} are read")
    left: list[int] = []
    for _ in range(count):
        children, at = _read_children(footer, at)
        while left and not left[-1]:
            left.pop()
        if left:
            left[-1] -= 1
        if not 0 <= children <= count:
            raise InvalidRequestError(
                f"a group of its schema has {format_count(children, 'field')}, of {count} elements in all"
            )
        if children:
            left.append(children)
        if len(left) > MAX_SCHEMA_DEPTH:
            raise InvalidRequestError(f"its schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")


def _read_children(footer: bytes, at: int) -> tuple[int, int]:
    """Return an element's number of children, and the offset after it."""
    children = field_id = 0
    while True:
        kind, field_id, at = read_field_head(footer, at, field_id)
        if kind == _STOP:
            return children, at
        if field_id == _CHILDREN and kind == _I32:
            number, at = read_varint(footer, at)
            children = (number >> 1) ^ -(number & 1)
        else:
            at = skip_value(footer, at, kind)


def read_field_head(data: bytes, at: int, previous: int) -> tuple[int, int, int]:
    """Read a field's head: type, id, and the offset after it. The type is _STOP after a struct's last field."""
    head = data[at]
    at += 1
    if head == _STOP:
        return _STOP, 0, at
    if head >> 4:
        return head & 15, previous + (head >> 4), at
    number, at = read_varint(data, at)
    return head & 15, (number >> 1) ^ -(number & 1), at


def _read_list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Read a list's head: count and type of its members, and the first one's offset."""
    head = data[at]
    at += 1
    if head >> 4 < 15:
        return head >> 4, head & 15, at
    count, at = read_varint(data, at)
    return count, head & 15, at


def skip_value(data: bytes, at: int, kind: int, depth: int = 0) -> int:
    """Return the offset after a value."""
    if depth > _MAX_SKIP_DEPTH:
        raise InvalidRequestError("its footer is nested too deeply")
    if kind in {_TRUE, _FALSE}:
        return at
    if kind == _BYTE:
        return at + 1
    if kind in _VARINTS:
        return read_varint(data, at)[1]
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        length, at = read_varint(data, at)
        return at + length
    if kind == _STRUCT:
        return _skip_struct(data, at, depth)
    if kind in {_LIST, _SET}:
        return _skip_list(data, at, depth)
    raise InvalidRequestError(f"its footer holds a value of the unknown type {kind}")


def _skip_struct(data: bytes, at: int, depth: int) -> int:
    field_id = 0
    while True:
        kind, field_id, at = read_field_head(data, at, field_id)
        if kind == _STOP:
            return at
        at = skip_value(data, at, kind, depth + 1)


def _skip_list(data: bytes, at: int, depth: int) -> int:
    count, kind, at = _read_list_head(data, at)
    if count > len(data):
        raise IndexError(count)
    for _ in range(count):
        # A boolean takes no byte as a field, and one byte in a list.
        at = at + 1 if kind in {_TRUE, _FALSE} else skip_value(data, at, kind, depth + 1)
    return at


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise InvalidRequestError("a number in its footer has more than 64 bits")


def read_row_count(file: Path, name: str) -> int:
    """Read the number of rows; InvalidRequestError names the file: it isn't Parquet."""
    try:
        return _parse_row_count(read_footer(file))
    except (IndexError, OSError) as error:
        raise InvalidRequestError(f"{name} can't be read as Parquet: its footer is damaged") from error
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{name} can't be read as Parquet: {error}") from error


def _parse_row_count(footer: bytes) -> int:
    at, field_id = 0, 0
    while True:
        kind, field_id, at = read_field_head(footer, at, field_id)
        if kind == 0:
            raise InvalidRequestError("its footer doesn't say how many rows it has")
        if field_id == _ROWS_FIELD_ID and kind == _ROWS_TYPE:
            number, _ = read_varint(footer, at)
            return (number >> 1) ^ -(number & 1)
        at = skip_value(footer, at, kind)
