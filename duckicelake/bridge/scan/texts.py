"""PURE. The bounds of texts and bytes that a key of seven bytes cuts, by which files are decided whose keys are equal.

Where many values begin alike, as paths and URLs do, keys keep up to hundreds of times as many files as whole bounds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from duckicelake.extras import DeferredModule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = DeferredModule("numpy")


MAX_BYTES: Final = 64
"""Of a bound behind the prefix, in memory; longer ones are cut, the upper ones upwards."""
MAX_TAKEN_FILES: Final = 20_000
"""Whose bounds are taken out of those of all; these take 0.2 µs each. Of more the keys alone decide."""


@dataclass(frozen=True, slots=True)
class TextBounds:
    """The lower and the upper bound of a column in each of many files, one behind the other, without their prefix.

    ends: where each of them ends, after a zero. An unknown bound is empty.
    """

    data: bytes
    ends: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        return len(self.data) + self.ends.nbytes

    def get(self, place: int) -> tuple[bytes, bytes]:
        """Return the bounds of a file."""
        first, middle, last = self.ends[2 * place : 2 * place + 3].tolist()
        return self.data[first:middle], self.data[middle:last]

    def take(self, places: NDArray[np.intp] | slice) -> TextBounds | None:
        """Return the bounds of the files at these places; None of too many."""
        if isinstance(places, slice):
            ends = self.ends[2 * places.start : 2 * places.stop + 1]
            return TextBounds(self.data[ends[0] : ends[-1]], ends - ends[0])
        if len(places) > MAX_TAKEN_FILES:
            return None
        firsts, lasts = self.ends[2 * places].tolist(), self.ends[2 * places + 2].tolist()
        data = b"".join([self.data[first:last] for first, last in zip(firsts, lasts, strict=True)])
        return TextBounds(data, _sum(np.diff(self.ends).reshape(-1, 2)[places].reshape(-1)))


def build_text_bounds(lows: Sequence[bytes | None], highs: Sequence[bytes | None], skipped: int) -> TextBounds:
    """Build the bounds of files in their order, without so many bytes at their beginning. None is unknown."""
    pairs = zip(lows, highs, strict=True)
    bounds = [
        bound
        for low, high in pairs
        for bound in ((low or b"")[skipped : skipped + MAX_BYTES], _cut_upper((high or b"")[skipped:]))
    ]
    return TextBounds(b"".join(bounds), _sum(np.fromiter(map(len, bounds), np.int32, len(bounds))))


def _cut_upper(bound: bytes) -> bytes:
    """Cut an upper bound, upwards; one of nothing but the greatest byte stays."""
    if len(bound) <= MAX_BYTES:
        return bound
    head = bound[:MAX_BYTES].rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else bound


def join_text_bounds(parts: Sequence[TextBounds]) -> TextBounds:
    """Join the bounds of a column in several manifests."""
    lengths = np.concatenate([np.diff(part.ends) for part in parts])
    return TextBounds(b"".join([part.data for part in parts]), _sum(lengths))


def _sum(lengths: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])


def build_exact_test(operator: str, constants: Sequence[bytes]) -> Callable[[bytes, bytes], bool]:
    """Return what decides whether values between two bounds may pass a test of constants, which are in order."""
    first = constants[0] if constants else b""

    def has_any(low: bytes, high: bytes) -> bool:
        place = bisect_left(constants, low)
        return place < len(constants) and constants[place] <= high

    match operator:
        case "lt":
            return lambda low, _: low < first
        case "lt-eq":
            return lambda low, _: low <= first
        case "gt":
            return lambda _, high: high > first
        case "gt-eq":
            return lambda _, high: high >= first
        case "starts-with":
            return lambda low, high: low[: len(first)] <= first <= high
    return has_any
