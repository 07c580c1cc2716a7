"""Thrift's compact protocol, as far as a Parquet footer of ours needs it: structs to bytes.

A struct is a mapping from field ids, in ascending order, to values; a number comes with its width, as the wire tells
32 bits from 64 though it writes them the same.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_STOP: Final = b"\x00"
_BYTES: Final = [bytes([number]) for number in range(256)]


class I32(int):
    """A number of 32 bits."""


class I64(int):
    """A number of 64 bits."""


Value: TypeAlias = I32 | I64 | bytes | Sequence["Value"] | dict[int, "Value"]
Struct: TypeAlias = dict[int, Value]


def encode_struct(struct: Struct) -> bytes:
    """The bytes of a struct."""
    parts: list[bytes] = []
    before = 0
    for field_id, value in struct.items():
        kind, encoded = _encode(value)
        parts += (_BYTES[(field_id - before) << 4 | kind], encoded)
        before = field_id
    parts.append(_STOP)
    return b"".join(parts)


def _encode(value: Value) -> tuple[int, bytes]:
    """(the type, the bytes) of a value."""
    if isinstance(value, int):
        return _I32 if isinstance(value, I32) else _I64, _varint(2 * value if value >= 0 else -2 * value - 1)
    if isinstance(value, bytes):
        return _BINARY, _varint(len(value)) + value
    if isinstance(value, dict):
        return _STRUCT, encode_struct(value)
    assert 0 < len(value) < 15, "longer lists have their length after the head"
    encoded = [_encode(each) for each in value]
    return _LIST, b"".join((_BYTES[len(value) << 4 | encoded[0][0]], *(each for _, each in encoded)))


def _varint(number: int) -> bytes:
    if number <= 0x7F:
        return _BYTES[number]
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
