"""Apply transforms to values, bucket hashes included (table spec, "Partition Transforms")."""

from decimal import Decimal
from typing import Any, Final

from duckicelake.iceberg.calendar import DAY_SECONDS, split_days
from duckicelake.iceberg.partition import Transform
from duckicelake.iceberg.primitives import TRAITS
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import from_unscaled, to_unscaled

_WORD: Final = 0xFFFFFFFF
_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593
_HOUR_SECONDS = 3600
_TICKS: Final = {name: 10**traits.digits for name, traits in TRAITS.items() if traits.family == "timestamp"}
"""Units of a timestamp type in a second."""


def compute_bucket(value: Any, width: int) -> int:
    """Compute the bucket, from 0 to `width`, of a whole number of up to 64 bits, a text or bytes.

    Days, times and timestamps are numbers. Decimals and UUIDs hash other bytes: not here.
    """
    return (_hash_murmur3(_encode_hashed(value)) & 0x7FFFFFFF) % width


def _encode_hashed(value: Any) -> bytes:
    if isinstance(value, int):
        return value.to_bytes(8, "little", signed=True)
    return value.encode() if isinstance(value, str) else bytes(value)


def _hash_murmur3(data: bytes) -> int:
    whole = len(data) & ~3
    state = 0
    for start in range(0, whole, 4):
        state = _rotate_left(state ^ _scramble(data[start : start + 4]), 13) * 5 + 0xE6546B64 & _WORD
    if data[whole:]:
        state ^= _scramble(data[whole:])
    return _mix_final(state ^ len(data))


def _scramble(word: bytes) -> int:
    return _rotate_left(int.from_bytes(word, "little") * _C1 & _WORD, 15) * _C2 & _WORD


def _rotate_left(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD


def _mix_final(state: int) -> int:
    state = (state ^ state >> 16) * 0x85EBCA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & _WORD
    return state ^ state >> 16


def apply_transform(transform: Transform, source: PrimitiveType, value: Any) -> Any:
    """Transform a value that isn't null. The transform must accept the source type, and be no bucket."""
    match transform.name:
        case "identity":
            return value
        case "void":
            return None
        case "truncate":
            return _truncate(transform.width or 1, source, value)
        case name:
            return _compute_offset(name, source, value)


def _truncate(width: int, source: PrimitiveType, value: Any) -> Any:
    if isinstance(value, Decimal):
        whole = to_unscaled(value, source.precision or 0, source.scale or 0)
        return from_unscaled(whole - whole % width, source.scale or 0)
    return value - value % width if isinstance(value, int) else value[:width]


def _compute_offset(transform: str, source: PrimitiveType, value: int) -> int:
    ticks = _TICKS.get(source.name)
    if transform == "hour":
        return value // (_HOUR_SECONDS * (ticks or 1))
    days = value if ticks is None else value // (DAY_SECONDS * ticks)
    if transform == "day":
        return days
    year, month, _ = split_days(days)
    return year - 1970 if transform == "year" else (year - 1970) * 12 + month - 1
