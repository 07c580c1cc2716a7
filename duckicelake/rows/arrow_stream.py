"""PURE. Arrow IPC streams as tables, with bounds on what a small body may claim to hold.

The framing is read here before Arrow sees it: whether the stream was sent to its end, and how much its compressed
buffers become (Arrow's `Message.fbs`; each of them begins with that length in eight bytes).
"""

import struct
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from duckicelake.errors import InvalidRequest

MAX_BYTES: Final = 256 << 20
"""Of a batch, uncompressed."""
_READING: Final = pa.ipc.IpcReadOptions(use_threads=False)
_CONTINUATION: Final = 0xFFFFFFFF
_DICTIONARY, _RECORDS = 2, 3
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3
_BUFFERS, _COMPRESSION = 2, 3
_DICTIONARY_DATA = 1
_BUFFER_SIZE = 16


def read_table(body: bytes) -> pa.Table:
    """The table of a whole stream, its contents checked.

    Raises:
        InvalidRequest: it is none, was cut off, or holds too much.

    """
    try:
        check_size(sum(_uncompressed(body, message) for message in _messages(body)))
        with pa.ipc.open_stream(body, options=_READING) as stream:
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, struct.error, OSError, IndexError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The rows can't be read: the body is no Arrow IPC stream: {error}") from error
    return table


def check_size(size: int) -> None:
    """InvalidRequest for more bytes than a batch may have uncompressed."""
    if size > MAX_BYTES:
        raise InvalidRequest(f"A batch takes up to {MAX_BYTES} bytes uncompressed, not {size}: send several")


def _messages(body: bytes) -> Iterator[tuple[int, int]]:
    """Where each message's metadata and body begin; InvalidRequest if the stream doesn't end as it should."""
    at = 0
    while True:
        if at + 8 > len(body):
            raise InvalidRequest("The Arrow IPC stream was cut off: it has no end-of-stream marker")
        continuation, length = struct.unpack_from("<Ii", body, at)
        if continuation != _CONTINUATION or length < 0:
            raise InvalidRequest(f"The body is no Arrow IPC stream: there is no message at byte {at}")
        if length == 0:
            break
        data = at + 8 + length
        yield at + 8, data
        at = data + max(0, _long(body, _field(body, _root(body, at + 8), _BODY_LENGTH)))
    if at + 8 != len(body):
        raise InvalidRequest("The body goes on after the end of its Arrow IPC stream")


def _uncompressed(body: bytes, message: tuple[int, int]) -> int:
    """The bytes that a message's compressed buffers become."""
    metadata, data = message
    table = _root(body, metadata)
    kind, header = _field(body, table, _HEADER_TYPE), _table(body, _field(body, table, _HEADER))
    if not kind or not header or body[kind] not in {_DICTIONARY, _RECORDS}:
        return 0
    if body[kind] == _DICTIONARY:
        header = _table(body, _field(body, header, _DICTIONARY_DATA))
    vector = _table(body, _field(body, header, _BUFFERS)) if _field(body, header, _COMPRESSION) else 0
    if not vector:
        return 0
    (count,) = struct.unpack_from("<I", body, vector)
    ends = struct.iter_unpack("<qq", body[vector + 4 : vector + 4 + _BUFFER_SIZE * count])
    return sum(max(_long(body, data + offset), length) for offset, length in ends if length)


def _root(body: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", body, at)[0])


def _field(body: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table is; 0 if it has none."""
    vtable = table - struct.unpack_from("<i", body, table)[0]
    (size,) = struct.unpack_from("<H", body, vtable)
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", body, vtable + place)[0] if place + 2 <= size else 0
    return table + offset if offset else 0


def _table(body: bytes, field: int) -> int:
    """What a field refers to."""
    return _root(body, field) if field else 0


def _long(body: bytes, field: int) -> int:
    return int(struct.unpack_from("<q", body, field)[0]) if field else 0
