"""Avro's variable-length zig-zag integers, and slices that are never short."""

from typing import Final

from duckicelake.errors import InvalidRequest

_CACHED_BELOW: Final = 1 << 14
_SHORT: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))
"""What a single byte says: most integers have no more."""


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """The integer at an offset, and the offset after it. IndexError if the data ends first."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return _SHORT[byte], at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > 63:
            raise InvalidRequest(f"the integer that ends at byte {at} has more than 64 bits")


def take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    """So many bytes from an offset, and the offset after them. IndexError if the data ends first."""
    end = at + size
    if size < 0:
        raise InvalidRequest(f"a length of {size} is declared at byte {at}")
    if end > len(data):
        raise IndexError(end)
    return data[at:end], end


class _Longs(dict[int, bytes]):
    """Encoded integers by value; the small ones, which most are, stay."""

    def __missing__(self, number: int) -> bytes:
        encoded = _encode(number)
        if 0 <= number < _CACHED_BELOW:
            self[number] = encoded
        return encoded


def _encode(number: int) -> bytes:
    rest = number * 2 if number >= 0 else -2 * number - 1
    if rest < 0x80:
        return bytes((rest,))
    if rest < 0x4000:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    if rest < 0x200000:
        return bytes((rest & 0x7F | 0x80, rest >> 7 & 0x7F | 0x80, rest >> 14))
    if rest >> 64:
        raise OverflowError(f"{number} has more than 64 bits")
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


LONGS: Final = _Longs()
