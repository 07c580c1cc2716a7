"""Thrift's compact protocol, as far as a Parquet footer of ours needs it: structs to bytes.

A struct is a mapping from field ids, in ascending order, to values; a number comes with its width, as the wire tells
32 bits from 64 though it writes them the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_STOP: Final = b"\x00"


@dataclass(frozen=True, slots=True)
class I32:
    number: int


@dataclass(frozen=True, slots=True)
class I64:
    number: int


Value: TypeAlias = I32 | I64 | bytes | Sequence["Value"] | Mapping[int, "Value"]
Struct: TypeAlias = Mapping[int, Value]


def encode_struct(struct: Struct) -> bytes:
    """The bytes of a struct."""
    parts: list[bytes] = []
    before = 0
    for field_id, value in struct.items():
        parts += [bytes([(field_id - before) << 4 | _type(value)]), _encode(value)]
        before = field_id
    return b"".join(parts) + _STOP


def _type(value: Value) -> int:
    match value:
        case I32():
            return _I32
        case I64():
            return _I64
        case bytes():
            return _BINARY
        case Mapping():
            return _STRUCT
    return _LIST


def _encode(value: Value) -> bytes:
    match value:
        case I32() | I64():
            return _varint(2 * value.number if value.number >= 0 else -2 * value.number - 1)
        case bytes():
            return _varint(len(value)) + value
        case Mapping():
            return encode_struct(value)
    assert 0 < len(value) < 15, "longer lists have their length after the head"
    return bytes([len(value) << 4 | _type(value[0])]) + b"".join(map(_encode, value))


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
