"""Sketches of distinct values, in the form of Apache DataSketches' compact Theta sketches.

A sketch keeps the smallest hashes of the values. The share of all hashes that lie below the largest of them gives the
number of distinct values, within 3 % in 95 of 100 sketches.
"""

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from duckicelake.extras import DeferredModule

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
else:
    pa = DeferredModule("pyarrow")
    np = DeferredModule("numpy")

SKETCH_HASHES: Final = 4096
"""Java's default number of nominal entries."""
_SEED: Final = 9001
_SEED_HASH: Final = 37836
"""The 16 bits of the seed's own hash by which DataSketches refuses sketches of other seeds."""
_WHOLE: Final = 2**63 - 1
"""Theta of a sketch that has the hash of every value."""
_COMPACT_FAMILY, _SERIAL_VERSION = 3, 3
_READ_ONLY, _EMPTY, _COMPACT, _ORDERED, _SINGLE = 2, 4, 8, 16, 32
_FLAGS: Final = _READ_ONLY | _COMPACT | _ORDERED
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_BLOCK: Final = 16


@dataclass(slots=True)
class ThetaSketch:
    """The smallest hashes of what was added. theta: hashes from it on aren't kept."""

    hashes: "NDArray[np.ulonglong]" = field(default_factory=lambda: np.zeros(0, np.ulonglong))
    theta: int = _WHOLE

    def add(self, hashes: "NDArray[np.ulonglong]") -> None:
        """Add hashes; the same one may come more than once."""
        new = hashes[(hashes > 0) & (hashes < self.theta)]
        if not len(new):
            return
        self.hashes = np.unique(np.concatenate((self.hashes, new)))
        if len(self.hashes) > SKETCH_HASHES:
            self.theta = int(self.hashes[SKETCH_HASHES])
            self.hashes = self.hashes[:SKETCH_HASHES].copy()

    @property
    def estimate(self) -> int:
        """The number of distinct values."""
        return round(len(self.hashes) * (2**63 / self.theta)) if self.theta < _WHOLE else len(self.hashes)

    def to_bytes(self) -> bytes:
        """Encode the sketch as Java's `CompactSketch.toByteArray`."""
        count, is_whole = len(self.hashes), self.theta == _WHOLE
        if is_whole and count < 2:
            flags = _FLAGS | (_SINGLE if count else _EMPTY)
            return _write_head(1, flags) + self.hashes.astype("<u8").tobytes()
        head = _write_head(2 if is_whole else 3, _FLAGS) + struct.pack("<If", count, 1.0)
        theta = b"" if is_whole else self.theta.to_bytes(8, "little")
        return head + theta + self.hashes.astype("<u8").tobytes()


def _write_head(longs: int, flags: int) -> bytes:
    return struct.pack("<BBBBBBH", longs, _SERIAL_VERSION, _COMPACT_FAMILY, 0, 0, flags, _SEED_HASH)


def hash_values(column: "pa.Array") -> "NDArray[np.ulonglong]":
    """Hash the values of an Arrow array, as their bytes lie in it; decimals as big-endian numbers. Nulls have none."""
    values = column.drop_null()
    kind = values.type
    if pa.types.is_decimal(kind):
        return _hash_decimals(values.unique())
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        distinct = values.unique().cast(pa.binary())
        offsets = np.frombuffer(distinct.buffers()[1], np.int32)[: len(distinct) + 1].astype(np.int64)
        data = distinct.buffers()[2]
        return hash_texts(b"" if data is None else data.to_pybytes(), offsets[1:])
    words = np.frombuffer(values.buffers()[1], f"<u{kind.bit_width // 8}")
    return hash_fixed(words[values.offset : values.offset + len(values)])


def _hash_decimals(values: "pa.Array") -> "NDArray[np.ulonglong]":
    """Hash unscaled values in as few big-endian bytes as two's complement needs, as Iceberg serializes them."""
    count = len(values)
    words = np.frombuffer(values.cast(pa.decimal128(38, values.type.scale)).buffers()[1], np.ubyte)
    numbers = words[: count * _BLOCK].reshape(count, _BLOCK)[:, ::-1]
    sign = numbers[:, :1] >> 7
    is_spare = (numbers[:, :-1] == sign * 255) & (numbers[:, 1:] >> 7 == sign)
    spare = np.cumprod(is_spare, axis=1).sum(axis=1)
    kept = np.arange(_BLOCK) >= spare[:, None]
    return hash_texts(numbers[kept].tobytes(), np.cumsum(_BLOCK - spare))


