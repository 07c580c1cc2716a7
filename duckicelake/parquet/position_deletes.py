"""Write position delete files: two columns, one row group, encoded without DuckDB."""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_STOP: Final = b"\x00"
_BYTES: Final = [bytes([number]) for number in range(256)]
FILE_PATH_FIELD_ID, POSITION_FIELD_ID = 2147483546, 2147483545
_MAGIC: Final = b"PAR1"
_PAGE_ROWS: Final = 20_000
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


class I32(int):
    """A number of 32 bits."""


class I64(int):
    """A number of 64 bits."""


Value: TypeAlias = I32 | I64 | bytes | Sequence["Value"] | dict[int, "Value"]

Struct: TypeAlias = dict[int, Value]


def encode_struct(struct: Struct) -> bytes:
    """Return the bytes of a struct."""
    parts: list[bytes] = []
    before = 0
    for field_id, value in struct.items():
        kind, encoded = _encode_value(value)
        parts += (_BYTES[(field_id - before) << 4 | kind], encoded)
        before = field_id
    parts.append(_STOP)
    return b"".join(parts)


def _encode_value(value: Value) -> tuple[int, bytes]:
    """Return (the type, the bytes) of a value."""
    if isinstance(value, int):
        return _I32 if isinstance(value, I32) else _I64, _encode_varint(2 * value if value >= 0 else -2 * value - 1)
    if isinstance(value, bytes):
        return _BINARY, _encode_varint(len(value)) + value
    if isinstance(value, dict):
        return _STRUCT, encode_struct(value)
    assert 0 < len(value) < 15, "longer lists have their length after the head"
    encoded = [_encode_value(item) for item in value]
    return _LIST, b"".join((_BYTES[len(value) << 4 | encoded[0][0]], *(part for _, part in encoded)))


def _encode_varint(number: int) -> bytes:
    if number <= 0x7F:
        return _BYTES[number]
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_INT64, _BYTE_ARRAY = I32(2), I32(6)

_REQUIRED, _UTF8, _PLAIN, _RLE, _GZIP = I32(0), I32(0), I32(0), I32(3), I32(2)

_STRING_TYPE: Final[Struct] = {1: {}}

_TYPE_ORDER: Final[Struct] = {1: {}}


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column's pages, one after the other, with what the footer says of them; sizes in bytes."""

    name: bytes
    type: I32
    pages: bytes
    unpacked: int
    lower: bytes
    upper: bytes


def write_position_deletes(positions: Sequence[tuple[str, int]]) -> bytes:
    """Return a position delete file of (data file path, position), sorted as the specification demands.

    At least one.
    """
    ordered = sorted((path.encode(), position) for path, position in positions)
    paths = [path for path, _ in ordered]
    pages = [ordered[start : start + _PAGE_ROWS] for start in range(0, len(ordered), _PAGE_ROWS)]
    numbers = [position for _, position in ordered]
    chunks = (
        _build_chunk(b"file_path", _BYTE_ARRAY, map(_encode_paths, pages), pages, (paths[0], paths[-1])),
        _build_chunk(
            b"pos",
            _INT64,
            map(_encode_positions, pages),
            pages,
            (_encode_long(min(numbers)), _encode_long(max(numbers))),
        ),
    )
    footer = encode_struct(_build_footer(chunks, len(ordered)))
    body = b"".join(chunk.pages for chunk in chunks)
    return b"".join((_MAGIC, body, footer, len(footer).to_bytes(4, "little"), _MAGIC))


def _encode_paths(rows: Sequence[tuple[bytes, int]]) -> bytes:
    """Return sorted rows come in runs of one path."""
    return b"".join(
        (len(path).to_bytes(4, "little") + path) * len(list(run)) for path, run in groupby(rows, lambda row: row[0])
    )


def _encode_positions(rows: Sequence[tuple[bytes, int]]) -> bytes:
    return struct.pack(f"<{len(rows)}q", *(position for _, position in rows))


def _encode_long(number: int) -> bytes:
    return struct.pack("<q", number)


def _build_chunk(
    name: bytes,
    type_: I32,
    contents: Iterable[bytes],
    pages: Sequence[Sequence[object]],
    bounds: tuple[bytes, bytes],
) -> _Chunk:
    written, unpacked = [], 0
    for content, rows in zip(contents, pages, strict=True):
        stream = zlib.compressobj(wbits=_GZIP_WINDOW)
        packed = stream.compress(content) + stream.flush()
        said: Struct = {1: I32(len(rows)), 2: _PLAIN, 3: _RLE, 4: _RLE}
        head = encode_struct({1: I32(0), 2: I32(len(content)), 3: I32(len(packed)), 5: said})
        written += [head, packed]
        unpacked += len(head) + len(content)
    return _Chunk(name, type_, b"".join(written), unpacked, *bounds)


def _build_footer(chunks: Sequence[_Chunk], rows: int) -> Struct:
    path: Struct = {
        1: _BYTE_ARRAY,
        3: _REQUIRED,
        4: b"file_path",
        6: _UTF8,
        9: I32(FILE_PATH_FIELD_ID),
        10: _STRING_TYPE,
    }
    position: Struct = {1: _INT64, 3: _REQUIRED, 4: b"pos", 9: I32(POSITION_FIELD_ID)}
    row_group: Struct = {
        1: list(_build_column_chunks(chunks, rows)),
        2: I64(sum(chunk.unpacked for chunk in chunks)),
        3: I64(rows),
        5: I64(len(_MAGIC)),
        6: I64(sum(len(chunk.pages) for chunk in chunks)),
    }
    return {
        1: I32(1),
        2: [{4: b"schema", 5: I32(2)}, path, position],
        3: I64(rows),
        4: [row_group],
        6: b"duckicelake",
        7: [_TYPE_ORDER, _TYPE_ORDER],
    }


def _build_column_chunks(chunks: Iterable[_Chunk], rows: int) -> Iterator[Struct]:
    offset = len(_MAGIC)
    for chunk in chunks:
        yield {
            2: I64(0),
            3: {
                1: chunk.type,
                2: [_PLAIN, _RLE],
                3: [chunk.name],
                4: _GZIP,
                5: I64(rows),
                6: I64(chunk.unpacked),
                7: I64(len(chunk.pages)),
                9: I64(offset),
                12: {3: I64(0), 5: chunk.upper, 6: chunk.lower},
            },
        }
        offset += len(chunk.pages)
