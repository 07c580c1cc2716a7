"""The bucket transform: the specification's 32-bit Murmur3 hash, seeded with 0, of a value's bytes."""

from typing import Any, Final

_WORD: Final = 0xFFFFFFFF
_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593


def bucket(value: Any, width: int) -> int:
    """The bucket, from 0 to `width`, of a whole number of up to 64 bits, a text or bytes.

    Days, times and timestamps are numbers. Decimals and UUIDs are hashed by other bytes: not here.
    """
    return (_murmur3(_bytes_of(value)) & 0x7FFFFFFF) % width


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, int):
        return value.to_bytes(8, "little", signed=True)
    return value.encode() if isinstance(value, str) else bytes(value)


def _murmur3(data: bytes) -> int:
    whole = len(data) & ~3
    state = 0
    for start in range(0, whole, 4):
        state = _rotated(state ^ _scrambled(data[start : start + 4]), 13) * 5 + 0xE6546B64 & _WORD
    if data[whole:]:
        state ^= _scrambled(data[whole:])
    return _avalanche(state ^ len(data))


def _scrambled(word: bytes) -> int:
    return _rotated(int.from_bytes(word, "little") * _C1 & _WORD, 15) * _C2 & _WORD


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD


def _avalanche(state: int) -> int:
    state = (state ^ state >> 16) * 0x85EBCA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & _WORD
    return state ^ state >> 16