def hash_texts(data: bytes, ends: "NDArray[np.int64]") -> "NDArray[np.ulonglong]":
    """Hash byte strings that lie one behind the other. ends: of each; the first begins at 0.

    DataSketches takes no empty string: it is left out.
    """
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    lengths = ends - starts
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    padded = data + bytes(_BLOCK)
    words: NDArray[np.ulonglong] = np.ndarray(len(data) + _BLOCK - 7, "<u8", padded, strides=(1,))
    first = np.full(len(starts), _SEED, np.ulonglong)
    second = first.copy()
    blocks = lengths // _BLOCK
    active = int(np.count_nonzero(blocks))
    at = 0
    while active:  # of the strings, longest first, those that have this block
        here = starts[:active] + at
        first[:active], second[:active] = _mix_block(first[:active], second[:active], words[here], words[here + 8])
        at += _BLOCK
        active = int(np.searchsorted(-blocks, -(at // _BLOCK), side="left"))
    rest = starts + blocks * _BLOCK
    left = lengths % _BLOCK
    low = words[rest] & _mask(np.minimum(left, 8))
    high = words[np.minimum(rest + 8, len(words) - 1)] & _mask(np.maximum(left - 8, 0))
    return _finish(first ^ _scramble_low(low), second ^ _scramble_high(high), lengths.astype(np.ulonglong))


def hash_fixed(values: "NDArray[Any]") -> "NDArray[np.ulonglong]":
    """Hash words of one to eight bytes, each as its bytes from the lowest on."""
    size = values.dtype.itemsize
    low = values.astype(np.ulonglong)
    seeds = np.full(len(values), _SEED, np.ulonglong)
    return _finish(seeds ^ _scramble_low(low), seeds, np.full(len(values), size, np.ulonglong))


def _mask(count: "NDArray[np.int64]") -> "NDArray[np.ulonglong]":
    """Return a mask of the lowest bytes, up to eight."""
    bits = (np.minimum(count, 7) * 8).astype(np.ulonglong)
    return np.where(count >= 8, np.ulonglong(2**64 - 1), (np.ulonglong(1) << bits) - np.ulonglong(1))


def _mix_block(
    first: "NDArray[np.ulonglong]",
    second: "NDArray[np.ulonglong]",
    low: "NDArray[np.ulonglong]",
    high: "NDArray[np.ulonglong]",
) -> "tuple[NDArray[np.ulonglong], NDArray[np.ulonglong]]":
    first = _rotate(first ^ _scramble_low(low), 27) + second
    first = first * np.ulonglong(5) + np.ulonglong(0x52DCE729)
    second = _rotate(second ^ _scramble_high(high), 31) + first
    return first, second * np.ulonglong(5) + np.ulonglong(0x38495AB5)


def _scramble_low(word: "NDArray[np.ulonglong]") -> "NDArray[np.ulonglong]":
    return _rotate(word * np.ulonglong(_C1), 31) * np.ulonglong(_C2)


def _scramble_high(word: "NDArray[np.ulonglong]") -> "NDArray[np.ulonglong]":
    return _rotate(word * np.ulonglong(_C2), 33) * np.ulonglong(_C1)


def _rotate(word: "NDArray[np.ulonglong]", bits: int) -> "NDArray[np.ulonglong]":
    return (word << np.ulonglong(bits)) | (word >> np.ulonglong(64 - bits))


def _finish(
    first: "NDArray[np.ulonglong]", second: "NDArray[np.ulonglong]", lengths: "NDArray[np.ulonglong]"
) -> "NDArray[np.ulonglong]":
    """Return the upper half of MurmurHash3's 128 bits, without its lowest bit, as DataSketches takes it."""
    first, second = first ^ lengths, second ^ lengths
    first = first + second
    second = second + first
    return (_avalanche(first) + _avalanche(second)) >> np.ulonglong(1)


def _avalanche(word: "NDArray[np.ulonglong]") -> "NDArray[np.ulonglong]":
    word = (word ^ (word >> np.ulonglong(33))) * np.ulonglong(0xFF51AFD7ED558CCD)
    word = (word ^ (word >> np.ulonglong(33))) * np.ulonglong(0xC4CEB9FE1A85EC53)
    return word ^ (word >> np.ulonglong(33))
